"""Pointwise functions of one tensor: rounding, signs, exponentials, trigonometry, predicates.

Special functions (Bessel, gamma, zeta, ...) are in ``special.py``.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.lowerings.common import in_opmath, upcast
from torchtpu.lowerings.registry import register_lowering


def is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def is_complex(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.complexfloating)


def sign(x):
    """-1, 0 or 1; 0 for NaN, as in PyTorch (JAX gives NaN)."""
    if is_float(x):
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)
    return x if x.dtype == jnp.bool_ else jnp.sign(x)


def sgn(x):
    """sign, and x / |x| for complex numbers."""
    if not is_complex(x):
        return sign(x)
    magnitude = jnp.abs(x)
    return jnp.where(magnitude == 0, 0, x / jnp.where(magnitude == 0, 1, magnitude))


def _if_float(function):
    """`function` on floating-point values; integers are already whole."""
    return lambda self: function(self) if is_float(self) else self


def sigmoid(x):
    return 1 / (1 + jnp.exp(-x)) if is_complex(x) else lax.logistic(x)


def log2(x):
    return jnp.log2(x) if not is_complex(x) else jnp.log(x) / np.float32(math.log(2))


def _sinc(x):
    """sin(pi x) / (pi x), and 1 at 0."""
    product = x * np.array(math.pi, x.dtype)
    return jnp.where(x == 0, 1, jnp.sin(product) / jnp.where(x == 0, 1, product))


def _by_parts(real_function):
    """Apply to the real and imaginary part of complex numbers."""

    def function(x):
        if is_complex(x):
            return lax.complex(real_function(x.real), real_function(x.imag))
        return real_function(x)

    return function


# Result in the dtype of the argument; integers become the default float dtype first.
FLOAT_FUNCTIONS = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "deg2rad": lambda x: x * np.array(math.pi / 180, x.dtype),
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "rad2deg": lambda x: x * np.array(180 / math.pi, x.dtype),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lax.rsqrt,
    "sigmoid": sigmoid,
    "sin": jnp.sin,
    "sinc": _sinc,
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}

# Result in the dtype of the argument, integers included.
SAME_DTYPE_FUNCTIONS = {
    "abs": lambda self: self if self.dtype == jnp.bool_ else jnp.abs(self),
    "bitwise_not": jnp.bitwise_not,
    "ceil": _if_float(jnp.ceil),
    "floor": _if_float(jnp.floor),
    "frac": in_opmath(lambda self: self - jnp.trunc(self)),
    "neg": jnp.negative,
    "round": _if_float(jnp.round),
    "sgn": in_opmath(sgn),
    "sign": sign,
    "trunc": _if_float(jnp.trunc),
    "_conj_physical": jnp.conj,
}


def _signbit(self):
    if is_float(self):
        return jnp.signbit(self)
    return jnp.zeros(self.shape, bool) if self.dtype == jnp.bool_ else self < 0


def _nowhere(self):
    return jnp.zeros(self.shape, bool)


# Result is bool.
PREDICATES = {
    "isnan": jnp.isnan,
    "isinf": lambda self: jnp.isinf(self) if is_float(self) or is_complex(self) else _nowhere(self),
    "isneginf": lambda self: self == -jnp.inf if is_float(self) else _nowhere(self),
    "isposinf": lambda self: self == jnp.inf if is_float(self) else _nowhere(self),
    "logical_not": lambda self: self == 0,
    "signbit": _signbit,
}


def _unary(function):
    """Give the only argument of `function` the schema's name."""

    def lowering(self):
        return function(self)

    return lowering


for _name, _function in FLOAT_FUNCTIONS.items():
    register_lowering(f"aten::{_name}", promote="self", int_to_float=True)(
        _unary(in_opmath(_function))
    )
for _name, _function in (SAME_DTYPE_FUNCTIONS | PREDICATES).items():
    register_lowering(f"aten::{_name}")(_unary(_function))


@register_lowering("aten::round.decimals")
@in_opmath
def round_decimals(self, *, decimals):
    if not is_float(self):
        return self
    power = np.array(10.0 ** abs(decimals), self.dtype)
    if decimals < 0:
        return jnp.round(self / power) * power
    return jnp.round(self * power) / power


@register_lowering("aten::logit", promote="self", int_to_float=True)
@in_opmath
def logit(self, eps=None):
    if eps is not None:
        low = np.array(eps, self.dtype)
        self = jnp.clip(self, low, 1 - low)
    return jnp.log(self / (1 - self))


@register_lowering("aten::logit_backward")
@in_opmath
def logit_backward(grad_output, self, eps=None):
    gradient = grad_output / (self * (1 - self))
    if eps is None:
        return jnp.where((self < 0) | (self > 1), jnp.nan, gradient)
    low = np.array(eps, self.dtype)
    return jnp.where((self < low) | (self > 1 - low), 0, gradient)


@register_lowering("aten::sigmoid_backward")
@in_opmath
def sigmoid_backward(grad_output, output):
    return grad_output * jnp.conj((1 - output) * output)


@register_lowering("aten::tanh_backward")
@in_opmath
def tanh_backward(grad_output, output):
    return grad_output * jnp.conj(1 - output * output)


@register_lowering("aten::angle", promote="self", int_to_float=True)
def angle(self):
    if is_complex(self):
        return jnp.arctan2(self.imag, self.real)
    straight = np.array(math.pi, self.dtype)
    return jnp.where(self < 0, straight, jnp.where(jnp.isnan(self), self, np.array(0, self.dtype)))


@register_lowering("aten::nan_to_num")
def nan_to_num(self, nan=None, posinf=None, neginf=None):
    """Infinities become the largest finite numbers unless told otherwise."""
    if not (is_float(self) or is_complex(self)):
        return self

    def replace(x):
        limits = jnp.finfo(x.dtype)
        high = limits.max if posinf is None else posinf
        low = limits.min if neginf is None else neginf
        nan_value = 0.0 if nan is None else nan
        x = jnp.where(jnp.isnan(x), np.array(nan_value, x.dtype), x)
        x = jnp.where(x == jnp.inf, np.array(high, x.dtype), x)
        return jnp.where(x == -jnp.inf, np.array(low, x.dtype), x)

    return _by_parts(replace)(self)


@register_lowering("aten::frexp.Tensor")
def frexp(self):
    """Mantissa in [0.5, 1) and int32 exponent; not-finite values keep exponent 0."""
    mantissa, exponent = jnp.frexp(upcast(self))
    finite = jnp.isfinite(self)
    return jnp.where(finite, mantissa, self), jnp.where(finite, exponent, 0).astype(jnp.int32)


@register_lowering("aten::zero", idempotent=True)
def zero(self):
    return jnp.zeros_like(self)


@register_lowering("aten::fill.Scalar", dynamic="value", idempotent=True)
def fill(self, value):
    return jnp.full(self.shape, jnp.asarray(value).astype(self.dtype))


@register_lowering("aten::fill.Tensor", idempotent=True)
def fill_tensor(self, value):
    return jnp.broadcast_to(value.astype(self.dtype), self.shape)
