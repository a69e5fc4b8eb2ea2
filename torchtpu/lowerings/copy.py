"""Copying and casting."""

import jax.numpy as jnp

from torchtpu import dtypes
from torchtpu.lowerings.registry import register_lowering


def _cast(x, dtype):
    """`x` in another dtype. A float becomes uint8 by way of int64, as in PyTorch, so that -1.0 gives
    255; XLA alone would clamp."""
    if dtype == jnp.uint8 and jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(jnp.int64)
    return x.astype(dtype)


@register_lowering("aten::copy")
def copy(self, src):
    """`src` broadcast to the shape of `self`; the caller casts to its dtype."""
    if jnp.issubdtype(src.dtype, jnp.complexfloating) and not jnp.issubdtype(
        self.dtype, jnp.complexfloating
    ):
        src = src.real
    return jnp.broadcast_to(_cast(src, self.dtype), self.shape)


@register_lowering("aten::clone", "aten::alias_copy", "aten::lift_fresh_copy", "aten::detach_copy")
def clone(self):
    return self


@register_lowering("aten::_to_copy")
def to_copy(self, *, dtype=None):
    return self if dtype is None else _cast(self, dtypes.to_jax(dtype))


@register_lowering("aten::view_copy", "aten::_reshape_copy")
def view_copy(self, size):
    return self.reshape(size)
