"""Random programs of views and in-place operations give the same on tpu as on the CPU: values,
shapes, strides, offsets and aliasing.

The number of examples is set by VIEW_PROGRAM_EXAMPLES (default 500). Shapes and parameters come from
a small pool, so that programs share compiled executables.
"""

import math
import os

import hypothesis
import torch
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("VIEW_PROGRAM_EXAMPLES", "500"))
SHAPES = [(4, 6), (2, 3, 4), (6,), (1, 4)]


def _dim(t, d):
    return d % t.dim()


# Views: name -> function of (tensor, two small integers). Each may raise on both devices alike.
VIEWS = {
    "transpose": lambda t, a, b: t.transpose(_dim(t, a), _dim(t, b)),
    "select": lambda t, a, b: t.select(_dim(t, a), b % 2),
    "tail": lambda t, a, b: t.narrow(_dim(t, a), 1, t.shape[_dim(t, a)] - 1),
    "head": lambda t, a, b: t.narrow(_dim(t, a), 0, 2),
    "stride2": lambda t, a, b: t[(slice(None),) * _dim(t, a) + (slice(b % 2, None, 2),)],
    "unsqueeze": lambda t, a, b: t.unsqueeze(_dim(t, a)),
    "squeeze": lambda t, a, b: t.squeeze(),
    "expand": lambda t, a, b: t.unsqueeze(0).expand(2, *t.shape),
    "flatten": lambda t, a, b: t.view(-1),
    "halve": lambda t, a, b: t.view(2, -1),
    "diagonal": lambda t, a, b: t.diagonal(b % 2, 0, 1),
    "unfold": lambda t, a, b: t.unfold(_dim(t, a), 2, 1),
    "as_strided": lambda t, a, b: t.as_strided((2, 2), (2, 1), b % 2),
    "flip_dims": lambda t, a, b: t.permute(*range(t.dim() - 1, -1, -1)),
    "chunk": lambda t, a, b: t.chunk(2, _dim(t, a))[-1],
    # Integers only: as floats, the same bits would be denormals, which XLA's arithmetic flushes.
    "as_int16": lambda t, a, b: t.view(torch.int16),
    "as_int32": lambda t, a, b: t.view(torch.int32),
    "detach": lambda t, a, b: t.detach(),
    "unflatten": lambda t, a, b: t.unflatten(_dim(t, a), (2, -1)),
}

# Writes: name -> function of (target, another tensor of the program, small integer).
WRITES = {
    "add_": lambda t, o, n: t.add_(n),
    "mul_": lambda t, o, n: t.mul_(2),
    "neg_": lambda t, o, n: t.neg_(),
    "zero_": lambda t, o, n: t.zero_(),
    "fill_": lambda t, o, n: t.fill_(n),
    "copy_": lambda t, o, n: t.copy_(o.clone()),
    # Where memory overlaps, the CPU refuses what is dense; for the rest its order of writing decides.
    "copy_alias": lambda t, o, n: t.copy_(o if _is_dense(t, o) else o.clone()),
    "add_other": lambda t, o, n: t.add_(o.clone()),
    "setitem": lambda t, o, n: t.__setitem__(0, n),
    "setitem_step": lambda t, o, n: t.__setitem__((..., slice(None, None, 2)), n),
    "setitem_other": lambda t, o, n: t.__setitem__(slice(None), o.clone()),
    "clamp_": lambda t, o, n: t.clamp_(-3, 3),
    "masked_fill_": lambda t, o, n: t.masked_fill_(t.clone() > n, -1),
    "out": lambda t, o, n: torch.add(t.clone(), n, out=t),
    "transpose_": lambda t, o, n: t.transpose_(0, -1),
    "unsqueeze_": lambda t, o, n: t.unsqueeze_(0),
    "data": lambda t, o, n: setattr(t, "data", o),
    "set_": lambda t, o, n: t.set_(o),
    "resize_": lambda t, o, n: t.resize_(2, 3).fill_(n),  # what it adds is uninitialised
}


def _is_dense(*tensors):
    def dense(t):
        by_stride = sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1)
        sizes = [n for _, n in by_stride]
        return all(s == math.prod(sizes[:i]) for i, (s, _) in enumerate(by_stride))

    return all(dense(t) for t in tensors)


STEP = st.one_of(
    st.tuples(
        st.just("view"), st.sampled_from(sorted(VIEWS)), st.integers(0, 2), st.integers(0, 1)
    ),
    st.tuples(
        st.just("write"), st.sampled_from(sorted(WRITES)), st.integers(0, 2), st.integers(0, 1)
    ),
)
PROGRAM = st.tuples(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2),
    st.lists(st.tuples(STEP, st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8),
)


def _has_windows(t):
    """Whether elements share places without being expanded (unfold): PyTorch leaves writing undefined
    there. Writing to an expanded tensor is an error, and stays in."""
    if t.numel() == 0 or any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride(), strict=True)):
        return False
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return torch.arange(span).as_strided(t.shape, t.stride()).unique().numel() < t.numel()


def _run(device, shapes, steps):
    """All tensors of the program, and for each step the class of the error it raised or None."""
    tensors = [
        torch.arange(torch.Size(shape).numel(), dtype=torch.int32).view(shape).to(device)
        for shape in shapes
    ]
    errors = []
    for (kind, name, a, b), target, other in steps:
        t = tensors[target % len(tensors)]
        try:
            if kind == "view":
                tensors.append(VIEWS[name](t, a, b))
            elif not _has_windows(t):
                WRITES[name](t, tensors[other % len(tensors)], a)
            errors.append(None)
        except (RuntimeError, IndexError, TypeError, ZeroDivisionError, ValueError) as error:
            errors.append(type(error))
    return tensors, errors


def _aliases(tensors):
    return [
        [a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in tensors] for a in tensors
    ]


@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="VIEW_PROGRAM_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(PROGRAM)
def test_random_view_programs_agree_with_the_cpu(program):
    shapes, steps = program
    expected, expected_errors = _run("cpu", shapes, steps)
    actual, actual_errors = _run("tpu", shapes, steps)
    assert actual_errors == expected_errors
    assert _aliases(actual) == _aliases(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == "tpu"
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)
