"""Activations and their backward formulas, each as PyTorch defines it at the edges and for NaN."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from torchtpu.lowerings.common import in_opmath, like, upcast
from torchtpu.lowerings.registry import register_lowering

# Rectifiers --------------------------------------------------------------------------------------


@register_lowering("aten::relu")
def relu(self):
    return jnp.maximum(self, np.array(0, self.dtype))


@register_lowering("aten::threshold", dynamic=("threshold", "value"))
def threshold(self, threshold, value):
    return jnp.where(self <= like(threshold, self), like(value, self), self)


@register_lowering("aten::threshold_backward", promote=("grad_output", "self"), dynamic="threshold")
def threshold_backward(grad_output, self, threshold):
    return jnp.where(self <= like(threshold, self), np.array(0, grad_output.dtype), grad_output)


@register_lowering("aten::leaky_relu", dynamic="negative_slope")
@in_opmath
def leaky_relu(self, negative_slope=0.01):
    return jnp.where(self > 0, self, self * like(negative_slope, self))


@register_lowering("aten::leaky_relu_backward", dynamic="negative_slope")
@in_opmath
def leaky_relu_backward(grad_output, self, negative_slope, self_is_result):
    # The result has the sign of the input, so either serves.
    return jnp.where(self > 0, grad_output, grad_output * like(negative_slope, grad_output))


@register_lowering("aten::_prelu_kernel")
@in_opmath
def prelu(self, weight):
    return jnp.where(self > 0, self, weight * self)


@register_lowering("aten::_prelu_kernel_backward")
@in_opmath
def prelu_backward(grad_output, self, weight):
    positive = self > 0
    grad_self = jnp.where(positive, grad_output, weight * grad_output)
    return grad_self, jnp.where(positive, 0, self * grad_output)


@register_lowering("aten::rrelu_with_noise_functional", random=True)
def rrelu_with_noise(self, noise, lower=1 / 8, upper=1 / 3, training=False, *, key):
    """Returns the result and the slope of each element, which backward multiplies by."""
    if not training:
        slope = np.array((lower + upper) / 2, upcast(self).dtype)
        return jnp.where(self <= 0, upcast(self) * slope, upcast(self)), noise
    slope = jax.random.uniform(key, self.shape, upcast(self).dtype, minval=lower, maxval=upper)
    slope = jnp.where(self <= 0, slope, np.array(1, slope.dtype))
    return upcast(self) * slope, slope


# Exponential units -------------------------------------------------------------------------------


@register_lowering("aten::elu", dynamic=("alpha", "scale", "input_scale"))
@in_opmath
def elu(self, alpha=1, scale=1, input_scale=1):
    alpha, scale, input_scale = (like(x, self) for x in (alpha, scale, input_scale))
    return jnp.where(self <= 0, jnp.expm1(self * input_scale) * (alpha * scale), self * scale)


@register_lowering("aten::elu_backward", dynamic=("alpha", "scale", "input_scale"))
@in_opmath
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    x = self_or_result
    alpha, scale, input_scale = (like(a, x) for a in (alpha, scale, input_scale))
    slope = x + alpha * scale if is_result else alpha * scale * jnp.exp(x * input_scale)
    return jnp.where(x > 0, grad_output * scale, grad_output * input_scale * slope)


@register_lowering("aten::celu", dynamic="alpha")
@in_opmath
def celu(self, alpha=1.0):
    alpha = like(alpha, self)
    return jnp.where(self <= 0, jnp.expm1(self / alpha) * alpha, self)


@register_lowering("aten::softplus", dynamic=("beta", "threshold"))
@in_opmath
def softplus(self, beta=1, threshold=20):
    beta = like(beta, self)
    z = self * beta
    return jnp.where(z > like(threshold, self), self, jnp.log1p(jnp.exp(z)) / beta)


@register_lowering("aten::softplus_backward", dynamic=("beta", "threshold"))
@in_opmath
def softplus_backward(grad_output, self, beta, threshold):
    z = self * like(beta, self)
    return jnp.where(z > like(threshold, self), grad_output, grad_output * lax.logistic(z))


def _log_sigmoid_meta(self):
    return torch.empty_like(self), torch.empty((0,), dtype=self.dtype, device="meta")


@register_lowering("aten::log_sigmoid_forward", meta=_log_sigmoid_meta)
@in_opmath
def log_sigmoid(self):
    """The second result is PyTorch's buffer for backward, which recomputes: it stays empty."""
    result = jnp.minimum(self, 0) - jnp.log1p(jnp.exp(-jnp.abs(self)))
    return result, jnp.zeros((0,), self.dtype)


@register_lowering("aten::log_sigmoid_backward")
@in_opmath
def log_sigmoid_backward(grad_output, self, buffer):
    return grad_output * lax.logistic(-self)


# Smooth gates ------------------------------------------------------------------------------------

_SQRT_HALF = math.sqrt(0.5)
_GELU_TANH_SCALE = math.sqrt(2 / math.pi)
_GELU_TANH_CUBIC = 0.044715


@register_lowering("aten::gelu")
@in_opmath
def gelu(self, *, approximate="none"):
    if approximate == "tanh":
        inner = _GELU_TANH_SCALE * (self + _GELU_TANH_CUBIC * self * self * self)
        return 0.5 * self * (1 + jnp.tanh(inner))
    return self * (0.5 * (1 + lax.erf(self * _SQRT_HALF)))


@register_lowering("aten::gelu_backward")
@in_opmath
def gelu_backward(grad_output, self, *, approximate="none"):
    if approximate == "tanh":
        tanh = jnp.tanh(_GELU_TANH_SCALE * (self + _GELU_TANH_CUBIC * self * self * self))
        inner_slope = _GELU_TANH_SCALE * (1 + 3 * _GELU_TANH_CUBIC * self * self)
        slope = 0.5 * (1 + tanh) + 0.5 * self * (1 - tanh * tanh) * inner_slope
        return grad_output * slope
    cdf = 0.5 * (1 + lax.erf(self * _SQRT_HALF))
    pdf = jnp.exp(-0.5 * self * self) * (1 / math.sqrt(2 * math.pi))
    return grad_output * (cdf + self * pdf)


def _sigmoid(x):
    return (
        lax.logistic(x)
        if not jnp.issubdtype(x.dtype, jnp.complexfloating)
        else 1 / (1 + jnp.exp(-x))
    )


@register_lowering("aten::silu")
@in_opmath
def silu(self):
    return self * _sigmoid(self)


@register_lowering("aten::silu_backward")
@in_opmath
def silu_backward(grad_output, self):
    gate = _sigmoid(self)
    return grad_output * gate * (1 + self * (1 - gate))


@register_lowering("aten::mish")
@in_opmath
def mish(self):
    return self * jnp.tanh(jnp.log1p(jnp.exp(self)))


@register_lowering("aten::mish_backward")
@in_opmath
def mish_backward(grad_output, self):
    gate = lax.logistic(self)
    tanh = jnp.tanh(jnp.log1p(jnp.exp(self)))
    return grad_output * (tanh + self * gate * (1 - tanh * tanh))


def _halves(x, dim):
    return jnp.split(x, 2, axis=dim)


@register_lowering("aten::glu")
@in_opmath
def glu(self, dim=-1):
    value, gate = _halves(self, dim)
    return value * lax.logistic(gate)


@register_lowering("aten::glu_backward")
@in_opmath
def glu_backward(grad_output, self, dim):
    value, gate = _halves(self, dim)
    gate = lax.logistic(gate)
    grad_value = grad_output * gate
    return jnp.concatenate([grad_value, grad_value * (1 - gate) * value], axis=dim)


@register_lowering("aten::glu_jvp")
@in_opmath
def glu_jvp(glu, x, dx, dim):
    _, gate = _halves(x, dim)
    d_value, d_gate = _halves(dx, dim)
    gate = lax.logistic(gate)
    return d_value * gate + d_gate * glu * (1 - gate)


# Piecewise linear --------------------------------------------------------------------------------


@register_lowering("aten::hardtanh", dynamic=("min_val", "max_val"))
def hardtanh(self, min_val=-1, max_val=1):
    return jnp.minimum(jnp.maximum(self, like(min_val, self)), like(max_val, self))


@register_lowering("aten::hardtanh_backward", dynamic=("min_val", "max_val"))
def hardtanh_backward(grad_output, self, min_val, max_val):
    inside = (self > like(min_val, self)) & (self < like(max_val, self))
    return jnp.where(inside, grad_output, np.array(0, grad_output.dtype))


@register_lowering("aten::hardsigmoid")
@in_opmath
def hardsigmoid(self):
    return jnp.clip(self + 3, 0, 6) / 6


@register_lowering("aten::hardsigmoid_backward")
@in_opmath
def hardsigmoid_backward(grad_output, self):
    return jnp.where((self > -3) & (self < 3), grad_output / 6, 0)


@register_lowering("aten::hardswish")
@in_opmath
def hardswish(self):
    return self * jnp.clip(self + 3, 0, 6) / 6


@register_lowering("aten::hardswish_backward")
@in_opmath
def hardswish_backward(grad_output, self):
    slope = self / 3 + 0.5
    return jnp.where(self <= -3, 0, jnp.where(self >= 3, grad_output, grad_output * slope))


@register_lowering("aten::hardshrink", dynamic="lambd")
def hardshrink(self, lambd=0.5):
    limit = like(lambd, self)
    return jnp.where((self >= -limit) & (self <= limit), np.array(0, self.dtype), self)


@register_lowering("aten::softshrink", dynamic="lambd")
@in_opmath
def softshrink(self, lambd=0.5):
    limit = like(lambd, self)
    # Inside the band the result is zero, but NaN stays NaN.
    inside = jnp.where(jnp.isnan(self), self, np.array(0, self.dtype))
    return jnp.where(self > limit, self - limit, jnp.where(self < -limit, self + limit, inside))


def _shrink_backward(grad, x, lambd):
    limit = like(lambd, x)
    return jnp.where((x < -limit) | (x > limit), grad, np.array(0, grad.dtype))


@register_lowering("aten::softshrink_backward", dynamic="lambd")
def softshrink_backward(grad_output, self, lambd):
    return _shrink_backward(grad_output, self, lambd)


@register_lowering("aten::hardshrink_backward", dynamic="lambd")
def hardshrink_backward(grad_out, self, lambd):
    return _shrink_backward(grad_out, self, lambd)


# Softmax -----------------------------------------------------------------------------------------


def _max_or_zero(x, dim):
    """The maximum along `dim`, also of an empty tensor."""
    return (
        jnp.max(x, axis=dim, keepdims=True, initial=-jnp.inf)
        if x.size == 0
        else jnp.max(x, axis=dim, keepdims=True)
    )


def softmax_of(x, dim):
    """softmax in the dtype of `x`; a row of -inf gives NaN, as in PyTorch."""
    if x.ndim == 0:
        return jnp.where(jnp.isfinite(x), jnp.ones_like(x), jnp.full_like(x, jnp.nan))
    exponentials = jnp.exp(x - _max_or_zero(x, dim))
    return exponentials / jnp.sum(exponentials, axis=dim, keepdims=True)


@register_lowering("aten::_softmax")
@in_opmath
def softmax(self, dim, half_to_float):
    return softmax_of(self, dim)


@register_lowering("aten::_safe_softmax")
@in_opmath
def safe_softmax(self, dim, dtype=None):
    """softmax that gives zeros for a row of -inf (all keys masked)."""
    if self.ndim == 0:
        return jnp.where(self == -jnp.inf, jnp.zeros_like(self), softmax_of(self, dim))
    masked = jnp.all(self == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(masked, 0, softmax_of(jnp.where(masked, 0, self), dim))


@register_lowering("aten::_log_softmax")
@in_opmath
def log_softmax(self, dim, half_to_float):
    if self.ndim == 0:
        return jnp.where(jnp.isfinite(self), jnp.zeros_like(self), jnp.full_like(self, jnp.nan))
    shifted = self - _max_or_zero(self, dim)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=dim, keepdims=True))


def _sum_along(x, dim):
    return jnp.sum(x, axis=dim, keepdims=True) if x.ndim else x


@register_lowering("aten::_softmax_backward_data")
@in_opmath
def softmax_backward(grad_output, output, dim, input_dtype):
    product = grad_output * output
    return product - output * _sum_along(product, dim)


@register_lowering("aten::_log_softmax_backward_data")
@in_opmath
def log_softmax_backward(grad_output, output, dim, input_dtype):
    return grad_output - jnp.exp(output) * _sum_along(grad_output, dim)
