"""Convolution and its backward, in one to three dimensions.

Everything is a ``conv_general_dilated`` on logical NCHW arrays; XLA chooses the layout.

Legend: N batch, C channels, spatial dimensions last; weight is (out, in / groups, spatial), or
(in, out / groups, spatial) when transposed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch._prims_common import suggest_memory_format

from torchtpu import dtypes
from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering


def _per_dimension(values, ndim: int) -> list[int]:
    """A list that may hold one number for all spatial dimensions, as one number for each."""
    values = list(values)
    return values * ndim if len(values) == 1 else values


def _convolve(
    input_,
    weight,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    result_dtype=None,
):
    """Convolution without bias."""
    ndim = weight.ndim - 2
    stride, padding, dilation = (_per_dimension(v, ndim) for v in (stride, padding, dilation))
    output_padding = _per_dimension(output_padding or [0], ndim)
    if transposed:
        # The gradient of a convolution: the input spread out by the stride, the kernel flipped,
        # its two channel axes swapped within each group.
        channels_in, channels_out = weight.shape[0] // groups, weight.shape[1]
        spatial = weight.shape[2:]
        weight = weight.reshape(groups, channels_in, channels_out, *spatial).swapaxes(1, 2)
        weight = weight.reshape(groups * channels_out, channels_in, *spatial)
        weight = lax.rev(weight, range(2, 2 + ndim))
        reach = [d * (k - 1) for d, k in zip(dilation, spatial, strict=True)]
        window_padding = [
            (r - p, r - p + extra)
            for r, p, extra in zip(reach, padding, output_padding, strict=True)
        ]
        window_strides, input_dilation = [1] * ndim, stride
    else:
        window_padding = [(p, p) for p in padding]
        window_strides, input_dilation = stride, [1] * ndim
    return lax.conv_general_dilated(
        input_,
        weight,
        window_strides=window_strides,
        padding=window_padding,
        lhs_dilation=input_dilation,
        rhs_dilation=dilation,
        feature_group_count=groups,
        preferred_element_type=result_dtype,
    )


def _memory_format(input, weight):
    """Results are channels-last if one of the operands is, as on CPU."""
    for tensor in (input, weight):
        memory_format = suggest_memory_format(tensor)
        if memory_format is not torch.contiguous_format:
            return memory_format
    return torch.contiguous_format


def _forward_meta(input, weight, *arguments, **named):
    result = torch.ops.aten.convolution.default(input, weight, *arguments, **named)
    return result.contiguous(memory_format=_memory_format(input, weight))


def _backward_meta(grad_output, input, weight, *_, output_mask, **__):
    memory_format = _memory_format(input, weight)
    bias = weight.new_empty(grad_output.shape[1])
    return tuple(
        torch.empty_like(
            like, memory_format=memory_format if like.ndim > 1 else torch.contiguous_format
        )
        if wanted
        else None
        for like, wanted in zip((input, weight, bias), output_mask, strict=True)
    )


@register_lowering("aten::convolution", matmul_precision=True, meta=_forward_meta)
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    if bias is None:
        return _convolve(input, weight, *arguments)
    result = _convolve(input, weight, *arguments, result_dtype=dtypes.opmath(input.dtype))
    return result + upcast(bias).reshape(-1, *[1] * (weight.ndim - 2))


# Reached only from ``_convolution``, which old TorchScript files call directly.
@register_lowering(
    "aten::convolution_overrideable",
    matmul_precision=True,
    meta=_forward_meta,
)
def convolution_overrideable(
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
):
    return convolution(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def _backward(grad_output, input_, weight, convolution_arguments, output_mask):
    """Gradients of input, weight and bias, each None where `output_mask` is False."""
    _, vjp = jax.vjp(lambda x, w: _convolve(x, w, *convolution_arguments), input_, weight)
    grad_input, grad_weight = vjp(grad_output)
    all_but_channels = (0, *range(2, grad_output.ndim))
    return (
        grad_input if output_mask[0] else None,
        grad_weight if output_mask[1] else None,
        jnp.sum(upcast(grad_output), axis=all_but_channels) if output_mask[2] else None,
    )


@register_lowering("aten::convolution_backward", matmul_precision=True, meta=_backward_meta)
def convolution_backward(
    grad_output,
    input,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    return _backward(grad_output, input, weight, arguments, output_mask)


@register_lowering(
    "aten::convolution_backward_overrideable", matmul_precision=True, meta=_backward_meta
)
def convolution_backward_overrideable(
    grad_output,
    input,
    weight,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    return _backward(grad_output, input, weight, arguments, output_mask)
