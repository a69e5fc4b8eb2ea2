"""Random numbers: each lowering draws all it needs from one fresh JAX key.

Distributions are PyTorch's; the numbers are not those of the CPU generator. 16-bit floats are drawn
in float32 and rounded.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.indexing import index_dtype
from torchtpu.lowerings.registry import register_lowering


def _wide(dtype):
    """The float dtype to draw in for results of `dtype`: float64 only for 64-bit ones."""
    return jnp.float64 if np.dtype(dtype) in (np.float64, np.int64, np.uint64) else jnp.float32


def _unit(key, shape, dtype):
    """Uniform in (0, 1): never 0, so that its logarithm is finite."""
    return jax.random.uniform(key, shape, dtype, minval=jnp.finfo(dtype).tiny)


def _below(limit, dtype):
    """The greatest value of a float `dtype` below `limit`."""
    return jnp.nextafter(limit.astype(dtype), like(-jnp.inf, jnp.zeros((), dtype)))


def _uniform(key, shape, dtype, low, high):
    """Uniform in [low, high); rounding, here or to `dtype`, never reaches `high`."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        part = np.finfo(dtype).dtype
        return lax.complex(*(_uniform(k, shape, part, low, high) for k in jax.random.split(key)))
    draw = jnp.promote_types(dtype, jnp.float32)
    low, high = jnp.asarray(low).astype(dtype), jnp.asarray(high).astype(dtype)
    span = high.astype(draw) - low.astype(draw)
    x = jax.random.uniform(key, shape, draw) * span + low.astype(draw)
    return jnp.maximum(low, jnp.minimum(x.astype(dtype), _below(high, dtype)))


# `from` is a Python keyword: these functions take it among **limits.
@register_lowering("aten::uniform", random=True, dynamic=("from", "to"))
def uniform(self, *, key, **limits):
    return _uniform(key, self.shape, self.dtype, limits["from"], limits["to"])


@register_lowering("aten::rand", "aten::rand.generator", random=True, factory=True)
def rand(size, *, key, dtype):
    return _uniform(key, tuple(size), dtypes.to_jax(dtype), 0.0, 1.0)


def _normal(key, shape, dtype, mean=0.0, std=1.0):
    """Normal numbers; complex ones have variance std**2 in all, half of it in each part."""
    draw = jnp.promote_types(dtype, jnp.float32)
    x = jax.random.normal(key, shape, draw)
    return (x * jnp.asarray(std).astype(draw) + jnp.asarray(mean).astype(draw)).astype(dtype)


@register_lowering("aten::normal_functional", random=True, dynamic=("mean", "std"))
def normal_functional(self, mean=0.0, std=1.0, *, key):
    return _normal(key, self.shape, self.dtype, mean, std)


@register_lowering("aten::randn", "aten::randn.generator", random=True, factory=True)
def randn(size, *, key, dtype):
    return _normal(key, tuple(size), dtypes.to_jax(dtype))


@register_lowering("aten::normal.Tensor_float", random=True, dynamic="std")
@register_lowering("aten::normal.float_Tensor", random=True, dynamic="mean")
@register_lowering("aten::normal.Tensor_Tensor", random=True)
def normal(mean, std=1.0, *, key):
    mean, std = jnp.asarray(mean), jnp.asarray(std)
    dtype = (mean if mean.ndim or not std.ndim else std).dtype
    return _normal(key, jnp.broadcast_shapes(mean.shape, std.shape), dtype, mean, std)


def _coin(key, shape, p):
    """True with probability `p`, a number or an array; exact for 0 and 1."""
    if not isinstance(p, (int, float)):
        p = jnp.broadcast_to(upcast(p), shape)
        return jax.random.uniform(key, shape, p.dtype) < p
    # Comparing the raw bits is cheaper than making floats of them, and finer.
    threshold = round(p * 2**32)
    if threshold >= 2**32:
        return jnp.ones(shape, jnp.bool_)
    return jax.random.bits(key, shape, jnp.uint32) < jnp.uint32(threshold)


@register_lowering("aten::bernoulli", random=True)
def bernoulli(self, *, key):
    return _coin(key, self.shape, self)


@register_lowering("aten::bernoulli.p", random=True)
def bernoulli_p(self, p=0.5, *, key):
    return _coin(key, self.shape, p)


@register_lowering("aten::bernoulli.Tensor", random=True)
def bernoulli_tensor(self, p, *, key):
    return _coin(key, self.shape, p)


@register_lowering("aten::native_dropout", random=True)
def native_dropout(input, p, train, *, key):
    if train is False or p == 0:
        return input, jnp.ones(input.shape, jnp.bool_)
    mask = _coin(key, input.shape, 1.0 - p)
    # A product, not a choice: NaN in a dropped place stays, as on the CPU.
    scale = 1 / (1 - p) if p < 1 else 0.0
    return _scaled(input, mask, scale), mask


@register_lowering("aten::native_dropout_backward")
def native_dropout_backward(grad_output, mask, scale):
    return _scaled(grad_output, mask, scale)


def _scaled(x, mask, scale: float):
    wide = upcast(x)
    return (wide * jnp.where(mask, like(scale, wide), like(0, wide))).astype(x.dtype)


def _integers(key, shape, low: int, count: int):
    """Uniform whole numbers in [low, low + count), count <= 2**64."""
    if count <= 2**31 - 1:
        x = jax.random.randint(key, shape, 0, count, jnp.int32)
        if low == 0:
            return x
    elif count == 2**64:
        x = jax.random.bits(key, shape, jnp.uint64)
    else:
        x = jax.random.randint(key, shape, np.uint64(0), np.uint64(count), jnp.uint64)
    # Modular arithmetic: a sum past 2**63 wraps to the number that is meant.
    return x.astype(jnp.int64) + low


def _random(self, low: int, high: int | None, key):
    """Whole numbers in [low, high); None: up to the greatest that the dtype holds exactly."""
    if high is None:
        if jnp.issubdtype(self.dtype, jnp.floating):
            high = 2 ** (jnp.finfo(self.dtype).nmant + 1) + 1
        else:
            high = 2 if self.dtype == jnp.bool_ else jnp.iinfo(self.dtype).max + 1
    return _integers(key, self.shape, low, high - low)


@register_lowering("aten::random", random=True)
def random(self, *, key):
    return _random(self, 0, None, key)


@register_lowering("aten::random.to", random=True)
def random_to(self, to, *, key):
    return _random(self, 0, to, key)


@register_lowering("aten::random.from", random=True)
def random_from(self, *, to, key, **limits):
    return _random(self, limits["from"], to, key)


@register_lowering("aten::randint", "aten::randint.generator", random=True, factory=True)
def randint(high, size, *, key, dtype):
    return _integers(key, tuple(size), 0, high)


@register_lowering("aten::randint.low", "aten::randint.low_generator", random=True, factory=True)
def randint_low(low, high, size, *, key, dtype):
    return _integers(key, tuple(size), low, high - low)


@register_lowering("aten::randperm", "aten::randperm.generator", random=True, factory=True)
def randperm(n, *, key, dtype):
    return jax.random.permutation(key, lax.iota(index_dtype(n), n))


@register_lowering("aten::exponential", random=True, dynamic="lambd")
def exponential(self, lambd=1.0, *, key):
    unit = _unit(key, self.shape, _wide(self.dtype))
    return -jnp.log1p(-unit) / like(lambd, unit)  # above 0


@register_lowering("aten::geometric", random=True, dynamic="p")
def geometric(self, p, *, key):
    unit = _unit(key, self.shape, _wide(self.dtype))
    trials = jnp.ceil(jnp.log(unit) / jnp.log1p(-like(p, unit)))
    return jnp.maximum(trials, 1)


@register_lowering("aten::log_normal", random=True, dynamic=("mean", "std"))
def log_normal(self, mean=1.0, std=2.0, *, key):
    return jnp.exp(_normal(key, self.shape, _wide(self.dtype), mean, std))


@register_lowering("aten::cauchy", random=True, dynamic=("median", "sigma"))
def cauchy(self, median=0.0, sigma=1.0, *, key):
    unit = _unit(key, self.shape, _wide(self.dtype))
    return like(median, unit) + like(sigma, unit) * jnp.tan(math.pi * (unit - 0.5))


@register_lowering("aten::multinomial", random=True)
def multinomial(self, num_samples, replacement=False, *, key):
    """Indices drawn by the weights in the last dimension; weight 0 is never drawn while there are
    others."""
    weights = upcast(self)
    if num_samples == 0 or weights.size == 0:
        return jnp.zeros((*self.shape[:-1], num_samples), jnp.int32)
    if replacement and num_samples > 1:
        return _draw_with_replacement(key, weights, num_samples)
    # Whoever of independent exponential clocks with these rates rings first, second, ...
    clocks = -jnp.log1p(-_unit(key, weights.shape, weights.dtype))
    return lax.top_k(weights / clocks, num_samples)[1]


def _draw_with_replacement(key, weights, num_samples: int):
    """By inverting the distribution function of each row."""
    dtype = index_dtype(weights.shape[-1])
    numbers = lax.broadcasted_iota(dtype, weights.shape, weights.ndim - 1)
    cumulated = lax.cummax(jnp.cumsum(weights, -1), axis=weights.ndim - 1)
    total = cumulated[..., -1:]
    unit = jax.random.uniform(key, (*weights.shape[:-1], num_samples), weights.dtype)
    rows = math.prod(weights.shape[:-1])
    drawn = jax.vmap(lambda c, u: jnp.searchsorted(c, u, side="right"))(
        cumulated.reshape(rows, -1), (unit * total).reshape(rows, -1)
    ).reshape(unit.shape)
    # Rounding in the sum may point at a weight 0: move on to the next positive one, or the last.
    positive = weights > 0
    last = jnp.max(jnp.where(positive, numbers, 0), -1, keepdims=True)
    following = lax.cummin(jnp.where(positive, numbers, last), axis=weights.ndim - 1, reverse=True)
    drawn = jnp.minimum(drawn.astype(dtype), last)
    return jnp.take_along_axis(following, drawn, -1)


@register_lowering("aten::poisson", random=True)
def poisson(self, *, key):
    return jax.random.poisson(key, upcast(self), dtype=jnp.int64)


@register_lowering("aten::binomial", random=True)
def binomial(count, prob, *, key):
    count, prob = upcast(count), upcast(prob)
    return jax.random.binomial(key, count, prob, dtype=count.dtype)


@register_lowering("aten::_standard_gamma", random=True)
def _standard_gamma(self, *, key):
    wide = upcast(self)
    sample = jax.random.gamma(key, wide, dtype=wide.dtype)
    return jnp.maximum(sample, jnp.finfo(wide.dtype).tiny)


@register_lowering("aten::_standard_gamma_grad")
def _standard_gamma_grad(self, output):
    return lax.random_gamma_grad(upcast(self), upcast(output))


@register_lowering("aten::_sample_dirichlet", random=True)
def _sample_dirichlet(self, *, key):
    wide = upcast(self)
    return jax.random.dirichlet(key, wide, dtype=wide.dtype)
