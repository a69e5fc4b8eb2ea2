"""Joining, repeating and rearranging: cat, stack, flip, roll, repeat, tril/triu, diagonals, pixel and
channel shuffles, trace.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.indexing import index_dtype
from torchtpu.lowerings.registry import register_lowering


@register_lowering("aten::cat", promote="tensors")
def cat(tensors, dim=0):
    # A tensor of shape (0,) joins anything: PyTorch keeps that from its early days.
    joined = [t for t in tensors if t.shape != (0,)] or tensors[:1]
    return joined[0] if len(joined) == 1 else jnp.concatenate(joined, dim % joined[0].ndim)


@register_lowering("aten::stack", "aten::_stack", promote="tensors")
def stack(tensors, dim=0):
    return jnp.stack(tensors, dim % (tensors[0].ndim + 1))


@register_lowering("aten::block_diag", promote="tensors")
def block_diag(tensors):
    blocks = [t.reshape((1,) * (2 - t.ndim) + t.shape) for t in tensors]
    rows, columns = (sum(block.shape[d] for block in blocks) for d in (0, 1))
    result = jnp.zeros((rows, columns), blocks[0].dtype)
    row = column = 0
    for block in blocks:
        if block.size:
            result = lax.dynamic_update_slice(result, block, (row, column))
        row, column = row + block.shape[0], column + block.shape[1]
    return result


@register_lowering("aten::_chunk_cat", promote="tensors")
def _chunk_cat(tensors, dim, num_chunks):
    """Each tensor is cut along `dim` into `num_chunks` (zero-padded) chunks; chunk i of the result is
    chunk i of every tensor, flattened from `dim` on."""
    pieces = []
    for tensor in tensors:
        dim %= tensor.ndim
        rows = max(1, -(-tensor.shape[dim] // num_chunks))
        padding = [(0, 0)] * tensor.ndim
        padding[dim] = (0, rows * num_chunks - tensor.shape[dim])
        chunks = jnp.pad(tensor, padding)
        pieces.append(chunks.reshape(*tensor.shape[:dim], num_chunks, -1))
    return jnp.concatenate(pieces, dim + 1)


@register_lowering("aten::flip")
def flip(self, dims):
    return lax.rev(self, [d % self.ndim for d in dims]) if self.ndim else self


@register_lowering("aten::roll")
def roll(self, shifts, dims=()):
    shifts, dims = _as_tuple(shifts), _as_tuple(dims)
    if self.size == 0:
        return self
    if not dims:
        return jnp.roll(self.reshape(-1), shifts[0]).reshape(self.shape)
    return jnp.roll(self, shifts, dims) if self.ndim else self


def _as_tuple(value):
    return (value,) if isinstance(value, int) else tuple(value)


@register_lowering("aten::repeat")
def repeat(self, repeats):
    x = self.reshape((1,) * (len(repeats) - self.ndim) + self.shape)
    if any(n == 0 for n in repeats) or x.size == 0:
        return jnp.zeros([n * s for n, s in zip(repeats, x.shape, strict=True)], x.dtype)
    return jnp.tile(x, repeats)


# meta="jax": PyTorch's meta kernel has no NotImplementedError for a missing output_size.
@register_lowering("aten::repeat_interleave.Tensor", meta="jax")
def repeat_interleave(repeats, *, output_size=None):
    """The index of each repetition: i stands repeats[i] times. Needs `output_size`, their sum: without
    it the result's size depends on data and the caller falls back."""
    if output_size is None:
        raise NotImplementedError("repeat_interleave needs output_size to have a static shape")
    dtype = index_dtype(repeats.size, output_size)
    if output_size == 0 or repeats.size == 0:
        return jnp.zeros(output_size, repeats.dtype)
    numbers = jnp.arange(repeats.size, dtype=dtype)
    return jnp.repeat(numbers, repeats.astype(dtype), total_repeat_length=output_size)


def _row_column(x):
    """Row and column numbers of the last two dimensions, to be compared by broadcasting."""
    rows = lax.broadcasted_iota(jnp.int32, (x.shape[-2], 1), 0)
    columns = lax.broadcasted_iota(jnp.int32, (1, x.shape[-1]), 1)
    return rows, columns


def _clamp_offset(x, offset: int) -> int:
    """Any offset past the corners keeps all or nothing; it must fit the iota's 32 bits."""
    return max(-x.shape[-2] - 1, min(x.shape[-1] + 1, offset))


@register_lowering("aten::tril")
def tril(self, diagonal=0):
    rows, columns = _row_column(self)
    return jnp.where(columns - rows <= _clamp_offset(self, diagonal), self, like(0, self))


@register_lowering("aten::triu")
def triu(self, diagonal=0):
    rows, columns = _row_column(self)
    return jnp.where(columns - rows >= _clamp_offset(self, diagonal), self, like(0, self))


def _put_diagonal(target, diagonal, offset: int):
    """`target` (..., rows, columns) with `diagonal` (..., n) on the diagonal that `offset` names.

    Elementwise: each row's value is spread over the row and kept where row and column meet, which
    needs no scatter.
    """
    size = target.shape[-2]
    first_row = max(0, -offset)
    padding = [(0, 0)] * (diagonal.ndim - 1) + [(first_row, size - first_row - diagonal.shape[-1])]
    by_row = jnp.pad(diagonal, padding)[..., None]
    rows, columns = _row_column(target)
    return jnp.where(columns - rows == offset, by_row.astype(target.dtype), target)


@register_lowering("aten::diagonal_scatter")
def diagonal_scatter(self, src, offset=0, dim1=0, dim2=1):
    if src.size == 0:
        return self
    dims = (dim1 % self.ndim, dim2 % self.ndim)
    target = jnp.moveaxis(self, dims, (-2, -1))
    return jnp.moveaxis(_put_diagonal(target, src, offset), (-2, -1), dims)


@register_lowering("aten::diagonal_backward")
def diagonal_backward(grad_output, input_sizes, offset, dim1, dim2):
    zeros = jnp.zeros(input_sizes, grad_output.dtype)
    return diagonal_scatter(zeros, grad_output, offset, dim1, dim2)


@register_lowering("aten::diag_embed")
def diag_embed(self, offset=0, dim1=-2, dim2=-1):
    size = self.shape[-1] + abs(offset)
    ndim = self.ndim + 1
    zeros = jnp.zeros((*self.shape[:-1], size, size), self.dtype)
    matrices = _put_diagonal(zeros, self, offset) if self.size else zeros
    return jnp.moveaxis(matrices, (-2, -1), (dim1 % ndim, dim2 % ndim))


@register_lowering("aten::trace")
def trace(self):
    if not jnp.issubdtype(self.dtype, jnp.inexact):
        return jnp.trace(self, dtype=jnp.int64)
    return jnp.trace(upcast(self))


@register_lowering("aten::channel_shuffle")
def channel_shuffle(self, groups):
    batch, channels, *rest = self.shape
    grouped = self.reshape(batch, groups, channels // groups, *rest)
    return jnp.swapaxes(grouped, 1, 2).reshape(self.shape)


@register_lowering("aten::pixel_shuffle")
def pixel_shuffle(self, upscale_factor):
    r = upscale_factor
    *batch, channels, height, width = self.shape
    x = self.reshape(*batch, channels // (r * r), r, r, height, width)
    n = len(batch)
    x = x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*batch, channels // (r * r), height * r, width * r)


@register_lowering("aten::pixel_unshuffle")
def pixel_unshuffle(self, downscale_factor):
    r = downscale_factor
    *batch, channels, height, width = self.shape
    x = self.reshape(*batch, channels, height // r, r, width // r, r)
    n = len(batch)
    x = x.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*batch, channels * r * r, height // r, width // r)


@register_lowering("aten::linalg_cross", promote=("self", "other"))
def linalg_cross(self, other, *, dim=-1):
    a, b = jnp.broadcast_arrays(upcast(self), upcast(other))
    return jnp.cross(a, b, axis=dim)
