"""Layer, group, batch and weight normalisation, with their backward.

Statistics are computed in float32 for 16-bit inputs, in two passes (mean, then centred squares), and
inputs and parameters may differ in dtype, as they do under autocast.

Legend: N batch, C channels, G groups, the channel axis of batch norm is 1. ``invstd`` and ``rstd`` are
both ``1 / sqrt(variance + eps)``.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering


def _moments(x, axes):
    """Mean and centred `x` over `axes` (kept as size 1), and the biased variance."""
    mean = jnp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, centred, jnp.mean(jnp.square(centred), axis=axes, keepdims=True)


def _affine(x, weight, bias):
    """``x * weight + bias`` with either optional, in opmath; shapes must broadcast already."""
    if weight is not None:
        x = x * upcast(weight)
    if bias is not None:
        x = x + upcast(bias)
    return x


# --- layer norm -----------------------------------------------------------------------------------


@register_lowering("aten::native_layer_norm")
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    x = upcast(input)
    mean, centred, var = _moments(x, tuple(range(x.ndim - len(normalized_shape), x.ndim)))
    rstd = lax.rsqrt(var + eps)
    return _affine(centred * rstd, weight, bias), mean, rstd


@register_lowering("aten::native_layer_norm_backward")
def native_layer_norm_backward(
    grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
):
    outer = input.ndim - len(normalized_shape)
    axes, outer_axes = tuple(range(outer, input.ndim)), tuple(range(outer))
    grad, rstd = upcast(grad_out), upcast(rstd)
    normalised = (upcast(input) - upcast(mean)) * rstd
    grad_normalised = grad if weight is None else grad * upcast(weight)
    grad_input = rstd * (
        grad_normalised
        - jnp.mean(grad_normalised, axis=axes, keepdims=True)
        - normalised * jnp.mean(grad_normalised * normalised, axis=axes, keepdims=True)
    )
    return (
        grad_input if output_mask[0] else None,
        jnp.sum(grad * normalised, axis=outer_axes) if output_mask[1] else None,
        jnp.sum(grad, axis=outer_axes) if output_mask[2] else None,
    )


# --- group norm -----------------------------------------------------------------------------------


def _per_group(values, shape, group: int):
    """(C,) parameters, broadcastable to an input of (N, G, C / G, rest)."""
    return upcast(values).reshape(1, group, shape[1] // group, 1)


@register_lowering("aten::native_group_norm")
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    x = upcast(input).reshape(N, group, C // group, HxW)
    mean, centred, var = _moments(x, (2, 3))
    rstd = lax.rsqrt(var + eps)
    weight, bias = (
        None if parameter is None else _per_group(parameter, (N, C), group)
        for parameter in (weight, bias)
    )
    result = _affine(centred * rstd, weight, bias)
    return result.reshape(input.shape), mean.reshape(N, group), rstd.reshape(N, group)


@register_lowering("aten::native_group_norm_backward")
def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    grouped = (N, group, C // group, HxW)
    mean, rstd = (upcast(v).reshape(N, group, 1, 1) for v in (mean, rstd))
    grad = upcast(grad_out).reshape(grouped)
    normalised = (upcast(input).reshape(grouped) - mean) * rstd
    grad_normalised = grad if weight is None else grad * _per_group(weight, (N, C), group)
    grad_input = rstd * (
        grad_normalised
        - jnp.mean(grad_normalised, axis=(2, 3), keepdims=True)
        - normalised * jnp.mean(grad_normalised * normalised, axis=(2, 3), keepdims=True)
    )
    return (
        grad_input.reshape(input.shape) if output_mask[0] else None,
        jnp.sum(grad * normalised, axis=(0, 3)).reshape(C) if output_mask[1] else None,
        jnp.sum(grad, axis=(0, 3)).reshape(C) if output_mask[2] else None,
    )


# --- batch norm -----------------------------------------------------------------------------------


def _per_channel(values, ndim: int):
    """(C,) in opmath, broadcastable along axis 1 of an `ndim`-dimensional input."""
    return upcast(values).reshape(-1, *[1] * (ndim - 2))


def _all_but_channels(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


def _updated_statistics(running_mean, running_var, mean, var, count, momentum):
    """Those running statistics that are kept, after this batch of `count` elements a channel.

    The variance is made unbiased; over a single element it is NaN or infinite, as on CPU.
    """
    count = jnp.asarray(count).astype(mean.dtype)
    momentum = jnp.asarray(momentum).astype(mean.dtype)
    return [
        momentum * batch + (1 - momentum) * upcast(running)
        for running, batch in ((running_mean, mean), (running_var, var * count / (count - 1)))
        if running is not None
    ]


def _normalise(input_, mean_C, invstd_C, weight, bias):
    ndim = input_.ndim
    scale = invstd_C if weight is None else invstd_C * upcast(weight)
    centred = upcast(input_) - _per_channel(mean_C, ndim)
    return _affine(
        centred * _per_channel(scale, ndim),
        None,
        None if bias is None else _per_channel(bias, ndim),
    )


def _batch_statistics(input_):
    """Mean and biased variance of each channel, and the number of elements behind them."""
    mean, _, var = _moments(upcast(input_), _all_but_channels(input_.ndim))
    return mean.reshape(-1), var.reshape(-1), math.prod(input_.shape) // max(input_.shape[1], 1)


def _train(input_, weight, bias, running_mean, running_var, momentum, eps):
    """Result, mean, invstd, and the new running statistics."""
    mean, var, count = _batch_statistics(input_)
    invstd = lax.rsqrt(var + eps)
    return (
        _normalise(input_, mean, invstd, weight, bias),
        mean,
        invstd,
        *_updated_statistics(running_mean, running_var, mean, var, count, momentum),
    )


def _infer(input_, weight, bias, running_mean, running_var, eps):
    """Result, and the statistics it was made with."""
    mean, invstd = upcast(running_mean), lax.rsqrt(upcast(running_var) + eps)
    return _normalise(input_, mean, invstd, weight, bias), mean, invstd


def _no_reserve():
    """cuDNN's reserved space, which no other device has."""
    return jnp.zeros(0, jnp.uint8)


@register_lowering(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    dynamic="momentum",
    mutates=("running_mean", "running_var"),
)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    if training:
        return _train(input, weight, bias, running_mean, running_var, momentum, eps)
    result = _infer(input, weight, bias, running_mean, running_var, eps)
    return (*result, running_mean, running_var)


@register_lowering("aten::_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(input, weight, bias, training, momentum, eps):
    return _train(input, weight, bias, None, None, momentum, eps)[:3]


@register_lowering("aten::_native_batch_norm_legit_functional", dynamic="momentum")
def native_batch_norm_functional(
    input, weight, bias, running_mean, running_var, training, momentum, eps
):
    return native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )


@register_lowering("aten::_native_batch_norm_legit_no_training")
def native_batch_norm_no_training(input, weight, bias, running_mean, running_var, momentum, eps):
    return _infer(input, weight, bias, running_mean, running_var, eps)


@register_lowering(
    "aten::_batch_norm_with_update",
    dynamic="momentum",
    mutates=("running_mean", "running_var"),
)
def batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps):
    result = _train(input, weight, bias, running_mean, running_var, momentum, eps)
    return (*result[:3], _no_reserve(), *result[3:])


@register_lowering("aten::_batch_norm_with_update_functional", dynamic="momentum")
def batch_norm_with_update_functional(
    input, weight, bias, running_mean, running_var, momentum, eps
):
    return batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps)


@register_lowering("aten::_batch_norm_no_update")
def batch_norm_no_update(input, weight, bias, running_mean, running_var, momentum, eps):
    if running_mean is None or running_var is None:
        result = native_batch_norm_no_stats(input, weight, bias, True, momentum, eps)
    else:
        result = _infer(input, weight, bias, running_mean, running_var, eps)
    return (*result, _no_reserve())


@register_lowering("aten::native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out,
    input,
    weight,
    running_mean,
    running_var,
    save_mean,
    save_invstd,
    train,
    eps,
    output_mask,
):
    ndim, axes = input.ndim, _all_but_channels(input.ndim)
    if train:
        mean, invstd = upcast(save_mean), upcast(save_invstd)
    else:
        mean, invstd = upcast(running_mean), lax.rsqrt(upcast(running_var) + eps)
    grad = upcast(grad_out)
    normalised = (upcast(input) - _per_channel(mean, ndim)) * _per_channel(invstd, ndim)
    scale = invstd if weight is None else invstd * upcast(weight)
    grad_bias = jnp.sum(grad, axis=axes)
    grad_weight = jnp.sum(grad * normalised, axis=axes)
    centred_grad = grad
    if train:
        count = max(grad.size // max(grad.shape[1], 1), 1)
        centred_grad = (
            grad
            - _per_channel(grad_bias / count, ndim)
            - normalised * _per_channel(grad_weight / count, ndim)
        )
    return (
        centred_grad * _per_channel(scale, ndim) if output_mask[0] else None,
        grad_weight if output_mask[1] else None,
        grad_bias if output_mask[2] else None,
    )


@register_lowering("aten::batch_norm_backward")
def batch_norm_backward(
    grad_out,
    input,
    weight,
    running_mean,
    running_var,
    save_mean,
    save_var,
    update,
    eps,
    output_mask,
    reserve,
):
    """The backward of ``_batch_norm_with_update``, whose `save_var` is the invstd."""
    return native_batch_norm_backward(
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
    )


@register_lowering(
    "aten::batch_norm_update_stats",
    dynamic="momentum",
    meta="jax",
    mutates=("running_mean", "running_var"),
)
def batch_norm_update_stats(input, running_mean, running_var, momentum):
    mean, var, count = _batch_statistics(input)
    return (
        mean,
        var,
        *_updated_statistics(running_mean, running_var, mean, var, count, momentum),
    )


# --- batch norm over several devices (nn.SyncBatchNorm) -------------------------------------------


@register_lowering("aten::batch_norm_stats", meta="jax")
def batch_norm_stats(input, eps):
    mean, var, _ = _batch_statistics(input)
    return mean, lax.rsqrt(var + eps)


@register_lowering("aten::batch_norm_elemt", meta="jax")
def batch_norm_elemt(input, weight, bias, mean, invstd, eps):
    return _normalise(input, mean, invstd, weight, bias).astype(input.dtype)


def _gather(mean, invstd, running_mean, running_var, momentum, eps, counts):
    """Join the statistics of all devices, (devices, C) with `counts` elements each."""
    mean, invstd = upcast(mean), upcast(invstd)
    counts = counts.astype(mean.dtype).reshape(-1, 1)
    total = jnp.sum(counts)
    joint = jnp.sum(mean * counts, axis=0) / total
    var = 1 / jnp.square(invstd) - eps
    squares = jnp.sum((var + jnp.square(mean - joint)) * counts, axis=0)
    return (
        joint,
        lax.rsqrt(squares / total + eps),
        *_updated_statistics(running_mean, running_var, joint, squares / total, total, momentum),
    )


@register_lowering(
    "aten::batch_norm_gather_stats_with_counts",
    dynamic="momentum",
    meta="jax",
    mutates=("running_mean", "running_var"),
)
def batch_norm_gather_stats_with_counts(
    input, mean, invstd, running_mean, running_var, momentum, eps, counts
):
    return _gather(mean, invstd, running_mean, running_var, momentum, eps, counts)


@register_lowering(
    "aten::batch_norm_gather_stats",
    dynamic="momentum",
    meta="jax",
    mutates=("running_mean", "running_var"),
)
def batch_norm_gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, count):
    counts = jnp.full(mean.shape[0], count)
    return _gather(mean, invstd, running_mean, running_var, momentum, eps, counts)


@register_lowering("aten::batch_norm_backward_reduce", meta="jax")
def batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    axes = _all_but_channels(input.ndim)
    grad = upcast(grad_out)
    centred = upcast(input) - _per_channel(mean, input.ndim)
    sum_dy = jnp.sum(grad, axis=axes)
    sum_dy_xmu = jnp.sum(grad * centred, axis=axes)
    parameter_dtype = sum_dy.dtype if weight is None else weight.dtype
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        (sum_dy_xmu * upcast(invstd)).astype(parameter_dtype) if weight_g else None,
        sum_dy.astype(parameter_dtype) if bias_g else None,
    )


@register_lowering("aten::batch_norm_backward_elemt", meta="jax")
def batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    ndim = input.ndim
    mean, invstd = upcast(mean), upcast(invstd)
    total = jnp.sum(count).astype(mean.dtype)
    scale = invstd if weight is None else invstd * upcast(weight)
    slope = jnp.square(invstd) * upcast(sum_dy_xmu) / total
    centred = upcast(input) - _per_channel(mean, ndim)
    result = (
        upcast(grad_out)
        - _per_channel(upcast(sum_dy) / total, ndim)
        - centred * _per_channel(slope, ndim)
    ) * _per_channel(scale, ndim)
    return result.astype(input.dtype)


# --- weight norm, renorm --------------------------------------------------------------------------


def _all_but(dim: int, ndim: int) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if d != dim % max(ndim, 1))


@register_lowering("aten::_weight_norm_interface")
def weight_norm_interface(v, g, dim=0):
    """``v * g / norm``, where the norm of `v` is taken over all dimensions but `dim`."""
    x = upcast(v)
    norms = jnp.sqrt(jnp.sum(jnp.square(x), axis=_all_but(dim, x.ndim), keepdims=True))
    return x * (upcast(g) / norms), norms


@register_lowering("aten::_weight_norm_interface_backward")
def weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim):
    grad, v, g, norms = (upcast(x) for x in (grad_w, saved_v, saved_g, saved_norms))
    grad_dot_v = jnp.sum(grad * v, axis=_all_but(dim, v.ndim), keepdims=True)
    grad_v = g / norms * (grad - v * (grad_dot_v / jnp.square(norms)))
    return grad_v, grad_dot_v / norms


def limit_norm(norm, maxnorm):
    """The factor that brings a vector of this norm down to `maxnorm` where it is above."""
    return jnp.where(norm > maxnorm, maxnorm / (norm + 1e-7), jnp.ones_like(norm))


def vector_norm(x, p: float, axes):
    """The p-norm of real or complex `x` over `axes`, kept as size 1."""
    magnitude = jnp.abs(x)
    if p == math.inf:
        return jnp.max(magnitude, axis=axes, keepdims=True, initial=0)
    if p == 0:
        return jnp.sum((magnitude != 0).astype(magnitude.dtype), axis=axes, keepdims=True)
    if p == 1:
        return jnp.sum(magnitude, axis=axes, keepdims=True)
    if p == 2:
        return jnp.sqrt(jnp.sum(jnp.square(magnitude), axis=axes, keepdims=True))
    return jnp.sum(magnitude**p, axis=axes, keepdims=True) ** (1 / p)
