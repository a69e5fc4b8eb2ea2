"""Sampling on a grid, and sliding blocks (``unfold`` and ``fold`` of nn.functional).

Legend: N batch, C channels, P points of the grid (all its spatial axes flattened), L blocks.
"""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering
from torchtpu.lowerings.resample import cubic_weights

# --- grid_sample ----------------------------------------------------------------------------------

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2  # interpolation_mode
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2  # padding_mode


def _from_unit(place, length: int, align_corners: bool):
    """-1 ... 1 as a place among `length` elements."""
    if align_corners:
        return (place + 1) / 2 * (length - 1)
    return ((place + 1) * length - 1) / 2


def _clip(place, length: int):
    """Clipped to the elements; at and beyond the ends the gradient is 0, as in PyTorch."""
    place = jnp.where(place > 0, place, 0)  # NaN becomes 0
    return jnp.where(place < length - 1, place, jnp.asarray(length - 1, place.dtype))


def _reflect(place, length: int, align_corners: bool):
    """Reflected at the centres (align_corners) or the outer edges of the end elements."""
    low, span = (0.0, length - 1) if align_corners else (-0.5, length)
    if span == 0:
        return jnp.zeros_like(place)
    distance = jnp.abs(place - low)
    turns = jnp.floor(distance / span)
    rest = distance - turns * span
    return jnp.where(turns % 2 == 0, rest, span - rest) + low


def _padded(place, length: int, padding_mode: int, align_corners: bool):
    if padding_mode == _REFLECTION:
        place = _reflect(place, length, align_corners)
    return place if padding_mode == _ZEROS else _clip(place, length)


def _fetch(input_NCX, spatial, index_NP):
    """Values (N, C, P) at whole places, one index array for each axis; 0 outside."""
    inside = jnp.ones(index_NP[0].shape, jnp.bool_)
    flat = jnp.zeros(index_NP[0].shape, jnp.int32 if math.prod(spatial) < 2**31 else jnp.int64)
    for index, length in zip(index_NP, spatial, strict=True):
        inside = inside & (index >= 0) & (index <= length - 1)
        index = jnp.where(jnp.isnan(index), 0, jnp.clip(index, 0, length - 1))
        flat = flat * length + index.astype(flat.dtype)
    values = jnp.take_along_axis(input_NCX, flat[:, None, :], axis=2, mode="clip")
    return jnp.where(inside[:, None, :], values, 0)


def _sample(input_, grid, interpolation_mode, padding_mode, align_corners):
    """The input (N, C, *spatial) at the places that the grid (N, *points, ndim) names."""
    ndim = grid.shape[-1]
    spatial = input_.shape[2:]
    points = grid.shape[1:-1]
    input_NCX = input_.reshape(*input_.shape[:2], -1)
    grid = grid.reshape(grid.shape[0], -1, ndim).astype(input_.dtype)
    # The grid's last axis is (x, y, z): the innermost spatial axis first.
    places = [
        _from_unit(grid[..., ndim - 1 - axis], length, align_corners)
        for axis, length in enumerate(spatial)
    ]
    if interpolation_mode == _CUBIC:
        result = _sample_cubic(input_NCX, spatial, places, padding_mode, align_corners)
        return result.reshape(*input_.shape[:2], *points)
    places = [
        _padded(place, length, padding_mode, align_corners)
        for place, length in zip(places, spatial, strict=True)
    ]
    if interpolation_mode == _NEAREST:
        # Rounding has no gradient.
        nearest = [lax.stop_gradient(jnp.round(place)) for place in places]
        return _fetch(input_NCX, spatial, nearest).reshape(*input_.shape[:2], *points)
    lows = [lax.stop_gradient(jnp.floor(place)) for place in places]
    result = 0
    for corner in itertools.product((0, 1), repeat=ndim):
        weight = 1
        for place, low, side in zip(places, lows, corner, strict=True):
            share = place - low
            weight = weight * (share if side else 1 - share)
        index = [low + side for low, side in zip(lows, corner, strict=True)]
        result = result + _fetch(input_NCX, spatial, index) * weight[:, None, :]
    return result.reshape(*input_.shape[:2], *points)


def _sample_cubic(input_NCX, spatial, places, padding_mode, align_corners):
    """In two dimensions: four rows of four taps; the taps of a row are fetched together."""
    batch, channels = input_NCX.shape[:2]
    lows = [lax.stop_gradient(jnp.floor(place)) for place in places]
    weights = [cubic_weights(place - low, jnp) for place, low in zip(places, lows, strict=True)]

    def taps(axis):
        """The four whole places along one axis, (N, 4, P)."""
        whole = lows[axis][:, None, :] + jnp.arange(-1, 3, dtype=lows[axis].dtype)[:, None]
        return lax.stop_gradient(
            jnp.round(_padded(whole, spatial[axis], padding_mode, align_corners))
        )

    rows, columns = taps(0), taps(1)
    column_weights = weights[1].swapaxes(1, 2)
    result = 0
    for row in range(4):
        index = (jnp.broadcast_to(rows[:, row : row + 1], columns.shape), columns)
        index = [i.reshape(batch, -1) for i in index]
        values = _fetch(input_NCX, spatial, index).reshape(batch, channels, 4, -1)
        along_row = jnp.sum(values * column_weights[:, None], axis=2)
        result = result + along_row * weights[0][..., row][:, None, :]
    return result


@register_lowering(
    "aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::_grid_sampler_2d_cpu_fallback"
)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    return _sample(upcast(input), grid, interpolation_mode, padding_mode, align_corners)


@register_lowering("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    def sample(input_, grid):
        return _sample(input_, grid, interpolation_mode, padding_mode, align_corners)

    _, vjp = jax.vjp(sample, upcast(input), upcast(grid))
    grad_input, grad_grid = vjp(upcast(grad_output))
    return grad_input if output_mask[0] else None, grad_grid if output_mask[1] else None


# --- im2col, col2im -------------------------------------------------------------------------------


def _blocks(x, kernel_size, dilation, padding, stride):
    """Sliding blocks of (N, C, H, W) as (N, C * kernel elements, L)."""
    x = jnp.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    counts = []
    for axis, (kernel, d, s) in enumerate(zip(kernel_size, dilation, stride, strict=True)):
        at = 2 + 2 * axis  # each spatial axis becomes (kernel, count)
        count = (x.shape[at] - d * (kernel - 1) - 1) // s + 1
        counts.append(count)
        slices = [
            lax.slice_in_dim(x, k * d, k * d + (count - 1) * s + 1, s, axis=at)
            for k in range(kernel)
        ]
        x = jnp.stack(slices, axis=at)
    batch, channels = x.shape[:2]
    x = x.transpose(0, 1, 2, 4, 3, 5)
    return x.reshape(batch, channels * math.prod(kernel_size), math.prod(counts))


def _pair(values) -> list[int]:
    values = list(values)
    return values * 2 if len(values) == 1 else values


@register_lowering("aten::im2col")
def im2col(self, kernel_size, dilation, padding, stride):
    batched = self if self.ndim == 4 else self[None]
    blocks = _blocks(batched, *map(_pair, (kernel_size, dilation, padding, stride)))
    return blocks if self.ndim == 4 else blocks[0]


@register_lowering("aten::col2im")
def col2im(self, output_size, kernel_size, dilation, padding, stride):
    """The transpose of `im2col`: overlapping blocks add up."""
    batched = upcast(self if self.ndim == 3 else self[None])
    arguments = tuple(map(_pair, (kernel_size, dilation, padding, stride)))
    channels = batched.shape[1] // math.prod(arguments[0])
    shape = (batched.shape[0], channels, *_pair(output_size))
    image = jax.linear_transpose(
        lambda x: _blocks(x, *arguments), jax.ShapeDtypeStruct(shape, batched.dtype)
    )(batched)[0]
    return image if self.ndim == 3 else image[0]
