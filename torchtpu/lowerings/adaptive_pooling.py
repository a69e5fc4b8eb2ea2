"""Adaptive pooling: the output size is given, and windows may differ by an element.

Legend: the pooled (spatial) axes are the last `ndim` axes.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.pooling import gradient_of_tiles, max_over_windows, scatter_to_positions
from torchtpu.lowerings.registry import register_lowering
from torchtpu.lowerings.resample import Taps


def _bounds(length: int, outputs: int):
    """First element of each window, and the one behind its last."""
    index = np.arange(outputs)
    return index * length // outputs, -((-(index + 1) * length) // outputs)


def _windows(length: int, outputs: int) -> np.ndarray:
    """(outputs, longest window): input indices; shorter windows repeat their last element."""
    starts, ends = _bounds(length, outputs)
    size = max(1, int((ends - starts).max(initial=1)))
    return np.minimum(starts[:, None] + np.arange(size), ends[:, None] - 1)


def _mean_taps(length: int, outputs: int) -> Taps:
    """Taps that sum each window."""
    starts, ends = _bounds(length, outputs)
    indices = _windows(length, outputs)
    present = starts[:, None] + np.arange(indices.shape[1]) < ends[:, None]
    return Taps(indices, present.astype(np.float32), length)


def _counts(shape, output_size):
    """How many elements each window has, over the output's spatial axes."""
    ndim = len(output_size)
    counts = np.ones(())
    for offset, (length, outputs) in enumerate(zip(shape[-ndim:], output_size, strict=True)):
        starts, ends = _bounds(length, outputs)
        counts = counts * (ends - starts).reshape([-1 if d == offset else 1 for d in range(ndim)])
    return counts


def _tile_sizes(shape, output_size):
    """The window sizes if all windows are alike and cover the input once, else None."""
    spatial = shape[len(shape) - len(output_size) :]
    if any(outputs == 0 or length % outputs for length, outputs in zip(spatial, output_size)):
        return None
    return [length // outputs for length, outputs in zip(spatial, output_size)]


def _max_pool(ndim, self, output_size):
    output_size = _per_axis(output_size, ndim)
    windows = [_windows(n, o) for n, o in zip(self.shape[-ndim:], output_size, strict=True)]
    return max_over_windows(self, windows)


def _per_axis(output_size, ndim: int) -> list[int]:
    output_size = list(output_size)
    return output_size * ndim if len(output_size) == 1 else output_size


def _max_pool_backward(ndim, grad_output, self, indices):
    grad = upcast(grad_output)
    sizes = _tile_sizes(self.shape, grad.shape[-ndim:])
    if sizes is not None:
        return gradient_of_tiles(grad, indices, sizes)
    return scatter_to_positions(grad, indices, ndim, self.shape[-ndim:])


def _avg_pool(ndim, self, output_size):
    output_size = _per_axis(output_size, ndim)
    x = upcast(self)
    sizes = _tile_sizes(x.shape, output_size)
    if sizes is not None:
        lead = x.shape[: x.ndim - ndim]
        pairs = [n for pair in zip(output_size, sizes, strict=True) for n in pair]
        x = x.reshape(*lead, *pairs)
        return jnp.mean(x, axis=tuple(range(len(lead) + 1, x.ndim, 2)))
    for offset, outputs in enumerate(output_size):
        axis = x.ndim - ndim + offset
        x = _mean_taps(x.shape[axis], outputs).apply(x, axis)
    return x / jnp.asarray(_counts(self.shape, output_size)).astype(x.dtype)


def _avg_pool_backward(ndim, grad_output, self):
    output_size = grad_output.shape[-ndim:]
    grad = upcast(grad_output)
    grad = grad / jnp.asarray(_counts(self.shape, output_size)).astype(grad.dtype)
    for offset, outputs in enumerate(output_size):
        axis = grad.ndim - ndim + offset
        grad = _mean_taps(self.shape[axis], outputs).transposed().apply(grad, axis)
    return grad


for _ndim in (2, 3):
    register_lowering(f"aten::adaptive_max_pool{_ndim}d")(partial(_max_pool, _ndim))
    register_lowering(f"aten::adaptive_max_pool{_ndim}d_backward")(
        partial(_max_pool_backward, _ndim)
    )
    register_lowering(f"aten::_adaptive_avg_pool{_ndim}d")(partial(_avg_pool, _ndim))
    register_lowering(f"aten::_adaptive_avg_pool{_ndim}d_backward")(
        partial(_avg_pool_backward, _ndim)
    )
