"""Maximum and average pooling over windows, with their backward.

The maximum of a window is found one axis at a time, innermost first: a value and its flat position
travel together, which costs the sum of the kernel sizes rather than their product. As in PyTorch the
first maximum in row-major order wins, and of several NaN the last.

Legend: the pooled (spatial) axes are the last `ndim` axes; whatever comes before is batch and
channels. "Position" is PyTorch's flat index into the input's spatial axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering
from torchtpu.lowerings.resample import repeat, take

# Up to this many window elements, work is unrolled over them; beyond, gather or scatter is used.
_UNROLLED = 64


@dataclass(frozen=True)
class _Axis:
    """The windows along one axis: `outputs` windows of `kernel` elements over `length` inputs."""

    length: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    outputs: int

    @property
    def padding_high(self) -> int:
        """Padding behind the input, so that the last window is complete; negative if it ends early."""
        reach = (self.outputs - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return reach - self.length - self.padding

    @property
    def tiles(self) -> bool:
        """Whether the windows cover the input exactly once."""
        return (
            self.stride == self.kernel
            and self.padding == 0
            and self.dilation == 1
            and self.outputs * self.kernel == self.length
        )

    def inputs(self) -> np.ndarray:
        """(outputs, kernel): the input index under each window element; may lie outside."""
        starts = np.arange(self.outputs) * self.stride - self.padding
        return starts[:, None] + np.arange(self.kernel)[None, :] * self.dilation


def _output_length(length, kernel, stride, padding, dilation, ceil_mode) -> int:
    span = length + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    # The last window must start inside the input or its left padding.
    if ceil_mode and (count - 1) * stride >= length + padding:
        count -= 1
    return count


def _axes(shape, ndim, kernel_size, stride, padding, dilation, ceil_mode) -> list[_Axis]:
    def expand(values):
        values = [values] if isinstance(values, int) else list(values)
        return values * ndim if len(values) == 1 else values

    kernel_size = expand(kernel_size)
    stride = expand(stride) if stride else kernel_size
    return [
        _Axis(n, k, s, p, d, _output_length(n, k, s, p, d, ceil_mode))
        for n, k, s, p, d in zip(
            shape[-ndim:], kernel_size, stride, expand(padding), expand(dilation), strict=True
        )
    ]


def _position_dtype(spatial):
    return jnp.int32 if math.prod(spatial) < 2**31 else jnp.int64


def _lowest(dtype):
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(-np.inf, dtype)
    return np.array(jnp.iinfo(dtype).min, dtype)


def _along(vector, axis: int, ndim: int):
    """A vector as an array that broadcasts along `axis` of `ndim` axes."""
    shape = [1] * ndim
    shape[axis] = -1
    return jnp.asarray(vector).reshape(shape)


# --- maximum --------------------------------------------------------------------------------------


def _replaces(value, best):
    """Whether a later `value` takes the place of the `best` so far."""
    newer = value > best
    return newer | jnp.isnan(value) if jnp.issubdtype(value.dtype, jnp.floating) else newer


def _max_along(value, position, axis: int, inputs: np.ndarray):
    """The best (value, position) in each row of `inputs` (outputs, kernel), indices along `axis`.

    Indices outside the input do not count.
    """
    length, kernel = value.shape[axis], inputs.shape[1]
    inside = (inputs >= 0) & (inputs < length)
    if kernel > _UNROLLED:
        return _max_along_gathered(value, position, axis, inputs, inside)
    # With the lowest value around it, an element outside never wins.
    low, high = max(0, -inputs.min(initial=0)), max(0, inputs.max(initial=0) - (length - 1))
    if low or high:
        widths = [(int(low), int(high), 0) if d == axis else (0, 0, 0) for d in range(value.ndim)]
        value = lax.pad(value, _lowest(value.dtype), widths)
        position = lax.pad(position, np.zeros((), position.dtype), widths)
    best = take(value, inputs[:, 0] + low, axis)
    best_position = take(position, inputs[:, 0] + low, axis)
    found = inside[:, 0]
    for k in range(1, kernel):
        candidate = take(value, inputs[:, k] + low, axis)
        candidate_position = take(position, inputs[:, k] + low, axis)
        replaces = _replaces(candidate, best)
        if not found.all():  # the first element inside starts the comparison
            replaces = replaces | _along(~found, axis, value.ndim)
        best = jnp.where(replaces, candidate, best)
        best_position = jnp.where(replaces, candidate_position, best_position)
        found = found | inside[:, k]
    return best, best_position


def _max_along_gathered(value, position, axis, inputs, inside):
    """As `_max_along`, for long windows: all of them side by side, then an argmax."""
    flat = np.clip(inputs, 0, value.shape[axis] - 1).reshape(-1)
    shape = (*value.shape[:axis], *inputs.shape, *value.shape[axis + 1 :])
    windows = take(value, flat, axis).reshape(shape)
    mask = jnp.asarray(inside).reshape(inside.shape + (1,) * (value.ndim - axis - 1))
    windows = jnp.where(mask, windows, _lowest(value.dtype))
    # Windows of nothing but the lowest value: the first element inside.
    winner = jnp.argmax(windows, axis=axis + 1, keepdims=True)
    first = _along(inside.argmax(axis=1), axis, value.ndim)
    winner = jnp.maximum(winner, jnp.expand_dims(first, axis + 1))
    if jnp.issubdtype(value.dtype, jnp.floating):
        is_nan = jnp.flip(jnp.isnan(windows), axis + 1)
        last_nan = inputs.shape[1] - 1 - jnp.argmax(is_nan, axis=axis + 1, keepdims=True)
        winner = jnp.where(jnp.any(is_nan, axis=axis + 1, keepdims=True), last_nan, winner)
    best = jnp.take_along_axis(windows, winner, axis=axis + 1)
    positions = take(position, flat, axis).reshape(shape)
    best_position = jnp.take_along_axis(positions, winner, axis=axis + 1)
    return jnp.squeeze(best, axis + 1), jnp.squeeze(best_position, axis + 1)


def max_over_windows(x, windows: list[np.ndarray]):
    """Maxima and their positions; `windows` gives the input indices of each axis' windows."""
    ndim, spatial = len(windows), x.shape[x.ndim - len(windows) :]
    dtype = _position_dtype(spatial)
    position = jnp.arange(math.prod(spatial), dtype=dtype)
    position = jnp.broadcast_to(position.reshape(spatial), x.shape)
    value = x
    for offset in reversed(range(ndim)):
        axis = x.ndim - ndim + offset
        value, position = _max_along(value, position, axis, windows[offset])
    return value, position


def _max_pool(ndim, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    axes = _axes(self.shape, ndim, kernel_size, stride, padding, dilation, ceil_mode)
    return max_over_windows(self, [axis.inputs() for axis in axes])


def scatter_to_positions(grad_output, indices, ndim, spatial):
    """Sum of the gradients that go to each position."""
    lead = grad_output.shape[: grad_output.ndim - ndim]
    rows, positions = math.prod(lead), math.prod(spatial)
    result = jnp.zeros((rows, positions), grad_output.dtype)
    row = jnp.arange(rows)[:, None]
    result = result.at[row, indices.reshape(rows, -1)].add(grad_output.reshape(rows, -1))
    return result.reshape(*lead, *spatial)


def gradient_of_tiles(grad, indices, kernels: list[int]):
    """As `scatter_to_positions`, for windows that cover the input exactly once."""
    ndim = len(kernels)
    spatial = [n * k for n, k in zip(grad.shape[-ndim:], kernels, strict=True)]
    dtype = _position_dtype(spatial)
    own = jnp.arange(math.prod(spatial), dtype=dtype).reshape(spatial)
    for offset, kernel in enumerate(kernels):
        axis = grad.ndim - ndim + offset
        grad, indices = repeat(grad, kernel, axis), repeat(indices, kernel, axis)
    return jnp.where(indices.astype(dtype) == own, grad, 0)


def _max_pool_gradient(grad_output, indices, axes: list[_Axis]):
    """The gradient flows to each window's maximum. Scatters are slow on TPU: avoid them."""
    ndim, spatial = len(axes), [axis.length for axis in axes]
    grad = upcast(grad_output)
    if all(axis.tiles for axis in axes):
        return gradient_of_tiles(grad, indices, [axis.kernel for axis in axes])
    if math.prod(axis.kernel for axis in axes) > _UNROLLED or 0 in grad.shape:
        return scatter_to_positions(grad, indices, ndim, spatial)
    dtype = _position_dtype(spatial)
    indices = indices.astype(dtype)
    result = jnp.zeros((*grad.shape[: grad.ndim - ndim], *spatial), grad.dtype)
    zero = jnp.zeros((), grad.dtype)
    for element in np.ndindex(*(axis.kernel for axis in axes)):
        # Where this element of each window lies, and the gradients of the windows that chose it.
        at = jnp.zeros((), dtype)
        for offset, (axis, k) in enumerate(zip(axes, element, strict=True)):
            at = at * axis.length + _along(axis.inputs()[:, k].astype(dtype), offset, ndim)
        padding = [(0, 0, 0)] * (grad.ndim - ndim)
        inside = np.ones((), bool)
        for offset, (axis, k) in enumerate(zip(axes, element, strict=True)):
            low = k * axis.dilation - axis.padding
            high = axis.length - low - (axis.outputs - 1) * axis.stride - 1
            padding.append((low, high, axis.stride - 1))
            column = axis.inputs()[:, k]
            shape = [-1 if d == offset else 1 for d in range(ndim)]
            inside = inside & ((column >= 0) & (column < axis.length)).reshape(shape)
        chosen = (indices == at) & inside
        result = result + lax.pad(jnp.where(chosen, grad, zero), zero, padding)
    return result


def _max_pool_backward(
    ndim, grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
):
    axes = _axes(self.shape, ndim, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool_gradient(grad_output, indices, axes)


# --- average --------------------------------------------------------------------------------------


def _divisor(axes: list[_Axis], count_include_pad: bool, divisor_override):
    """What each window's sum is divided by: a number, or an array over the outputs."""
    if divisor_override:
        return divisor_override
    divisor = np.ones(())
    for offset, axis in enumerate(axes):
        starts = np.arange(axis.outputs) * axis.stride - axis.padding
        # Padding counts, but not what ceil_mode adds behind it.
        ends = np.minimum(starts + axis.kernel, axis.length + axis.padding)
        if not count_include_pad:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, axis.length)
        shape = [-1 if d == offset else 1 for d in range(len(axes))]
        divisor = divisor * (ends - starts).reshape(shape)
    return divisor


def _window_sum(x, axes: list[_Axis]):
    lead = (1,) * (x.ndim - len(axes))
    # What a last window does not reach is cut off before, since padding cannot be negative.
    for offset, axis in enumerate(axes):
        if axis.padding_high < 0:
            at = len(lead) + offset
            x = lax.slice_in_dim(x, 0, axis.length + axis.padding_high, axis=at)
    return lax.reduce_window(
        x,
        np.zeros((), x.dtype)[()],
        lax.add,
        window_dimensions=(*lead, *(axis.kernel for axis in axes)),
        window_strides=(*lead, *(axis.stride for axis in axes)),
        padding=((0, 0),) * len(lead)
        + tuple((axis.padding, max(axis.padding_high, 0)) for axis in axes),
    )


def _avg_pool(
    ndim,
    self,
    kernel_size,
    stride=(),
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    axes = _axes(self.shape, ndim, kernel_size, stride, padding, 1, ceil_mode)
    total = _window_sum(upcast(self), axes)
    divisor = jnp.asarray(_divisor(axes, count_include_pad, divisor_override)).astype(total.dtype)
    if jnp.issubdtype(total.dtype, jnp.integer):
        return lax.div(total, jnp.broadcast_to(divisor, total.shape))
    return total / divisor


def _avg_pool_backward(
    ndim,
    grad_output,
    self,
    kernel_size,
    stride,
    padding,
    ceil_mode,
    count_include_pad,
    divisor_override,
):
    axes = _axes(self.shape, ndim, kernel_size, stride, padding, 1, ceil_mode)
    grad = upcast(grad_output)
    divisor = jnp.asarray(_divisor(axes, count_include_pad, divisor_override)).astype(grad.dtype)
    like = jax.ShapeDtypeStruct(self.shape, grad.dtype)
    return jax.linear_transpose(lambda x: _window_sum(x, axes), like)(grad / divisor)[0]


for _ndim in (2, 3):
    register_lowering(f"aten::max_pool{_ndim}d_with_indices")(partial(_max_pool, _ndim))
    register_lowering(f"aten::max_pool{_ndim}d_with_indices_backward")(
        partial(_max_pool_backward, _ndim)
    )
    register_lowering(f"aten::avg_pool{_ndim}d")(partial(_avg_pool, _ndim))
    register_lowering(f"aten::avg_pool{_ndim}d_backward")(partial(_avg_pool_backward, _ndim))


# --- unpooling ------------------------------------------------------------------------------------


def _max_unpool(ndim, self, indices, output_size, stride=None, padding=None):
    """Each value goes to its position, all else is 0."""
    lead = self.shape[: self.ndim - ndim]
    rows, spatial = math.prod(lead), tuple(output_size)
    result = jnp.zeros((rows, math.prod(spatial)), self.dtype)
    row = jnp.arange(rows)[:, None]
    result = result.at[row, indices.reshape(rows, -1)].set(self.reshape(rows, -1), mode="drop")
    return result.reshape(*lead, *spatial)


register_lowering("aten::max_unpool2d")(partial(_max_unpool, 2))
register_lowering("aten::max_unpool3d")(partial(_max_unpool, 3))
