"""Losses and their backward formulas. Losses that PyTorch composes (kl_div, l1_loss,
cross_entropy, ...) need no lowering.

Shapes: N batch, C classes, S further (spatial) dimensions.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch

from torchtpu.lowerings.common import in_opmath
from torchtpu.lowerings.registry import register_lowering

NONE, MEAN, SUM = 0, 1, 2  # at::Reduction


def _reduce(loss, reduction):
    if reduction == MEAN:
        return jnp.sum(loss) / np.array(loss.size, loss.dtype)
    return jnp.sum(loss) if reduction == SUM else loss


def _scale(grad_output, size, reduction):
    """grad_output, divided by the number of elements that a mean went over."""
    return grad_output / np.array(size, grad_output.dtype) if reduction == MEAN else grad_output


# Regression --------------------------------------------------------------------------------------


@register_lowering("aten::mse_loss", promote=("self", "target"))
@in_opmath
def mse_loss(self, target, reduction=MEAN):
    difference = self - target
    return _reduce(difference * difference, reduction)


def _like_self(grad_output, self, target, reduction):
    # PyTorch's meta kernel divides by the number of elements, which may be zero.
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@register_lowering("aten::mse_loss_backward", meta=_like_self)
@in_opmath
def mse_loss_backward(grad_output, self, target, reduction):
    difference = self - target
    return 2 * difference * _scale(grad_output, difference.size, reduction)


@register_lowering("aten::smooth_l1_loss", promote=("self", "target"))
@in_opmath
def smooth_l1_loss(self, target, reduction=MEAN, beta=1.0):
    distance = jnp.abs(self - target)
    if beta == 0:
        return _reduce(distance, reduction)
    loss = jnp.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta)
    return _reduce(loss, reduction)


@register_lowering("aten::smooth_l1_loss_backward")
@in_opmath
def smooth_l1_loss_backward(grad_output, self, target, reduction, beta):
    difference = self - target
    slope = jnp.sign(difference)
    if beta != 0:
        slope = jnp.where(jnp.abs(difference) < beta, difference / beta, slope)
    return slope * _scale(grad_output, difference.size, reduction)


@register_lowering("aten::huber_loss", promote=("self", "target"))
@in_opmath
def huber_loss(self, target, reduction=MEAN, delta=1.0):
    distance = jnp.abs(self - target)
    quadratic = 0.5 * distance * distance
    loss = jnp.where(distance <= delta, quadratic, delta * (distance - 0.5 * delta))
    return _reduce(loss, reduction)


@register_lowering("aten::huber_loss_backward")
@in_opmath
def huber_loss_backward(grad_output, self, target, reduction, delta):
    difference = self - target
    return jnp.clip(difference, -delta, delta) * _scale(grad_output, difference.size, reduction)


# Two classes -------------------------------------------------------------------------------------

_MIN_LOG = -100.0  # PyTorch bounds the logarithms, so that a loss at 0 or 1 stays finite
_BCE_EPSILON = 1e-12


@register_lowering("aten::binary_cross_entropy")
@in_opmath
def binary_cross_entropy(self, target, weight=None, reduction=MEAN):
    log = jnp.maximum(jnp.log(self), _MIN_LOG)
    log_complement = jnp.maximum(jnp.log1p(-self), _MIN_LOG)
    loss = (target - 1) * log_complement - target * log
    return _reduce(loss if weight is None else loss * weight, reduction)


@register_lowering("aten::binary_cross_entropy_backward")
@in_opmath
def binary_cross_entropy_backward(grad_output, self, target, weight=None, reduction=MEAN):
    variance = jnp.maximum((1 - self) * self, _BCE_EPSILON)
    gradient = (self - target) / variance * _scale(grad_output, self.size, reduction)
    return gradient if weight is None else gradient * weight


@register_lowering("aten::binary_cross_entropy_with_logits")
@in_opmath
def binary_cross_entropy_with_logits(self, target, weight=None, pos_weight=None, reduction=MEAN):
    log_sigmoid = jnp.minimum(self, 0) - jnp.log1p(jnp.exp(-jnp.abs(self)))
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * self - log_sigmoid
    return _reduce(loss if weight is None else loss * weight, reduction)


@register_lowering("aten::soft_margin_loss", promote=("self", "target"))
@in_opmath
def soft_margin_loss(self, target, reduction=MEAN):
    return _reduce(jnp.log1p(jnp.exp(-target * self)), reduction)


@register_lowering("aten::soft_margin_loss_backward")
@in_opmath
def soft_margin_loss_backward(grad_output, self, target, reduction):
    z = jnp.exp(-target * self)
    return -target * z / (z + 1) * _scale(grad_output, self.size, reduction)


# Negative log likelihood: classes are gathered and scattered, never one-hot ----------------------


def _nll_terms(self, target, weight, ignore_index, class_dim):
    """Class indices that are safe to gather, and the weight of each target (0 if ignored)."""
    classes = self.shape[class_dim]
    ignored = target == ignore_index
    index = jnp.where(ignored, 0, target).astype(jnp.int32)
    if weight is None:
        weights = jnp.ones(target.shape, self.dtype)
    elif classes == 0:
        weights = jnp.zeros(target.shape, self.dtype)
    else:
        weights = jnp.take(weight.astype(self.dtype), index, mode="clip")
    return index, jnp.where(ignored, np.array(0, self.dtype), weights)


def _nll_forward(self, target, weight, reduction, ignore_index, class_dim):
    index, weights = _nll_terms(self, target, weight, ignore_index, class_dim)
    gathered = jnp.take_along_axis(self, jnp.expand_dims(index, class_dim), class_dim, mode="clip")
    # An ignored class may hold -inf: 0 * inf must not reach the sum.
    loss = jnp.where(weights == 0, 0, -jnp.squeeze(gathered, class_dim) * weights)
    if reduction == NONE:
        return loss, jnp.zeros((), self.dtype)
    total_weight = jnp.sum(weights)
    total = jnp.sum(loss)
    return total / total_weight if reduction == MEAN else total, total_weight


def _nll_backward(
    grad_output, self, target, weight, reduction, ignore_index, total_weight, class_dim
):
    index, weights = _nll_terms(self, target, weight, ignore_index, class_dim)
    if reduction == MEAN:
        grad_output = grad_output / total_weight
    gradient = jnp.where(weights == 0, 0, -weights * grad_output)
    classes = jnp.arange(self.shape[class_dim], dtype=jnp.int32)
    classes = classes.reshape((-1,) + (1,) * (self.ndim - 1 - class_dim))
    # A comparison with the class numbers fuses; a scatter would not.
    hit = jnp.expand_dims(index, class_dim) == classes
    return jnp.where(hit, jnp.expand_dims(gradient, class_dim), np.array(0, self.dtype))


@register_lowering("aten::nll_loss_forward")
@in_opmath
def nll_loss(self, target, weight, reduction, ignore_index):
    """self (N, C) or (C); target (N) or ()."""
    return _nll_forward(self, target, weight, reduction, ignore_index, self.ndim - 1)


@register_lowering("aten::nll_loss_backward")
@in_opmath
def nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight):
    return _nll_backward(
        grad_output, self, target, weight, reduction, ignore_index, total_weight, self.ndim - 1
    )


@register_lowering("aten::nll_loss2d_forward")
@in_opmath
def nll_loss2d(self, target, weight, reduction, ignore_index):
    """self (N, C, S, S); target (N, S, S)."""
    return _nll_forward(self, target, weight, reduction, ignore_index, 1)


@register_lowering("aten::nll_loss2d_backward")
@in_opmath
def nll_loss2d_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight):
    return _nll_backward(
        grad_output, self, target, weight, reduction, ignore_index, total_weight, 1
    )


# Margins -----------------------------------------------------------------------------------------


def _margin_terms(self, target, margin, weight):
    """Violations (N, C), zero at the target, and what is needed for their gradient."""
    x = self.reshape(-1, self.shape[-1]) if self.ndim > 1 else self.reshape(1, -1)
    index = jnp.broadcast_to(target.reshape(-1, 1), (x.shape[0], 1)).astype(jnp.int32)
    violation = margin - jnp.take_along_axis(x, index, 1, mode="clip") + x
    is_target = jnp.arange(x.shape[1], dtype=jnp.int32) == index
    active = (violation > 0) & ~is_target
    weights = 1 if weight is None else jnp.take(weight, index, mode="clip")
    return jnp.where(active, violation, 0), active, is_target, weights, x


@register_lowering("aten::multi_margin_loss")
@in_opmath
def multi_margin_loss(self, target, p=1, margin=1, weight=None, reduction=MEAN):
    violation, _, _, weights, x = _margin_terms(self, target, margin, weight)
    violation = violation if p == 1 else violation * violation
    loss = jnp.sum(weights * violation, 1) / x.shape[1]
    return _reduce(loss.reshape(target.shape) if reduction == NONE else loss, reduction)


@register_lowering("aten::multi_margin_loss_backward")
@in_opmath
def multi_margin_loss_backward(grad_output, self, target, p, margin, weight=None, reduction=MEAN):
    violation, active, is_target, weights, x = _margin_terms(self, target, margin, weight)
    slope = active.astype(x.dtype) if p == 1 else 2 * violation
    slope = weights * slope / x.shape[1]
    slope = jnp.where(is_target, -jnp.sum(slope, 1, keepdims=True), slope)
    grad = _scale(grad_output, x.shape[0], reduction)
    return (slope * (grad.reshape(-1, 1) if reduction == NONE else grad)).reshape(self.shape)


def _multilabel_terms(self, target):
    """x (N, C), labels (N, C) up to the first -1, their validity, and which classes are labels."""
    x = self.reshape(-1, self.shape[-1]) if self.ndim else self.reshape(1, 1)
    labels = target.reshape(x.shape).astype(jnp.int32)
    valid = jnp.cumprod((labels >= 0).astype(jnp.int32), 1) > 0
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)[:, None]
    index = jnp.where(valid, labels, x.shape[1])
    is_target = jnp.zeros(x.shape, bool).at[rows, index].set(True, mode="drop")
    return x, labels, valid, is_target


def _multilabel_violations(x, labels, valid, is_target):
    """(N, label, class): how far each class that is no label comes too near to each label."""
    at_label = jnp.take_along_axis(x, jnp.where(valid, labels, 0), 1)
    violation = 1 - at_label[:, :, None] + x[:, None, :]
    active = (violation > 0) & valid[:, :, None] & ~is_target[:, None, :]
    return jnp.where(active, violation, 0), active


@register_lowering("aten::multilabel_margin_loss_forward")
@in_opmath
def multilabel_margin_loss(self, target, reduction):
    x, labels, valid, is_target = _multilabel_terms(self, target)
    violation, _ = _multilabel_violations(x, labels, valid, is_target)
    loss = jnp.sum(violation, (1, 2)) / x.shape[1]
    if reduction == NONE:
        loss = loss.reshape(self.shape[:-1])
    return _reduce(loss, reduction), is_target.astype(x.dtype).reshape(target.shape)


@register_lowering("aten::multilabel_margin_loss_backward")
@in_opmath
def multilabel_margin_loss_backward(grad_output, self, target, reduction, is_target):
    x, labels, valid, is_target = _multilabel_terms(self, target)
    _, active = _multilabel_violations(x, labels, valid, is_target)
    active = active.astype(x.dtype) / x.shape[1]
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)[:, None]
    index = jnp.where(valid, labels, x.shape[1])
    slope = jnp.sum(active, 1).at[rows, index].add(-jnp.sum(active, 2), mode="drop")
    grad = _scale(grad_output, x.shape[0], reduction)
    return (slope * (grad.reshape(-1, 1) if reduction == NONE else grad)).reshape(self.shape)
