"""Resizing along one axis: upsampling of all kinds, and its backward.

Every method is separable. Along an axis, output element `o` is a weighted sum of a few input elements,
its *taps*, which are known when the program is built. The backward is the same with the taps
transposed, so neither direction needs a scatter.

The positions follow PyTorch: computed in float32 (float64 for float64 inputs) on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering


@dataclass(frozen=True)
class Taps:
    """indices, weights: (outputs, taps) numpy arrays. Weight 0 marks a tap that is not there.

    length: the number of input elements.
    """

    indices: np.ndarray
    weights: np.ndarray
    length: int

    def transposed(self) -> Taps:
        """The taps of the gradient: for every input element the outputs that it went to."""
        outputs, _ = self.indices.shape
        present = self.weights != 0
        sources = self.indices[present]
        targets = np.broadcast_to(np.arange(outputs)[:, None], present.shape)[present]
        order = np.argsort(sources, kind="stable")
        sources, targets, weights = sources[order], targets[order], self.weights[present][order]
        counts = np.bincount(sources, minlength=self.length)
        column = np.arange(sources.size) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = np.zeros((self.length, max(1, counts.max(initial=0))), np.int64)
        transposed_weights = np.zeros(indices.shape, self.weights.dtype)
        indices[sources, column] = targets
        transposed_weights[sources, column] = weights
        return Taps(indices, transposed_weights, outputs)

    def apply(self, x, axis: int):
        """The weighted sums along `axis` of `x`."""
        total = None
        for tap in range(self.indices.shape[1]):
            weights = self.weights[:, tap]
            term = take(x, self.indices[:, tap], axis)
            if not (weights == 1).all():
                shape = [-1 if d == axis else 1 for d in range(x.ndim)]
                factor = jnp.asarray(weights.reshape(shape), x.dtype)
                term = term * factor
                if not weights.all():  # infinity times a tap that is not there must be 0
                    term = jnp.where(factor == 0, jnp.zeros((), x.dtype), term)
            total = term if total is None else total + term
        return total


def take(x, indices: np.ndarray, axis: int):
    """``x[indices]`` along one axis: a slice or a repetition where that is enough."""
    length = x.shape[axis]
    if indices.size == length and (indices == np.arange(length)).all():
        return x
    if indices.size == 0:
        return lax.slice_in_dim(x, 0, 0, axis=axis)
    steps = np.unique(np.diff(indices))
    if steps.size <= 1 and (steps > 0).all():
        step = int(steps[0]) if steps.size else 1
        return lax.slice_in_dim(x, int(indices[0]), int(indices[-1]) + 1, step, axis)
    count = indices.size // max(length, 1)
    if indices.size == count * length and (indices == np.arange(length).repeat(count)).all():
        return repeat(x, count, axis)
    return jnp.take(x, jnp.asarray(indices, jnp.int32), axis=axis, mode="clip")


def repeat(x, count: int, axis: int):
    """Each element along `axis` `count` times in a row."""
    shape = list(x.shape)
    x = jnp.broadcast_to(
        jnp.expand_dims(x, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :])
    )
    return x.reshape(*shape[:axis], shape[axis] * count, *shape[axis + 1 :])


# --- the taps of each method ----------------------------------------------------------------------


def _scale(length, outputs, align_corners, scale, dtype):
    """Input elements for each output element."""
    if align_corners:
        return dtype((length - 1) / (outputs - 1)) if outputs > 1 else dtype(0)
    if scale is not None and scale > 0:
        return dtype(1.0 / scale)
    return dtype(length) / dtype(outputs)


def _nearest(length, outputs, _align_corners, scale, dtype, offset=0.0) -> Taps:
    step = _scale(length, outputs, False, scale, dtype)
    places = np.floor((np.arange(outputs).astype(dtype) + dtype(offset)) * step)
    indices = np.minimum(places.astype(np.int64), length - 1)
    return Taps(indices[:, None], np.ones((outputs, 1), dtype), length)


def _places(length, outputs, align_corners, scale, dtype, cubic=False):
    """Where each output element lies among the input elements, as real numbers."""
    step = _scale(length, outputs, align_corners, scale, dtype)
    index = np.arange(outputs).astype(dtype)
    if align_corners:
        return index * step
    places = step * (index + dtype(0.5)) - dtype(0.5)
    return places if cubic else np.maximum(places, 0)


def _linear(length, outputs, align_corners, scale, dtype) -> Taps:
    if length == outputs:
        return Taps(np.arange(length)[:, None], np.ones((length, 1), dtype), length)
    places = _places(length, outputs, align_corners, scale, dtype)
    low = np.minimum(places.astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    share = np.clip(places - low.astype(dtype), 0, 1)
    return Taps(np.stack([low, high], 1), np.stack([1 - share, share], 1).astype(dtype), length)


def cubic_weights(share, module=np, a=-0.75):
    """Weights of the four neighbours of a place that lies `share` behind the second of them."""

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return module.stack([far(share + 1), near(share), near(1 - share), far(2 - share)], -1)


def _cubic(length, outputs, align_corners, scale, dtype) -> Taps:
    places = _places(length, outputs, align_corners, scale, dtype, cubic=True)
    low = np.floor(places)
    indices = np.clip(low[:, None].astype(np.int64) + np.arange(-1, 3), 0, length - 1)
    return Taps(indices, cubic_weights(places - low).astype(dtype), length)


def _triangle(x):
    return np.maximum(1 - np.abs(x), 0)


def _keys(x, a=-0.5):
    """Keys' cubic kernel, with the parameter that antialiased resizing uses."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialiased(
    length, outputs, align_corners, scale, dtype, *, kernel: Callable, support: int
) -> Taps:
    """A kernel as wide as the step between output elements, cut at the borders, sum 1."""
    step = _scale(length, outputs, align_corners, scale, dtype)
    stretch = max(float(step), 1.0)
    radius = support * stretch
    centres = float(step) * (np.arange(outputs) + 0.5)
    first = np.maximum((centres - radius + 0.5).astype(np.int64), 0)
    end = np.minimum((centres + radius + 0.5).astype(np.int64), length)
    size = max(1, int((end - first).max(initial=1)))
    indices = first[:, None] + np.arange(size)
    inside = indices < end[:, None]
    weights = np.where(inside, kernel((indices + 0.5 - centres[:, None]) / stretch), 0)
    weights = weights / weights.sum(1, keepdims=True)
    return Taps(np.clip(indices, 0, length - 1), weights.astype(dtype), length)


# --- the operators --------------------------------------------------------------------------------


def _dtype(x):
    return np.float64 if x.dtype == jnp.float64 else np.float32


def _resize(method: Callable, ndim: int, x, output_size, align_corners, scales):
    result = upcast(x)
    is_integer = jnp.issubdtype(x.dtype, jnp.integer)
    if is_integer and method not in _PICKING:
        result = x.astype(jnp.float32)
    for offset, (outputs, scale) in enumerate(zip(output_size, scales, strict=True)):
        axis = x.ndim - ndim + offset
        taps = method(x.shape[axis], outputs, align_corners, scale, _dtype(x))
        result = taps.apply(result, axis)
    if is_integer and method not in _PICKING:
        limits = jnp.iinfo(x.dtype)
        result = jnp.clip(jnp.round(result), limits.min, limits.max).astype(x.dtype)
    return result


def _resize_backward(
    method: Callable, ndim: int, grad, output_size, input_size, align_corners, scales
):
    result = upcast(grad)
    for offset, (outputs, scale) in enumerate(zip(output_size, scales, strict=True)):
        axis = grad.ndim - ndim + offset
        taps = method(input_size[axis], outputs, align_corners, scale, _dtype(grad))
        result = taps.transposed().apply(result, axis)
    return result


_nearest_exact = partial(_nearest, offset=0.5)
_PICKING = (_nearest, _nearest_exact)  # methods that copy elements and compute nothing

# schema name (and, for its backward, ..._backward) -> method, spatial dimensions
_METHODS = {
    "upsample_nearest1d": (_nearest, 1),
    "upsample_nearest2d": (_nearest, 2),
    "upsample_nearest3d": (_nearest, 3),
    "_upsample_nearest_exact1d": (_nearest_exact, 1),
    "_upsample_nearest_exact2d": (_nearest_exact, 2),
    "_upsample_nearest_exact3d": (_nearest_exact, 3),
    "upsample_linear1d": (_linear, 1),
    "upsample_bilinear2d": (_linear, 2),
    "upsample_trilinear3d": (_linear, 3),
    "upsample_bicubic2d": (_cubic, 2),
    "_upsample_bilinear2d_aa": (partial(_antialiased, kernel=_triangle, support=1), 2),
    "_upsample_bicubic2d_aa": (partial(_antialiased, kernel=_keys, support=2), 2),
    "_upsample_lanczos2d_aa": (partial(_antialiased, kernel=_lanczos, support=3), 2),
}


def _scales(options: dict) -> list:
    """The scale of each axis: ``scales`` in 1-D, else ``scales_d``, ``scales_h``, ``scales_w``."""
    return [options[n] for n in ("scales", "scales_d", "scales_h", "scales_w") if n in options]


def _register(name: str, method: Callable, ndim: int) -> None:
    @register_lowering(f"aten::{name}", optional=True)
    def forward(self, output_size, align_corners=False, **scales):
        return _resize(method, ndim, self, output_size, align_corners, _scales(scales))

    @register_lowering(f"aten::{name}_backward", optional=True)
    def backward(grad_output, output_size, input_size, align_corners=False, **scales):
        return _resize_backward(
            method, ndim, grad_output, output_size, input_size, align_corners, _scales(scales)
        )


for _name, (_method, _ndim) in _METHODS.items():
    _register(_name, _method, _ndim)
