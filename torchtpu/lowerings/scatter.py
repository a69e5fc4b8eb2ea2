"""gather and the scatter family: one index for each element along one dimension.

`index` may be smaller than the tensor in the other dimensions. Indices are promised to be in bounds
(see ``indexing.py``).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.indexing import index_dtype, mean_from_sum, reduce_identity
from torchtpu.lowerings.registry import register_lowering

_MODE = lax.GatherScatterMode.PROMISE_IN_BOUNDS


def _corner(index, dim: int, x):
    """The part of `x` that `index` can reach: cut to the index's size in every other dimension."""
    return tuple(
        slice(None) if d == dim or x.shape[d] == index.shape[d] else slice(index.shape[d])
        for d in range(x.ndim)
    )


def _starts(index, size: int):
    return index.astype(index_dtype(size))[..., None]


@register_lowering("aten::gather")
def gather(self, dim, index, *, sparse_grad=False):
    if index.size == 0:
        return jnp.zeros(index.shape, self.dtype)
    if self.ndim == 0 or index.ndim == 0:
        x, positions = self.reshape(-1), index.reshape(-1)
        return gather(x, 0, positions).reshape(index.shape)
    dim %= self.ndim
    others = tuple(d for d in range(self.ndim) if d != dim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return lax.gather(
        self[_corner(index, dim, self)],
        _starts(index, self.shape[dim]),
        numbers,
        slice_sizes=(1,) * self.ndim,
        mode=_MODE,
    )


def _scatter(operation, x, dim: int, index, updates):
    """One of ``lax.scatter*`` along `dim`; `updates` has (or is cut to) the shape of `index`."""
    if index.size == 0:
        return x
    if x.ndim == 0 or index.ndim == 0:
        flat = _scatter(operation, x.reshape(-1), 0, index.reshape(-1), updates.reshape(-1))
        return flat.reshape(x.shape)
    dim %= x.ndim
    updates = updates[tuple(slice(size) for size in index.shape)].astype(x.dtype)
    corner = _corner(index, dim, x)
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        operand_batching_dims=others,
        scatter_indices_batching_dims=others,
    )
    part = operation(x[corner], _starts(index, x.shape[dim]), updates, numbers, mode=_MODE)
    whole = part.shape == x.shape
    return part if whole else lax.dynamic_update_slice(x, part, (0,) * x.ndim)


@register_lowering("aten::scatter.src")
def scatter_src(self, dim, index, src):
    return _scatter(lax.scatter, self, dim, index, src)


@register_lowering("aten::scatter.value", dynamic="value")
def scatter_value(self, dim, index, value):
    return _scatter(lax.scatter, self, dim, index, jnp.full(index.shape, like(value, self)))


@register_lowering("aten::scatter.reduce")
def scatter_reduce_src(self, dim, index, src, *, reduce):
    reduce = {"add": "sum", "multiply": "prod"}[reduce]
    return scatter_reduce(self, dim, index, src, reduce)


@register_lowering("aten::scatter.value_reduce", dynamic="value")
def scatter_reduce_value(self, dim, index, value, *, reduce):
    src = jnp.full(index.shape, like(value, self))
    return scatter_reduce_src(self, dim, index, src, reduce=reduce)


@register_lowering("aten::scatter_add")
def scatter_add(self, dim, index, src):
    return scatter_reduce(self, dim, index, src, "sum")


@register_lowering("aten::scatter_reduce.two")
def scatter_reduce(self, dim, index, src, reduce, *, include_self=True):
    """16-bit floats accumulate in float32. Booleans: sum is "or", prod is "and"."""
    if index.size == 0:
        return self
    if self.dtype == jnp.bool_:
        reduce = {"sum": "amax", "mean": "amax", "prod": "amin"}.get(reduce, reduce)
    x, src = upcast(self), upcast(src)
    if not include_self:
        identity = jnp.full(index.shape, like(reduce_identity(reduce, x.dtype), x))
        x = _scatter(lax.scatter, x, dim, index, identity)
    operation = {
        "sum": lax.scatter_add,
        "mean": lax.scatter_add,
        "prod": lax.scatter_mul,
        "amax": lax.scatter_max,
        "amin": lax.scatter_min,
    }[reduce]
    result = _scatter(operation, x, dim, index, src)
    if reduce == "mean":
        count = jnp.full(self.shape, int(include_self), jnp.int32)
        count = _scatter(lax.scatter_add, count, dim, index, jnp.ones(index.shape, jnp.int32))
        result = mean_from_sum(result, count)
    return result.astype(self.dtype)
