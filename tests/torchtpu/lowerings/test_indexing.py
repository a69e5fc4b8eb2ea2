"""Indexing with tensors agrees with the CPU: values, result shapes, and gradients."""

import pytest
import torch

from torchtpu.config import config


def tensor(*shape, dtype=torch.float32, grad=True):
    x = (torch.arange(float(torch.Size(shape).numel())) * 7 % 11 - 5).reshape(shape).to(dtype)
    return x.requires_grad_(grad and dtype.is_floating_point)


ROWS = torch.tensor([0, 2, -1, 2])
PAIRS = torch.tensor([[1], [0]])

GETS = {
    "first": lambda x, i, j: x[i],
    "middle": lambda x, i, j: x[:, i],
    "last": lambda x, i, j: x[..., i],
    "matrix": lambda x, i, j: x[j],
    "adjacent": lambda x, i, j: x[:, i, i],
    "broadcast": lambda x, i, j: x[j, i],
    "apart": lambda x, i, j: x[i, :, i],
    "apart_broadcast": lambda x, i, j: x[j, :, i],
    "with_slice": lambda x, i, j: x[1:, i, ::2],
    "with_none": lambda x, i, j: x[None, i],
    "scalar_tensor": lambda x, i, j: x[i[1], :, i],
    "int32": lambda x, i, j: x[i.int()],
    "empty_index": lambda x, i, j: x[i[:0]],
    "unsafe": lambda x, i, j: torch.ops.aten._unsafe_index.Tensor(x, [None, i]),
}


@pytest.mark.parametrize("name", GETS)
def test_index(same_as_cpu, name):
    same_as_cpu(GETS[name], tensor(3, 4, 5), ROWS, PAIRS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_index_keeps_every_dtype(same_as_cpu, dtype):
    same_as_cpu(lambda x, i: x[:, i], tensor(3, 4, dtype=dtype), ROWS)


def test_index_of_an_empty_tensor(same_as_cpu):
    same_as_cpu(lambda x, i: x[i], torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    same_as_cpu(lambda x, i: x[:, i], torch.zeros(0, 3), ROWS.clamp(max=1))


def test_gradient_of_repeated_indices_adds_up_in_float32(no_fallback):
    x = torch.ones(2, dtype=torch.bfloat16, device="tpu", requires_grad=True)
    (gradient,) = torch.autograd.grad(x[torch.zeros(1000, dtype=torch.int64)].sum(), x)
    assert gradient.tolist() == [1000, 0]  # in bfloat16 the sum would stop at 256


def set_item(index):
    def run(x, i, j, value):
        y = x.clone()
        y[index(i, j)] = value
        return y

    return run


PUTS = {
    "number": (set_item(lambda i, j: i), 2.5),
    "row": (set_item(lambda i, j: i), torch.linspace(0, 1, 20).reshape(4, 5).requires_grad_()),
    "columns": (set_item(lambda i, j: (slice(None), i[:2])), torch.tensor([[7.0], [8.0]])),
    "pairs": (set_item(lambda i, j: (j, i[:2])), torch.linspace(0, 1, 10).reshape(2, 5)),
}


@pytest.mark.parametrize("name", PUTS)
def test_assignment_through_an_index(same_as_cpu, name):
    function, value = PUTS[name]
    same_as_cpu(function, tensor(3, 4, 5), ROWS[:3] if name == "number" else ROWS, PAIRS, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_index_put_accumulates_repeated_indices(same_as_cpu, dtype):
    x, values = tensor(4, 3, dtype=dtype), tensor(5, 3, dtype=dtype)
    index = torch.tensor([1, 1, 0, 1, -4])
    same_as_cpu(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, index, values)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_of_one_number_through_a_mask(same_as_cpu, monkeypatch, accumulate):
    monkeypatch.setattr(config, "fallback", "allow")  # nonzero, where it is accumulated
    mask = torch.tensor([True, False, True])
    five = torch.tensor(5.0)
    same_as_cpu(lambda x, m, v: x.index_put((m,), v, accumulate=accumulate), tensor(3), mask, five)


def test_last_of_repeated_writes_wins_on_the_cpu_platform(same_as_cpu):
    index = torch.tensor([1, 0, 1])
    same_as_cpu(lambda x, i, v: x.index_put((i,), v), tensor(3), index, tensor(3))


@pytest.mark.parametrize("shape", [(3, 4), ()])
def test_index_select(same_as_cpu, shape):
    index = torch.tensor([0, 2, 2]) if shape else torch.tensor([0])
    same_as_cpu(lambda x, i: x.index_select(-1, i), tensor(*shape), index)


ALONG = {
    "index_add": lambda x, i, s: x.index_add(1, i, s, alpha=0.5),
    "index_copy": lambda x, i, s: x.index_copy(1, i, s),
    "index_fill": lambda x, i, s: x.index_fill(1, i, 3.5),
    "index_fill_tensor": lambda x, i, s: x.index_fill(1, i, s.detach().sum()),
    "index_add_in_place": lambda x, i, s: x.clone().index_add_(1, i, s),
}


@pytest.mark.parametrize("name", ALONG)
def test_along_a_dimension(same_as_cpu, name):
    same_as_cpu(ALONG[name], tensor(3, 4, 2), torch.tensor([3, 0]), tensor(3, 2, 2))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce(same_as_cpu, reduce, include_self):
    def run(x, i, s):
        return x.index_reduce(0, i, s, reduce, include_self=include_self)

    index = torch.tensor([2, 0, 2, 2])
    same_as_cpu(run, tensor(4, 2, grad=False), index, tensor(4, 2, grad=False))
    same_as_cpu(run, tensor(4, 2, dtype=torch.int64), index, tensor(4, 2, dtype=torch.int64))


def test_take_and_put(same_as_cpu):
    index = torch.tensor([[0, -1], [5, 3]])
    same_as_cpu(lambda x, i: x.take(i), tensor(3, 4), index)
    same_as_cpu(lambda x, i, s: x.put(i, s), tensor(3, 4), index, tensor(2, 2))
    same_as_cpu(lambda x, i, s: x.put(i, s, accumulate=True), tensor(3, 4), index * 0, tensor(2, 2))


MASK = torch.arange(12).reshape(3, 4) % 3 == 0

MASKED = {
    "fill_number": lambda x, m: x.masked_fill(m, -float("inf")),
    "fill_tensor": lambda x, m: x.masked_fill(m, x.detach().sum()),
    "fill_broadcast": lambda x, m: x.masked_fill(m[:1], 1),
    "fill_in_place": lambda x, m: x.clone().masked_fill_(m, 2.0),
    "scatter": lambda x, m: x.masked_scatter(m, x.flatten() * 2),
    "set_item": lambda x, m: set_item(lambda i, j: m)(x, None, None, 0.0),
}


@pytest.mark.parametrize("name", MASKED)
def test_masks(same_as_cpu, name):
    same_as_cpu(MASKED[name], tensor(3, 4), MASK)


def test_another_fill_value_does_not_compile_again(no_fallback):
    from torchtpu.runtime.executable_cache import cache

    x, mask = tensor(3, 4, grad=False).to("tpu"), MASK.to("tpu")
    x.masked_fill(mask, -1.0)
    before = len(cache.entries)
    assert x.masked_fill(mask, -9.0).cpu()[0, 0] == -9
    assert len(cache.entries) == before


def test_nonzero_static(same_as_cpu):
    same_as_cpu(lambda m: torch.nonzero_static(m, size=3), MASK)
    same_as_cpu(lambda m: torch.nonzero_static(m, size=6, fill_value=9), MASK)


PARTS = {
    "slice": lambda x: x[:, 1:6:2],
    "slice_first": lambda x: x[1:2],
    "select": lambda x: x[:, -2],
    "unfold_overlapping": lambda x: x.unfold(1, 3, 2),
    "unfold_apart": lambda x: x.unfold(1, 2, 3),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 3, 1, 1, 6, 3),
    "slice_scatter_whole_step": lambda x: torch.slice_scatter(x, x[:2] * 3, 0, 1),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 3, 1, -1),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_and_their_gradients(same_as_cpu, name):
    same_as_cpu(PARTS[name], tensor(3, 7))
