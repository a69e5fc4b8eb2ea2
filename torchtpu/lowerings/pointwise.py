"""Pointwise functions of two or three tensors: arithmetic, comparison, logic, clamping, selection.

Functions of one tensor are in ``unary.py``, activations in ``activation.py``.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.lowerings.common import in_opmath, like, upcast
from torchtpu.lowerings.registry import register_lowering
from torchtpu.lowerings.unary import is_complex, is_float

BOTH = ("self", "other")


def is_one(number) -> bool:
    """Whether a scale factor can be left out: a Python number equal to 1 (the default)."""
    return isinstance(number, int | float) and number == 1


def scaled(x, alpha):
    """alpha * x in the dtype of `x`; alpha is a Python number or a 0-d array of any dtype."""
    return x if is_one(alpha) else like(alpha, x) * x


# Arithmetic ------------------------------------------------------------------------------------


@register_lowering("aten::add.Tensor", "aten::add.Scalar", promote=BOTH, dynamic=(*BOTH, "alpha"))
@in_opmath
def add(self, other, alpha=1):
    return jnp.add(self, scaled(other, alpha))


@register_lowering("aten::sub.Tensor", "aten::sub.Scalar", promote=BOTH, dynamic=(*BOTH, "alpha"))
@in_opmath
def sub(self, other, alpha=1):
    return jnp.subtract(self, scaled(other, alpha))


@register_lowering("aten::rsub.Tensor", "aten::rsub.Scalar", promote=BOTH, dynamic=(*BOTH, "alpha"))
@in_opmath
def rsub(self, other, alpha=1):
    return jnp.subtract(other, scaled(self, alpha))


def _fmod(a, b):
    """C's fmod: the remainder has the sign of the dividend."""
    return lax.rem(*jnp.broadcast_arrays(a, jnp.asarray(b, a.dtype)))


def _remainder(a, b):
    """Python's %: the remainder has the sign of the divisor."""
    remainder = _fmod(a, b)
    return jnp.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)


def _floor_divide(a, b):
    """Python's //, with PyTorch's care for rounding and for division by zero."""
    if not is_float(a):
        return jnp.floor_divide(a, b)
    remainder = _fmod(a, b)
    quotient = (a - remainder) / b
    quotient = jnp.where((remainder != 0) & ((b < 0) != (remainder < 0)), quotient - 1, quotient)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    floor = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(quotient), a / b), floor)
    return jnp.where(b == 0, a / b, floor)


def _truncate_divide(a, b):
    if is_float(a):
        return jnp.trunc(a / b)
    return lax.div(*jnp.broadcast_arrays(a, b))


def _power(base, exponent):
    """base ** exponent for arrays of one dtype."""
    if base.dtype == jnp.bool_:
        return base | ~exponent
    if is_float(base) or is_complex(base):
        return jnp.power(base, exponent)
    if jnp.issubdtype(base.dtype, jnp.unsignedinteger):
        return jnp.power(base, exponent)
    # A negative whole exponent leaves only 1 and -1 different from zero.
    odd = (exponent & 1) == 1
    inverse = jnp.where(base == 1, 1, jnp.where(base == -1, jnp.where(odd, -1, 1), 0))
    result = jnp.power(base, jnp.maximum(exponent, 0))
    return jnp.where(exponent < 0, inverse.astype(base.dtype), result)


def logaddexp(a, b):
    if not is_complex(a):
        return jnp.logaddexp(a, b)
    swap = a.real < b.real
    high, low = jnp.where(swap, b, a), jnp.where(swap, a, b)
    return high + jnp.log1p(jnp.exp(low - high))


def logaddexp2(a, b):
    if not is_complex(a):
        return jnp.logaddexp2(a, b)
    ln2 = np.array(np.log(2), a.real.dtype)
    return logaddexp(a * ln2, b * ln2) / ln2


def _xlog(log):
    """x * log(y): 0 where x is 0, unless y is NaN."""

    def function(x, y):
        product = jnp.where(x == 0, 0, x * log(jnp.where(x == 0, 1, y)))
        return jnp.where(jnp.isnan(y), y, product)

    return function


def _left_shift(a, b):
    return a * jnp.exp2(b) if is_float(a) else jnp.left_shift(a, b)


def _right_shift(a, b):
    return a / jnp.exp2(b) if is_float(a) else jnp.right_shift(a, b)


def _maximum(a, b):
    return a | b if a.dtype == jnp.bool_ else jnp.maximum(a, b)


def _minimum(a, b):
    return a & b if a.dtype == jnp.bool_ else jnp.minimum(a, b)


# name: (function of two arrays of the common dtype, integers become float, overloads).
# Both operands are dynamic: a Python number may stand in the place of a tensor, too.
TENSOR_SCALAR = ("Tensor", "Scalar")
BINARY_FUNCTIONS = {
    "mul": (jnp.multiply, False, TENSOR_SCALAR),
    "div": (jnp.true_divide, True, TENSOR_SCALAR),
    "floor_divide": (_floor_divide, False, ("", "Scalar")),
    "fmod": (_fmod, False, TENSOR_SCALAR),
    "remainder": (_remainder, False, ("Tensor", "Scalar", "Scalar_Tensor")),
    "atan2": (jnp.arctan2, True, ("",)),
    "copysign": (jnp.copysign, True, TENSOR_SCALAR),
    "hypot": (jnp.hypot, False, ("",)),
    "logaddexp": (logaddexp, False, ("",)),
    "logaddexp2": (logaddexp2, False, ("",)),
    "xlogy": (_xlog(jnp.log), True, ("Tensor", "Scalar_Other", "Scalar_Self")),
    "special_xlog1py": (_xlog(jnp.log1p), True, ("", "other_scalar", "self_scalar")),
    "maximum": (_maximum, False, ("",)),
    "minimum": (_minimum, False, ("",)),
    "fmax": (jnp.fmax, False, ("",)),
    "fmin": (jnp.fmin, False, ("",)),
    "gcd": (jnp.gcd, False, ("",)),
    "lcm": (jnp.lcm, False, ("",)),
    "bitwise_and": (jnp.bitwise_and, False, ("Tensor", "Scalar", "Scalar_Tensor")),
    "bitwise_or": (jnp.bitwise_or, False, ("Tensor", "Scalar", "Scalar_Tensor")),
    "bitwise_xor": (jnp.bitwise_xor, False, ("Tensor", "Scalar", "Scalar_Tensor")),
    "bitwise_left_shift": (_left_shift, False, ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    "bitwise_right_shift": (_right_shift, False, ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    "__lshift__": (_left_shift, False, TENSOR_SCALAR),
    "__rshift__": (_right_shift, False, TENSOR_SCALAR),
    "eq": (jnp.equal, False, TENSOR_SCALAR),
    "ne": (jnp.not_equal, False, TENSOR_SCALAR),
    "lt": (jnp.less, False, TENSOR_SCALAR),
    "le": (jnp.less_equal, False, TENSOR_SCALAR),
    "gt": (jnp.greater, False, TENSOR_SCALAR),
    "ge": (jnp.greater_equal, False, TENSOR_SCALAR),
}


def _binary(function):
    """Give the two arguments of `function` the schema's names."""

    def lowering(self, other):
        return function(self, other)

    return lowering


for _name, (_function, _int_to_float, _overloads) in BINARY_FUNCTIONS.items():
    for _overload in _overloads:
        register_lowering(
            f"aten::{_name}" + (f".{_overload}" if _overload else ""),
            promote=BOTH,
            int_to_float=_int_to_float,
            dynamic=BOTH,
        )(_binary(in_opmath(_function)))


@register_lowering("aten::heaviside", promote=("self", "values"))
def heaviside(self, values):
    return jnp.where(self == 0, values, (self > 0).astype(self.dtype))


@register_lowering("aten::nextafter", promote=BOTH)
def nextafter(self, other):
    return jnp.nextafter(self, other)


@register_lowering("aten::div.Tensor_mode", "aten::div.Scalar_mode", promote=BOTH, dynamic=BOTH)
@in_opmath
def div_mode(self, other, *, rounding_mode):
    if rounding_mode == "floor":
        return _floor_divide(self, other)
    if rounding_mode == "trunc":
        return _truncate_divide(self, other)
    return jnp.true_divide(self, other)


@register_lowering(
    "aten::pow.Tensor_Tensor", promote=("self", "exponent"), dynamic=("self", "exponent")
)
@register_lowering("aten::pow.Scalar", promote=("self", "exponent"), dynamic="self")
@in_opmath
def power(self, exponent):
    return _power(*jnp.broadcast_arrays(self, exponent))


_ROOTS = {0.5: jnp.sqrt, -0.5: lax.rsqrt, -1.0: lambda x: 1 / x, -2.0: lambda x: 1 / (x * x)}


@register_lowering("aten::pow.Tensor_Scalar", promote=("self", "exponent"))
@in_opmath
def power_of_number(self, exponent):
    """The exponent is part of the program: squares and roots are far cheaper than a power."""
    exponent = exponent.item() if isinstance(exponent, np.generic | np.ndarray) else exponent
    if isinstance(exponent, bool | int | float):
        if is_float(self) or is_complex(self):
            if exponent in _ROOTS:
                return _ROOTS[exponent](self)
            if exponent == int(exponent if abs(exponent) < 64 else 0) and 0 <= exponent <= 4:
                return lax.integer_pow(self, int(exponent))
        elif type(exponent) is int and exponent >= 0 and self.dtype != jnp.bool_:
            return lax.integer_pow(self, exponent)
    return _power(*jnp.broadcast_arrays(self, like(exponent, self)))


# Logic and selection ---------------------------------------------------------------------------


def _logical(function):
    """Each operand is compared with zero on its own: no promotion."""

    def lowering(self, other):
        return function(self != 0, other != 0)

    return lowering


for _name, _function in {
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}.items():
    register_lowering(f"aten::{_name}")(_logical(_function))


@register_lowering("aten::where.self", promote=BOTH, dynamic=BOTH)
def where(condition, self, other):
    return jnp.where(condition != 0, self, other)


def _clamp(self, low, high):
    """PyTorch's order: a low above high gives high; NaN in any operand wins."""
    if low is not None:
        self = _maximum(self, jnp.asarray(low, self.dtype))
    return self if high is None else _minimum(self, jnp.asarray(high, self.dtype))


_LIMITS = ("min", "max")


@register_lowering("aten::clamp", promote=("self", *_LIMITS), dynamic=_LIMITS)
@register_lowering("aten::clamp.Tensor", promote=("self", *_LIMITS))
def clamp(self, min=None, max=None):
    return _clamp(self, min, max)


@register_lowering("aten::clamp_min", promote=("self", "min"), dynamic="min")
@register_lowering("aten::clamp_min.Tensor", promote=("self", "min"))
def clamp_min(self, min):
    return _clamp(self, min, None)


@register_lowering("aten::clamp_max", promote=("self", "max"), dynamic="max")
@register_lowering("aten::clamp_max.Tensor", promote=("self", "max"))
def clamp_max(self, max):
    return _clamp(self, None, max)


# Three tensors ---------------------------------------------------------------------------------

_TRIPLE = ("self", "tensor1", "tensor2")


@register_lowering("aten::addcmul", promote=_TRIPLE, dynamic="value")
@in_opmath
def addcmul(self, tensor1, tensor2, *, value=1):
    return self + scaled(tensor1, value) * tensor2


@register_lowering("aten::addcdiv", promote=_TRIPLE, dynamic="value")
@in_opmath
def addcdiv(self, tensor1, tensor2, *, value=1):
    return self + scaled(tensor1, value) / tensor2


@register_lowering("aten::lerp.Tensor", promote=("self", "end", "weight"))
@register_lowering("aten::lerp.Scalar", promote=("self", "end"), dynamic="weight")
@in_opmath
def lerp(self, end, weight):
    """Interpolates from the nearer end, so that weights 0 and 1 are exact."""
    weight = like(weight, self)
    difference = end - self
    return jnp.where(
        jnp.abs(weight) < 0.5, self + weight * difference, end - difference * (1 - weight)
    )


# Complex numbers (real, imag and view_as_real are views) -----------------------------------------


@register_lowering("aten::complex")
def make_complex(real, imag):
    return lax.complex(*jnp.broadcast_arrays(upcast(real), upcast(imag)))


@register_lowering("aten::polar")
def polar(abs, angle):
    abs, angle = jnp.broadcast_arrays(abs, angle)
    return lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))
