"""Reductions: sums, products, extrema, counts, variances and norms.

16-bit floats accumulate in float32 and round once. Cumulative operators are in ``scan.py``.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import in_opmath, normalize_dims, upcast
from torchtpu.lowerings.registry import register_lowering


def _accumulate(x, dtype=None):
    """`x` in the dtype it is summed in: `dtype` if given, int64 for integers, opmath for floats."""
    if dtype is not None:
        x = x.astype(dtypes.to_jax(dtype))
    elif jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == jnp.bool_:
        return x.astype(jnp.int64)
    return upcast(x)


def _size(x, dims) -> int:
    return math.prod(x.shape[d] for d in dims)


# Sums --------------------------------------------------------------------------------------------


@register_lowering("aten::sum")
def sum_all(self, *, dtype=None):
    return jnp.sum(_accumulate(self, dtype))


@register_lowering("aten::sum.dim_IntList")
def sum_dim(self, dim, keepdim=False, *, dtype=None):
    return jnp.sum(_accumulate(self, dtype), normalize_dims(dim, self.ndim), keepdims=keepdim)


@register_lowering("aten::nansum")
def nansum(self, dim=None, keepdim=False, *, dtype=None):
    x = _accumulate(self, dtype)
    return jnp.sum(jnp.where(jnp.isnan(x), 0, x), normalize_dims(dim, self.ndim), keepdims=keepdim)


def _mean(x, dims, keepdim):
    total = jnp.sum(x, dims, keepdims=keepdim)
    # An empty mean is 0 / 0.
    return total / np.array(_size(x, dims), x.real.dtype)


@register_lowering("aten::mean")
def mean_all(self, *, dtype=None):
    return _mean(_accumulate(self, dtype), tuple(range(self.ndim)), False)


@register_lowering("aten::mean.dim")
def mean_dim(self, dim, keepdim=False, *, dtype=None):
    return _mean(_accumulate(self, dtype), normalize_dims(dim, self.ndim), keepdim)


@register_lowering("aten::prod")
def prod_all(self, *, dtype=None):
    return jnp.prod(_accumulate(self, dtype))


@register_lowering("aten::prod.dim_int")
def prod_dim(self, dim, keepdim=False, *, dtype=None):
    return jnp.prod(_accumulate(self, dtype), normalize_dims(dim, self.ndim), keepdims=keepdim)


@register_lowering("aten::count_nonzero")
def count_nonzero(self, dim=None):
    return jnp.sum(self != 0, normalize_dims(dim, self.ndim), dtype=jnp.int64)


@register_lowering("aten::count_nonzero.dim_IntList")
def count_nonzero_dims(self, dim):
    return jnp.sum(self != 0, normalize_dims(dim, self.ndim), dtype=jnp.int64)


@register_lowering("aten::logsumexp", promote="self", int_to_float=True)
@in_opmath
def logsumexp(self, dim, keepdim=False):
    dims = normalize_dims(dim, self.ndim)
    if self.size == 0:
        return jnp.log(jnp.sum(jnp.exp(self), dims, keepdims=keepdim))
    high = jnp.max(self.real, dims, keepdims=True)
    # Rows whose maximum is infinite must not become inf - inf.
    high = jnp.where(jnp.isinf(high), 0, high)
    result = jnp.log(jnp.sum(jnp.exp(self - high), dims, keepdims=True)) + high
    return result if keepdim else jnp.squeeze(result, dims)


# Logic -------------------------------------------------------------------------------------------


@register_lowering("aten::all")
def all_(self):
    return jnp.all(self != 0)


@register_lowering("aten::all.dim", "aten::all.dims")
def all_dims(self, dim=None, keepdim=False):
    return jnp.all(self != 0, _logic_dims(dim, self.ndim), keepdims=keepdim)


@register_lowering("aten::any")
def any_(self):
    return jnp.any(self != 0)


@register_lowering("aten::any.dim", "aten::any.dims")
def any_dims(self, dim=None, keepdim=False):
    return jnp.any(self != 0, _logic_dims(dim, self.ndim), keepdims=keepdim)


def _logic_dims(dim, ndim):
    """Unlike sum, an empty list of dims means none."""
    return (
        ()
        if dim is not None and not isinstance(dim, int) and not dim
        else normalize_dims(dim, ndim)
    )


# Extrema: NaN wins, the first of equals gives the index ------------------------------------------


@register_lowering("aten::amax")
def amax(self, dim=(), keepdim=False):
    return _maximum_of(self, normalize_dims(dim, self.ndim), keepdim)


@register_lowering("aten::amin")
def amin(self, dim=(), keepdim=False):
    return _minimum_of(self, normalize_dims(dim, self.ndim), keepdim)


def _maximum_of(x, dims, keepdim):
    if 0 in x.shape and _size(x, dims):  # nothing to reduce, but an empty result
        return jnp.zeros(_reduced_shape(x, dims, keepdim), x.dtype)
    return jnp.max(x, dims, keepdims=keepdim)


def _minimum_of(x, dims, keepdim):
    if 0 in x.shape and _size(x, dims):
        return jnp.zeros(_reduced_shape(x, dims, keepdim), x.dtype)
    return jnp.min(x, dims, keepdims=keepdim)


def _reduced_shape(x, dims, keepdim):
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return tuple(n for d, n in enumerate(x.shape) if d not in dims)


def _check_not_empty(x, name):
    if x.size == 0:
        raise RuntimeError(f"{name}(): a tensor without elements has no extremum; give a dim")


@register_lowering("aten::max")
def max_all(self):
    _check_not_empty(self, "max")
    return jnp.max(self)


@register_lowering("aten::min")
def min_all(self):
    _check_not_empty(self, "min")
    return jnp.min(self)


def _arg(function, x, dim, keepdim):
    """Index of the extremum along `dim` (None: of the flattened tensor)."""
    if dim is None:
        index = _arg(function, x.reshape(-1), 0, False)
        return index.reshape((1,) * x.ndim) if keepdim else index
    if x.ndim == 0:
        return jnp.zeros((), jnp.int64)
    dim %= x.ndim
    if x.size == 0:
        return jnp.zeros(_reduced_shape(x, (dim,), keepdim), jnp.int64)
    # 32-bit indices are native on a TPU; no dimension there is longer.
    index_dtype = jnp.int32 if x.shape[dim] < 2**31 else jnp.int64
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int8)
    index = function(x, dim, index_dtype)
    return jnp.expand_dims(index, dim) if keepdim else index


@register_lowering("aten::argmax")
def argmax(self, dim=None, keepdim=False):
    return _arg(lax.argmax, self, dim, keepdim)


@register_lowering("aten::argmin")
def argmin(self, dim=None, keepdim=False):
    return _arg(lax.argmin, self, dim, keepdim)


@register_lowering("aten::max.dim")
def max_dim(self, dim, keepdim=False):
    values = _maximum_of(self, normalize_dims(dim, self.ndim), keepdim)
    return values, _arg(lax.argmax, self, dim, keepdim)


@register_lowering("aten::min.dim")
def min_dim(self, dim, keepdim=False):
    values = _minimum_of(self, normalize_dims(dim, self.ndim), keepdim)
    return values, _arg(lax.argmin, self, dim, keepdim)


@register_lowering("aten::aminmax")
def aminmax(self, *, dim=None, keepdim=False):
    dims = normalize_dims(dim, self.ndim)
    return _minimum_of(self, dims, keepdim), _maximum_of(self, dims, keepdim)


@register_lowering("aten::_aminmax")
def aminmax_all(self):
    return jnp.min(self), jnp.max(self)


@register_lowering("aten::_aminmax.dim")
def aminmax_dim(self, dim, keepdim=False):
    return aminmax(self, dim=dim, keepdim=keepdim)


# Variance ----------------------------------------------------------------------------------------


def _variance_and_mean(self, dim, correction, keepdim):
    """Two passes, in opmath; a complex variance is that of the real plus the imaginary parts."""
    if not jnp.issubdtype(self.dtype, jnp.inexact):
        raise RuntimeError("std and var only support floating point and complex dtypes")
    x = upcast(self)
    dims = normalize_dims(dim, x.ndim)
    mean = _mean(x, dims, True)
    deviation = jnp.abs(x - mean)
    total = jnp.sum(deviation * deviation, dims, keepdims=keepdim)
    correction = 1 if correction is None else correction
    degrees_of_freedom = max(0.0, _size(x, dims) - correction)
    variance = total / np.array(degrees_of_freedom, total.dtype)
    return variance, mean if keepdim else jnp.squeeze(mean, dims)


@register_lowering("aten::var.correction")
def var(self, dim=None, *, correction=None, keepdim=False):
    return _variance_and_mean(self, dim, correction, keepdim)[0]


@register_lowering("aten::std.correction")
def std(self, dim=None, *, correction=None, keepdim=False):
    return jnp.sqrt(_variance_and_mean(self, dim, correction, keepdim)[0])


@register_lowering("aten::var_mean.correction")
def var_mean(self, dim=None, *, correction=None, keepdim=False):
    return _variance_and_mean(self, dim, correction, keepdim)


@register_lowering("aten::std_mean.correction")
def std_mean(self, dim=None, *, correction=None, keepdim=False):
    variance, mean = _variance_and_mean(self, dim, correction, keepdim)
    return jnp.sqrt(variance), mean


# Norms -------------------------------------------------------------------------------------------


def vector_norm(x, order, dims, keepdim=False):
    """The p-norm of `x` (already in opmath) over `dims`; any real order, inf and 0 included."""
    magnitude = jnp.abs(x)
    if order == math.inf:
        return jnp.max(magnitude, dims, keepdims=keepdim, initial=0 if x.size == 0 else None)
    if order == -math.inf:
        return jnp.min(magnitude, dims, keepdims=keepdim, initial=jnp.inf if x.size == 0 else None)
    if order == 0:
        return jnp.sum(magnitude != 0, dims, keepdims=keepdim).astype(magnitude.dtype)
    if order == 1:
        return jnp.sum(magnitude, dims, keepdims=keepdim)
    if order == 2:
        return jnp.sqrt(jnp.sum(magnitude * magnitude, dims, keepdims=keepdim))
    order = np.array(order, magnitude.dtype)
    return jnp.power(jnp.sum(jnp.power(magnitude, order), dims, keepdims=keepdim), 1 / order)


@register_lowering("aten::linalg_vector_norm")
def linalg_vector_norm(self, ord=2, dim=None, keepdim=False, *, dtype=None):
    return vector_norm(_accumulate(self, dtype), ord, normalize_dims(dim, self.ndim), keepdim)


@register_lowering("aten::linalg__powsum", optional=True)
def powsum(self, ord=2, dim=None, keepdim=False, *, dtype=None):
    """Sum of |x| ** ord: a norm without its root."""
    magnitude = jnp.abs(_accumulate(self, dtype))
    dims = normalize_dims(dim, self.ndim)
    if ord == 2:
        return jnp.sum(magnitude * magnitude, dims, keepdims=keepdim)
    return jnp.sum(jnp.power(magnitude, np.array(ord, magnitude.dtype)), dims, keepdims=keepdim)


@register_lowering("aten::norm.Scalar")
@register_lowering("aten::norm.ScalarOpt_dtype")
def norm_all(self, p=2, *, dtype=None):
    order = 2 if p is None else p
    return vector_norm(_accumulate(self, dtype), order, tuple(range(self.ndim)))


@register_lowering("aten::norm.ScalarOpt_dim")
@register_lowering("aten::norm.ScalarOpt_dim_dtype")
def norm_dim(self, p, dim, keepdim=False, *, dtype=None):
    order = 2 if p is None else p
    return vector_norm(_accumulate(self, dtype), order, normalize_dims(dim, self.ndim), keepdim)


@register_lowering("aten::dist", promote=("self", "other"))
@in_opmath
def dist(self, other, p=2):
    difference = self - other
    return vector_norm(difference, p, tuple(range(difference.ndim)))


@register_lowering("aten::renorm")
@in_opmath
def renorm(self, p, dim, maxnorm):
    """Scales each slice along `dim` down to a p-norm of at most maxnorm."""
    dims = tuple(d for d in range(self.ndim) if d != dim % self.ndim)
    norm = vector_norm(self, p, dims, keepdim=True)
    limit = np.array(maxnorm, norm.dtype)
    return self * jnp.where(norm > limit, limit / (norm + np.array(1e-7, norm.dtype)), 1)
