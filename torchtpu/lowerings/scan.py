"""Cumulative operators along one dimension: sums, products, extrema, log-sum-exp."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import in_opmath, upcast
from torchtpu.lowerings.registry import register_lowering


def _accumulate(x, dtype):
    if dtype is not None:
        return upcast(x.astype(dtypes.to_jax(dtype)))
    if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == jnp.bool_:
        return x.astype(jnp.int64)
    return upcast(x)


@register_lowering("aten::cumsum")
def cumsum(self, dim, *, dtype=None):
    x = _accumulate(self, dtype)
    return lax.cumsum(x, dim % x.ndim) if x.ndim else x


@register_lowering("aten::cumprod")
def cumprod(self, dim, *, dtype=None):
    x = _accumulate(self, dtype)
    return lax.cumprod(x, dim % x.ndim) if x.ndim else x


@register_lowering("aten::_logcumsumexp", "aten::logcumsumexp")
@in_opmath
def logcumsumexp(self, dim):
    if self.ndim == 0 or self.size == 0:
        return self
    if jnp.issubdtype(self.dtype, jnp.complexfloating):
        return _complex_logcumsumexp(self, dim % self.ndim)
    return lax.cumlogsumexp(self, dim % self.ndim)


def _complex_logcumsumexp(x, dim):
    """Sums of exponentials, scaled by the running maximum of the real part."""
    high = jnp.max(x.real, dim, keepdims=True)
    high = jnp.where(jnp.isfinite(high), high, 0)
    return jnp.log(lax.cumsum(jnp.exp(x - high), dim)) + high


def _cumulative_extremum(x, dim, at_least_as_extreme):
    """Running extremum and its index: the last of equals, and a NaN from its place on."""
    if x.ndim == 0 or x.size == 0:
        return x, jnp.zeros(x.shape, jnp.int64)
    dim %= x.ndim
    index = lax.broadcasted_iota(jnp.int32, x.shape, dim)

    def later_if_extreme(left, right):
        (a, i), (b, j) = left, right
        take = jnp.isnan(b) | (~jnp.isnan(a) & at_least_as_extreme(b, a))
        return jnp.where(take, b, a), jnp.where(take, j, i)

    return lax.associative_scan(later_if_extreme, (x, index), axis=dim)


@register_lowering("aten::cummax")
def cummax(self, dim):
    return _cumulative_extremum(self, dim, jnp.greater_equal)


@register_lowering("aten::cummin")
def cummin(self, dim):
    return _cumulative_extremum(self, dim, jnp.less_equal)
