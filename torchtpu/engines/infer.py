"""Shapes, dtypes and strides of an operator's results, from PyTorch's meta kernels or from JAX."""

from __future__ import annotations

import jax
import torch
from torch import Tensor

from torchtpu import dtypes
from torchtpu.engines.forms import KernelForm
from torchtpu.program import Call, Program, apply_call, tracing_context


def infer(form: KernelForm, bound, meta, call: Call, program: Program):
    """What the caller gets: (new results, written values), two lists of meta tensors (None: absent;
    a whole number, which a few operators return among tensors, is the value itself).

    bound: the caller's arguments; meta: the same with meta tensors in place of tpu tensors.
    Raises what PyTorch's meta kernel raises for wrong arguments.
    """
    lowering = form.lowering
    if callable(lowering.meta):
        names = [a.name for a in lowering.overload._schema.arguments]
        results = _flat(lowering.meta(**{n: meta.get(n, bound.get(n)) for n in names}))
        return _split(form, results, bound)
    if lowering.meta == "torch":
        try:
            return _from_own_meta(form, bound, meta)
        except NotImplementedError:
            if form.overload is not lowering.overload:
                try:
                    return _from_functional_meta(form, bound, meta)
                except NotImplementedError:
                    pass
    return _split(form, _from_jax(call, program), bound)


def _flat(value) -> list:
    if value is None or isinstance(value, (Tensor, int)):
        return [value]
    return [item for part in value for item in _flat(part)]


def _arguments(schema, meta: dict):
    """Positional and keyword arguments for a call on the meta device."""
    args, kwargs = [], {}
    for argument in schema.arguments:
        if argument.name == "generator":
            if argument.kwarg_only and not argument.has_default_value():
                kwargs["generator"] = None
            continue
        if argument.name not in meta:
            if not argument.kwarg_only and any(
                later.name in meta and not later.kwarg_only
                for later in schema.arguments[len(args) + 1 :]
            ):
                args.append(argument.default_value)
            continue
        value = meta[argument.name]
        if argument.name == "device":
            value = "meta"
        if argument.name == "pin_memory":
            continue
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    if "device" not in meta and any(a.name == "device" for a in schema.arguments):
        kwargs["device"] = "meta"
    return args, kwargs


def _from_own_meta(form: KernelForm, bound, meta):
    args, kwargs = _arguments(form.overload._schema, meta)
    results = form.overload(*args, **kwargs)
    returned = _flat(results) if form.returns_written or results is not None else []
    if form.written:
        fresh = []
        if len(form.returns_written) == len(returned):
            fresh = [
                r for r, name in zip(returned, form.returns_written, strict=True) if name is None
            ]
        else:
            fresh = [r for r in returned if not any(name for name in form.returns_written)]
        written = _flat([meta[name] for name in form.written if bound.get(name) is not None])
        return fresh, written
    return returned, []


def _from_functional_meta(form: KernelForm, bound, meta):
    functional = form.lowering.overload
    args, kwargs = _arguments(
        functional._schema,
        {n: v for n, v in meta.items() if n in form.functional_arguments},
    )
    return _split(form, _flat(functional(*args, **kwargs)), bound)


def _split(form: KernelForm, results: list, bound):
    """Separate a functional overload's results into new ones and written ones."""
    count = len(_flat([bound[name] for name in form.written if bound.get(name) is not None]))
    if count == 0:
        return results, []
    fresh, written = results[: len(results) - count], results[len(results) - count :]
    if not any(a.kwarg_only for a in form.overload._schema.arguments if a.name in form.written):
        # In place: what is written keeps the caller's shape and dtype.
        own = _flat([bound[name] for name in form.written if bound.get(name) is not None])
        written = [meta_like(t) for t in own]
    else:
        own = _flat([bound[name] for name in form.written])
        written = [m.to(t.dtype) for m, t in zip(written, own, strict=True)]
    return fresh, written


def meta_like(tensor: Tensor) -> Tensor:
    """A meta tensor of the same size, strides and dtype."""
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta"
    )


def _from_jax(call: Call, program: Program) -> list:
    """Meta tensors from the lowering's own abstract evaluation; contiguous."""
    free = Call(call.lowering, call.arguments, call.compute_dtype, call.numbers, None)

    def trace(*arrays):
        values = program.read_inputs(arrays)
        key = jax.random.key(0) if call.lowering.random else None
        return apply_call(free, values, key)

    shapes = program.input_shapes()
    with tracing_context(program.matmul_precision):
        results = jax.eval_shape(trace, *shapes)
    return [
        None if r is None else torch.empty(r.shape, dtype=dtypes.to_torch(r.dtype), device="meta")
        for r in results
    ]
