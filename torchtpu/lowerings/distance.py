"""Pairwise distances (cdist, pdist), and what sorts values into intervals (searchsorted, histc).

Legend: B = batch dimensions, P and R = numbers of points, M = their dimension.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import vmap

from torchtpu.lowerings.common import in_opmath, like, upcast
from torchtpu.lowerings.registry import register_lowering

# From this many points on PyTorch computes Euclidean distances by a matrix product.
_MATMUL_FROM = 25


@register_lowering("aten::_cdist_forward", matmul_precision=True)
def _cdist_forward(x1, x2, p, compute_mode=None):
    """compute_mode: 0/None matrix product for many points, 1 always, 2 never (for p = 2)."""
    x1_BPM, x2_BRM = upcast(x1), upcast(x2)
    batch = jnp.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    shape = (*batch, x1.shape[-2], x2.shape[-2])
    if 0 in shape or x1.shape[-1] == 0:
        return jnp.zeros(shape, x1.dtype)
    many = x1.shape[-2] > _MATMUL_FROM or x2.shape[-2] > _MATMUL_FROM
    if p == 2 and (compute_mode == 1 or (compute_mode in (0, None) and many)):
        squares_BP1 = jnp.sum(x1_BPM * x1_BPM, -1)[..., :, None]
        squares_B1R = jnp.sum(x2_BRM * x2_BRM, -1)[..., None, :]
        product_BPR = jnp.matmul(x1_BPM, jnp.swapaxes(x2_BRM, -1, -2))
        return jnp.sqrt(jnp.maximum(squares_BP1 + squares_B1R - 2 * product_BPR, 0))
    return _norm(jnp.abs(x1_BPM[..., :, None, :] - x2_BRM[..., None, :, :]), p)


def _norm(distance, p: float):
    """p-norm over the last axis of non-negative values; NaN propagates."""
    if p == 0:
        return jnp.sum((distance != 0).astype(distance.dtype), -1)
    if p == 1:
        return jnp.sum(distance, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(distance * distance, -1))
    if math.isinf(p):
        return jnp.max(distance, -1)
    return jnp.sum(distance**p, -1) ** (1 / p)


# The incoming gradient is `grad` up to PyTorch 2.13, then `grad_output`: taken as **incoming.
@register_lowering("aten::_cdist_backward")
@in_opmath
def _cdist_backward(x1, x2, p, cdist, **incoming):
    (grad,) = incoming.values()
    batch = jnp.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if 0 in (*batch, x1.shape[-2], x2.shape[-2], x1.shape[-1]):
        return jnp.zeros(x1.shape, x1.dtype)
    gradient = _pairwise_gradient(x1, x2, p, grad, cdist)
    return jnp.broadcast_to(gradient, (*batch, *x1.shape[-2:]))


def _pairwise_gradient(x1_BPM, x2_BRM, p: float, grad_BPR, distance_BPR):
    """d(sum of grad * distance) / d x1. A zero distance has gradient 0."""
    difference = x1_BPM[..., :, None, :] - x2_BRM[..., None, :, :]
    size, sign = jnp.abs(difference), jnp.sign(difference)
    distance, grad = distance_BPR[..., None], grad_BPR[..., None]
    if p == 0:
        return jnp.zeros(x1_BPM.shape, x1_BPM.dtype)
    if p == 1:
        terms = grad * sign
    elif math.isinf(p):
        terms = grad * sign * (size == distance)
    else:
        zero = (distance == 0) | ((difference == 0) & (p < 1))
        safe = jnp.where(zero, 1, distance)
        if p == 2:
            terms = grad * difference / safe
        else:
            base = jnp.where(zero, 1, size)
            terms = grad * sign * base ** (p - 1) / safe ** (p - 1)
        terms = jnp.where(zero, 0, terms)
    return jnp.sum(terms, -2)


def _pairs(n: int):
    """(row, column) of each pair i < j, as constants."""
    rows, columns = np.triu_indices(n, 1)
    return rows.astype(np.int32), columns.astype(np.int32)


@register_lowering("aten::_pdist_forward")
def _pdist_forward(self, p=2.0):
    n, m = self.shape
    if n < 2 or m == 0:
        return jnp.zeros(n * (n - 1) // 2, self.dtype)
    x = upcast(self)
    distance_NN = _norm(jnp.abs(x[:, None, :] - x[None, :, :]), p)
    return distance_NN[_pairs(n)]


@register_lowering("aten::_pdist_backward")
@in_opmath
def _pdist_backward(self, p, pdist, **incoming):
    (grad,) = incoming.values()
    n, m = self.shape
    if n < 2 or m == 0:
        return jnp.zeros(self.shape, self.dtype)

    def symmetric(values):
        upper = jnp.zeros((n, n), values.dtype).at[_pairs(n)].set(values, unique_indices=True)
        return upper + upper.T

    return _pairwise_gradient(self, self, p, symmetric(grad), symmetric(pdist))


@register_lowering("aten::searchsorted.Tensor")
def searchsorted(sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, -1)
    if self.size == 0 or sorted_sequence.size == 0:
        return jnp.zeros(self.shape, jnp.int32)
    side = side or ("right" if right else "left")
    # Comparing with every boundary beats a binary search, whose steps are gathers, on short ones.
    method = "compare_all" if sorted_sequence.shape[-1] <= 64 else "scan"

    def search(boundaries, values):
        return jnp.searchsorted(boundaries, values, side=side, method=method)

    if sorted_sequence.ndim == 1:
        return search(sorted_sequence, self)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    found = vmap(search)(rows, self.reshape(rows.shape[0], -1))
    return found.reshape(self.shape)


@register_lowering("aten::searchsorted.Scalar", dynamic="self")
def searchsorted_scalar(sorted_sequence, self, **options):
    return searchsorted(sorted_sequence, like(self, sorted_sequence), **options)


@register_lowering("aten::bucketize.Tensor")
def bucketize(self, boundaries, *, out_int32=False, right=False):
    return searchsorted(boundaries, self, right=right)


@register_lowering("aten::bucketize.Scalar", dynamic="self")
def bucketize_scalar(self, boundaries, *, out_int32=False, right=False):
    return searchsorted(boundaries, like(self, boundaries), right=right)


@register_lowering("aten::histc", dynamic=("min", "max"))
def histc(self, bins=100, min=0, max=0):
    """Equal limits mean the smallest and largest value; if these are equal too, one to each side."""
    x = self.reshape(-1)
    low, high = like(min, x), like(max, x)
    if x.size == 0:
        return jnp.zeros(bins, self.dtype)
    by_data = low == high
    low = jnp.where(by_data, jnp.min(x), low)
    high = jnp.where(by_data, jnp.max(x), high)
    flat = (low == high).astype(x.dtype)
    low, high = low - flat, high + flat
    inside = (x >= low) & (x <= high)
    position = ((x - low) * like(bins, x) / (high - low)).astype(jnp.int32)
    position = jnp.where(inside, jnp.minimum(position, bins - 1), bins)
    return jnp.zeros(bins, jnp.int32).at[position].add(1, mode="drop")
