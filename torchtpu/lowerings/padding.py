"""Constant, reflection and replication padding and their backward.

`pad` is PyTorch's: (before, after) pairs from the last dimension backwards; a negative amount cuts.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.registry import register_lowering


@register_lowering("aten::constant_pad_nd", dynamic="value")
def constant_pad_nd(self, pad, value=0):
    amounts = [(0, 0)] * self.ndim
    for i in range(len(pad) // 2):
        amounts[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    # Cut first: XLA would refuse a dimension that is negative in between.
    cuts = [(max(0, -low), max(0, -high)) for low, high in amounts]
    kept = tuple(
        slice(low, size - high) for size, (low, high) in zip(self.shape, cuts, strict=True)
    )
    padding = [(max(0, low), max(0, high), 0) for low, high in amounts]
    return lax.pad(self[kept], like(value, self), padding)


def _reflect(x, dim: int, before: int, after: int):
    size = x.shape[dim]
    part = partial(lax.slice_in_dim, x, axis=dim)
    pieces = [
        lax.rev(part(1, before + 1), (dim,)) if before > 0 else None,
        part(max(0, -before), size - max(0, -after)),
        lax.rev(part(size - 1 - after, size - 1), (dim,)) if after > 0 else None,
    ]
    return jnp.concatenate([piece for piece in pieces if piece is not None], dim)


def _replicate(x, dim: int, before: int, after: int):
    size = x.shape[dim]
    part = partial(lax.slice_in_dim, x, axis=dim)

    def edge(position: int, count: int):
        shape = list(x.shape)
        shape[dim] = count
        return jnp.broadcast_to(part(position, position + 1), shape)

    pieces = [
        edge(0, before) if before > 0 else None,
        part(max(0, -before), size - max(0, -after)),
        edge(size - 1, after) if after > 0 else None,
    ]
    return jnp.concatenate([piece for piece in pieces if piece is not None], dim)


def _pad(one_dim, self, padding):
    for i in range(len(padding) // 2):
        self = one_dim(self, self.ndim - 1 - i, padding[2 * i], padding[2 * i + 1])
    return self


def _pad_backward(one_dim, grad_output, self, padding):
    """Padding copies, so it is linear, and its transpose adds each copy back to where it came from;
    16-bit floats in float32."""
    grad = upcast(grad_output)
    template = jax.ShapeDtypeStruct(self.shape, grad.dtype)
    transpose = jax.linear_transpose(lambda x: _pad(one_dim, x, padding), template)
    return transpose(grad)[0]


def _register(name: str, one_dim) -> None:
    for n in (1, 2, 3):

        @register_lowering(f"aten::{name}{n}d")
        def forward(self, padding):
            return _pad(one_dim, self, padding)

        @register_lowering(f"aten::{name}{n}d_backward")
        def backward(grad_output, self, padding):
            return _pad_backward(one_dim, grad_output, self, padding)


_register("reflection_pad", _reflect)
_register("replication_pad", _replicate)
