"""Special functions: gamma and zeta families, error functions, modified Bessel functions of the
first kind, orthogonal polynomials. Bessel functions that JAX lacks are in ``bessel.py``.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from torchtpu.lowerings.common import in_opmath, like
from torchtpu.lowerings.registry import register_lowering


def digamma(x):
    """At the pole 0 the sign of zero decides; at the other poles the result is NaN."""
    pole = jnp.copysign(jnp.full_like(x, jnp.inf), -x)
    return jnp.where(x == 0, pole, lax.digamma(x))


def i0(x):
    return lax.bessel_i0e(x) * jnp.exp(jnp.abs(x))


def i1(x):
    return lax.bessel_i1e(x) * jnp.exp(jnp.abs(x))


def entr(x):
    """-x log(x), 0 at 0 and -inf below."""
    inside = -x * jnp.log(jnp.where(x > 0, x, 1))
    return jnp.where(jnp.isnan(x), x, jnp.where(x > 0, inside, jnp.where(x == 0, 0, -jnp.inf)))


_ERFCX_SPLIT = 2.0
_ERFCX_TERMS = 50  # of Laplace's continued fraction: full double precision from the split on


def erfcx(x):
    """exp(x^2) erfc(x), which does not underflow: a continued fraction where x is large."""
    magnitude = jnp.abs(x)
    far = jnp.maximum(magnitude, _ERFCX_SPLIT)
    fraction = far
    for k in range(_ERFCX_TERMS, 0, -1):
        fraction = far + (k / 2) / fraction
    tail = 1 / (math.sqrt(math.pi) * fraction)
    near = jnp.minimum(magnitude, _ERFCX_SPLIT)
    positive = jnp.where(magnitude > _ERFCX_SPLIT, tail, jnp.exp(near * near) * lax.erfc(near))
    result = jnp.where(x < 0, 2 * jnp.exp(x * x) - positive, positive)
    return jnp.where(jnp.isnan(x), x, result)


FUNCTIONS = {
    "digamma": digamma,
    "i0": i0,
    "lgamma": lax.lgamma,
    "special_entr": entr,
    "special_erfcx": erfcx,
    "special_i0e": lax.bessel_i0e,
    "special_i1": i1,
    "special_i1e": lax.bessel_i1e,
    "special_log_ndtr": special.log_ndtr,
    "special_modified_bessel_i0": i0,
    "special_modified_bessel_i1": i1,
    "special_ndtri": special.ndtri,
}


def _unary(function):
    def lowering(self):
        return function(self)

    return lowering


for _name, _function in FUNCTIONS.items():
    register_lowering(f"aten::{_name}", promote="self", int_to_float=True)(
        _unary(in_opmath(_function))
    )


def zeta(x, q):
    """Hurwitz zeta function with PyTorch's edges: inf at poles, NaN where it is not real."""
    result = lax.zeta(jnp.where(x > 1, x, 2), jnp.where(q > 0, q, 1))
    # For q < 0 the series is moved to positive arguments term by term.
    shift = jnp.where((q < 0) & (q != jnp.floor(q)), jnp.ceil(-q), 0)
    moved = lax.fori_loop(
        0,
        jnp.max(jnp.where(jnp.isfinite(shift), shift, 0), initial=0).astype(jnp.int32),
        lambda k, total: total + jnp.where(k < shift, jnp.power(q + k, -x), 0),
        lax.zeta(jnp.where(x > 1, x, 2), jnp.where(q + shift > 0, q + shift, 1)),
    )
    result = jnp.where(q > 0, result, moved)
    not_real = (q <= 0) & (q != jnp.floor(q)) & (x != jnp.floor(x))
    result = jnp.where((q <= 0) & (q == jnp.floor(q)), jnp.inf, result)
    result = jnp.where(not_real | (x < 1) | jnp.isnan(x) | jnp.isnan(q), jnp.nan, result)
    result = jnp.where((q == jnp.inf) & (x > 1), 0, result)
    return jnp.where(x == 1, jnp.inf, result)


BOTH = ("self", "other")


@register_lowering("aten::special_zeta", promote=BOTH, int_to_float=True)
@register_lowering(
    "aten::special_zeta.other_scalar", promote=BOTH, int_to_float=True, dynamic="other"
)
@register_lowering(
    "aten::special_zeta.self_scalar", promote=BOTH, int_to_float=True, dynamic="self"
)
@in_opmath
def special_zeta(self, other):
    return zeta(*jnp.broadcast_arrays(self, other))


@register_lowering("aten::polygamma", promote="self", int_to_float=True)
@in_opmath
def polygamma(n, self):
    if n == 0:
        return digamma(self)
    sign = 1.0 if n % 2 else -1.0
    result = sign * math.factorial(n) * zeta(jnp.full_like(self, n + 1), self)
    return jnp.where(self == -jnp.inf, jnp.nan, result)


@register_lowering("aten::mvlgamma", promote="self", int_to_float=True)
@in_opmath
def mvlgamma(self, p):
    total = jnp.full_like(self, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = total + lax.lgamma(self - j / 2)
    return total


@register_lowering("aten::igamma", promote=BOTH)
@in_opmath
def igamma(self, other):
    return lax.igamma(*jnp.broadcast_arrays(self, other))


@register_lowering("aten::igammac", promote=BOTH)
@in_opmath
def igammac(self, other):
    return lax.igammac(*jnp.broadcast_arrays(self, other))


# Orthogonal polynomials --------------------------------------------------------------------------
#
# Each is (first degree's value at x, step): step(k, x, p_k, p_k-1) gives p_k+1. Degrees below 0
# give 0, which is also PyTorch's rule.


def _chebyshev_step(k, x, p, previous):
    return 2 * x * p - previous


POLYNOMIALS = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev_step),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev_step),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev_step),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev_step),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
    ),
}


def _polynomial(first, step, x, n):
    x, n = jnp.broadcast_arrays(x, n)
    n = jnp.trunc(n)  # the degree is a whole number held in a float

    def body(k, state):
        p, previous = state
        following = step(like(k, x), x, p, previous)
        go_on = n > like(k, x)
        return jnp.where(go_on, following, p), jnp.where(go_on, p, previous)

    degree = jnp.max(jnp.where(jnp.isfinite(n), n, 0), initial=0).astype(jnp.int32)
    start = jnp.where(n >= 1, first(x), 1)
    value, _ = lax.fori_loop(1, degree, body, (start, jnp.ones_like(x)))
    return jnp.where(n < 0, 0, value)


def _register_polynomial(name, first, step, transform):
    @register_lowering(f"aten::special_{name}", promote=("x", "n"), int_to_float=True)
    @register_lowering(
        f"aten::special_{name}.n_scalar", promote=("x", "n"), int_to_float=True, dynamic="n"
    )
    @register_lowering(
        f"aten::special_{name}.x_scalar", promote=("x", "n"), int_to_float=True, dynamic="x"
    )
    @in_opmath
    def lowering(x, n):
        return _polynomial(first, step, transform(x), n)


for _name, (_first, _step) in POLYNOMIALS.items():
    _register_polynomial(_name, _first, _step, lambda x: x)
    if _name.startswith("chebyshev"):
        _register_polynomial(f"shifted_{_name}", _first, _step, lambda x: 2 * x - 1)


@register_lowering("aten::special_spherical_bessel_j0", promote="x", int_to_float=True)
@in_opmath
def spherical_bessel_j0(x):
    small = jnp.abs(x) < 0.5
    square = x * x
    # Near 0 the quotient loses digits; seven terms of the series are exact enough there.
    series = jnp.ones_like(x)
    for k in range(7, 0, -1):
        series = 1 - square / ((2 * k) * (2 * k + 1)) * series
    quotient = jnp.sin(x) / jnp.where(small, 1, x)
    return jnp.where(small, series, jnp.where(jnp.isinf(x), np.array(0, x.dtype), quotient))
