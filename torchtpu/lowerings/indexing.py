"""Indexing with integer tensors: index, index_put, index_select/add/copy/fill/reduce, take, put, and
masks of the tensor's own shape (masked_fill, masked_scatter).

Boolean masks in an index are turned into integers by the caller. Indices are promised to be in
bounds, as PyTorch demands: what an out-of-range index reads or writes is undefined in strict eager
(debug eager checks). Where an index repeats and nothing is accumulated, which write wins is
undefined in PyTorch and XLA alike; on the CPU platform it is the last one.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.registry import register_lowering

IN_BOUNDS = "promise_in_bounds"


def index_dtype(*sizes: int):
    """The narrowest dtype that indexes dimensions of these sizes: 64-bit indices are slow on TPU."""
    return jnp.int64 if any(size >= 2**31 for size in sizes) else jnp.int32


def _locate(x, indices):
    """ATen's list of index tensors (None: whole dimension) as a JAX index."""
    dtype = index_dtype(*x.shape)
    return tuple(slice(None) if i is None else i.astype(dtype) for i in indices)


def _on_dim(x, dim: int, index):
    """The JAX index that applies a 0-d or 1-d `index` to dimension `dim` of `x`."""
    dim %= x.ndim
    return (slice(None),) * dim + (index.reshape(-1).astype(index_dtype(x.shape[dim])),)


def _at_least_1d(*arrays):
    """0-d arrays as 1-d ones: a 0-d tensor counts as having one dimension of size 1."""
    return tuple(a.reshape(1) if a.ndim == 0 else a for a in arrays)


def add_at(x, where, values, negative: bool = False):
    """``x[where] += values``; 16-bit floats add up in float32 and round once, booleans are or-ed."""
    if x.dtype == jnp.bool_:
        return x.at[where].max(values, mode=IN_BOUNDS, wrap_negative_indices=negative)
    total = upcast(x).at[where].add(upcast(values), mode=IN_BOUNDS, wrap_negative_indices=negative)
    return total.astype(x.dtype)


def reduce_identity(reduce: str, dtype):
    """The value that leaves a reduction (of scatter_reduce / index_reduce) unchanged."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf if reduce == "amax" else jnp.inf
    if dtype == jnp.bool_:
        return reduce == "amin"
    info = jnp.iinfo(dtype)
    return info.min if reduce == "amax" else info.max


def mean_from_sum(total, count):
    """total / count for a reduction over `count` (0 counts as 1) values; integers round down."""
    count = jnp.maximum(count, 1)
    if jnp.issubdtype(total.dtype, jnp.integer):
        return total // count.astype(total.dtype)
    return total / count.astype(total.dtype)


@register_lowering("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(self, indices):
    if all(i is None for i in indices):
        return self
    where = _locate(self, indices)
    if 0 in self.shape:  # XLA refuses to gather from an empty dimension, even nothing
        return jnp.zeros(
            jnp.broadcast_to(0, self.shape).at[where].get(mode="clip").shape, self.dtype
        )
    return self.at[where].get(mode=IN_BOUNDS)


@register_lowering("aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put")
def index_put(self, indices, values, accumulate=False, unsafe=False):
    if self.size == 0 or values.size == 0:
        return self
    where = _locate(self, indices)
    if accumulate:
        return add_at(self, where, values, negative=True)
    return self.at[where].set(values, mode=IN_BOUNDS)


@register_lowering("aten::_unsafe_masked_index", dynamic="fill")
def _unsafe_masked_index(self, mask, indices, fill):
    picked = index(self, _clamped(self, indices))
    return jnp.where(mask, picked, like(fill, self))


@register_lowering("aten::_unsafe_masked_index_put_accumulate")
def _unsafe_masked_index_put_accumulate(self, mask, indices, values):
    masked = jnp.where(mask, values, like(0, values))
    return index_put(self, _clamped(self, indices), masked, accumulate=True)


def _clamped(x, indices):
    return [
        None if i is None else jnp.clip(i, -size, size - 1)
        for i, size in zip(indices, x.shape, strict=False)
    ]


@register_lowering("aten::index_select")
def index_select(self, dim, index):
    (x,) = _at_least_1d(self)
    where = _on_dim(x, dim, index)
    if x.size == 0 or index.size == 0:
        dim %= x.ndim
        shape = (*x.shape[:dim], index.size, *x.shape[dim + 1 :])
        return jnp.zeros(shape if self.ndim else (), self.dtype)
    picked = x.at[where].get(mode=IN_BOUNDS, wrap_negative_indices=False)
    return picked if self.ndim else picked.reshape(())


@register_lowering("aten::index_add", dynamic="alpha")
def index_add(self, dim, index, source, *, alpha=1):
    x, source = _at_least_1d(self, source)
    if source.size == 0:
        return self
    if not isinstance(alpha, int):
        source = upcast(source) * like(alpha, upcast(source))
    return add_at(x, _on_dim(x, dim, index), source).reshape(self.shape)


@register_lowering("aten::index_copy")
def index_copy(self, dim, index, source):
    x, source = _at_least_1d(self, source)
    if source.size == 0:
        return self
    x = x.at[_on_dim(x, dim, index)].set(source, mode=IN_BOUNDS, wrap_negative_indices=False)
    return x.reshape(self.shape)


@register_lowering("aten::index_fill.int_Scalar", dynamic="value")
@register_lowering("aten::index_fill.int_Tensor")
def index_fill(self, dim, index, value):
    (x,) = _at_least_1d(self)
    if x.size == 0 or index.size == 0:
        return self
    return x.at[_on_dim(x, dim, index)].set(like(value, x), mode=IN_BOUNDS).reshape(self.shape)


@register_lowering("aten::index_reduce")
def index_reduce(self, dim, index, source, reduce, *, include_self=True):
    x, source = _at_least_1d(self, source)
    if source.size == 0:
        return self
    dim %= x.ndim
    where = _on_dim(x, dim, index)
    wide, source = upcast(x), upcast(source)
    if not include_self:
        identity = like(reduce_identity(reduce, wide.dtype), wide)
        wide = wide.at[where].set(identity, mode=IN_BOUNDS, wrap_negative_indices=False)
    target = wide.at[where]
    update = {
        "prod": target.multiply,
        "mean": target.add,
        "amax": target.max,
        "amin": target.min,
    }[reduce]
    result = update(source, mode=IN_BOUNDS, wrap_negative_indices=False)
    if reduce == "mean":
        count = jnp.full(x.shape[dim], int(include_self), jnp.int32).at[where[-1]].add(1)
        count = count.reshape((-1,) + (1,) * (x.ndim - dim - 1))
        result = mean_from_sum(result, count)
    return result.astype(self.dtype).reshape(self.shape)


@register_lowering("aten::take")
def take(self, index):
    flat = self.reshape(-1)
    if flat.size == 0 or index.size == 0:
        return jnp.zeros(index.shape, self.dtype)
    return flat.at[index.astype(index_dtype(flat.size))].get(mode=IN_BOUNDS)


@register_lowering("aten::put")
def put(self, index, source, accumulate=False):
    if self.size == 0 or index.size == 0:
        return self
    flat = self.reshape(-1)
    result = index_put(flat, [index.reshape(-1)], source.reshape(-1), accumulate)
    return result.reshape(self.shape)


@register_lowering("aten::masked_fill.Scalar", dynamic="value", idempotent=True)
@register_lowering("aten::masked_fill.Tensor", idempotent=True)
def masked_fill(self, mask, value):
    return jnp.where(mask.astype(bool), like(value, self), self)


@register_lowering("aten::masked_scatter")
def masked_scatter(self, mask, source):
    shape = jnp.broadcast_shapes(self.shape, mask.shape)
    if source.size == 0 or math.prod(shape) == 0:
        return jnp.broadcast_to(self, shape)
    mask = jnp.broadcast_to(mask.astype(bool), shape)
    nth = _ordinals(mask).reshape(shape)
    # Where the mask is False before its first True, `nth` is -1 and the value is not used.
    picked = source.reshape(-1).at[jnp.maximum(nth, 0)].get(mode="clip")
    return jnp.where(mask, picked, self)


@register_lowering("aten::masked_scatter_backward")
def masked_scatter_backward(grad_output, mask, sizes):
    numel = math.prod(sizes)
    mask = jnp.broadcast_to(mask.astype(bool), grad_output.shape).reshape(-1)
    if numel == 0 or mask.size == 0:
        return jnp.zeros(sizes, grad_output.dtype)
    place = jnp.where(mask, _ordinals(mask), numel)  # past the end: dropped
    gradient = jnp.zeros(numel, grad_output.dtype)
    return gradient.at[place].set(grad_output.reshape(-1), mode="drop").reshape(sizes)


def _ordinals(mask):
    """For each True of a boolean mask, flattened, how many Trues come before it."""
    return jnp.cumsum(mask.reshape(-1), dtype=index_dtype(mask.size)) - 1


@register_lowering("aten::nonzero_static", meta="jax")
def nonzero_static(self, *, size, fill_value=-1):
    if self.ndim == 0:
        return jnp.zeros((size, 0), jnp.int64)
    places = jnp.nonzero(self, size=size, fill_value=fill_value)
    return jnp.stack(places, axis=1).astype(jnp.int64)


@register_lowering("aten::slice_scatter")
def slice_scatter(self, src, dim=0, start=None, end=None, step=1):
    dim %= self.ndim
    size = self.shape[dim]
    where = range(size)[start:end:step]
    if len(where) == 0 or src.size == 0:
        return self
    if step == 1:
        return lax.dynamic_update_slice_in_dim(self, src.astype(self.dtype), where[0], dim)
    spread = _spread(src, size, dim, where)
    place = jnp.arange(size, dtype=jnp.int32)
    hit = (place >= where[0]) & (place <= where[-1]) & ((place - where[0]) % step == 0)
    return jnp.where(hit.reshape((-1,) + (1,) * (self.ndim - dim - 1)), spread, self)


@register_lowering("aten::slice_backward")
def slice_backward(grad_output, input_sizes, dim, start, end, step):
    dim %= len(input_sizes)
    where = range(input_sizes[dim])[start:end:step]
    if len(where) == 0:
        return jnp.zeros(input_sizes, grad_output.dtype)
    return _spread(grad_output, input_sizes[dim], dim, where)


def _spread(x, size: int, dim: int, where: range):
    """`x` put at the positions `where` of a dimension of `size`, zeros elsewhere."""
    padding = [(0, 0, 0)] * x.ndim
    padding[dim] = (where[0], size - 1 - where[-1], where.step - 1)
    return lax.pad(x, like(0, x), padding)


@register_lowering("aten::select_scatter")
def select_scatter(self, src, dim, index):
    dim %= self.ndim
    src = jnp.expand_dims(src, dim).astype(self.dtype)
    return lax.dynamic_update_slice_in_dim(self, src, index % self.shape[dim], dim)


@register_lowering("aten::select_backward")
def select_backward(grad_output, input_sizes, dim, index):
    dim %= len(input_sizes)
    index %= input_sizes[dim]
    where = range(index, index + 1)
    return _spread(jnp.expand_dims(grad_output, dim), input_sizes[dim], dim, where)


@register_lowering("aten::unfold_backward")
def unfold_backward(grad_in, input_sizes, dim, size, step):
    """The windows (count along `dim`, `size` last) are added back where they were cut out."""
    if len(input_sizes) == 0:
        return grad_in.reshape(())
    dim %= len(input_sizes)
    windows = jnp.moveaxis(grad_in, -1, dim + 1)
    count = windows.shape[dim]
    shape = list(input_sizes)
    gradient = jnp.zeros(shape, grad_in.dtype)
    if grad_in.size == 0:
        return gradient
    shape[dim] = count * size
    place = jnp.arange(count, dtype=jnp.int32)[:, None] * step + jnp.arange(size, dtype=jnp.int32)
    return add_at(gradient, _on_dim(gradient, dim, place), windows.reshape(shape))
