"""Sorting and order statistics: sort, topk, kthvalue, median, mode, isin.

As on the CPU, NaN counts as the greatest value. Among equal values the index that comes first is
taken; where PyTorch leaves the choice open (topk, kthvalue, mode), CPU results may differ in the
index, never in the value.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from torchtpu.lowerings.common import like
from torchtpu.lowerings.indexing import index_dtype
from torchtpu.lowerings.registry import register_lowering


def _line(x, dim: int):
    """`x` with at least one dimension, and `dim` as a non-negative axis of it."""
    x = x.reshape(1) if x.ndim == 0 else x
    return x, dim % x.ndim


def _sort(x, dim: int, descending: bool = False):
    """Stably sorted values and their indices along `dim`; NaN last (descending: first)."""
    position = lax.broadcasted_iota(index_dtype(x.shape[dim]), x.shape, dim)
    if x.shape[dim] <= 1:
        return x, position
    if descending:
        # Reversing before and after keeps equal values in order, which negating keys would not do
        # for NaN and the smallest integer.
        x, position = lax.rev(x, (dim,)), lax.rev(position, (dim,))
    values, indices = lax.sort((x, position), dimension=dim, is_stable=True, num_keys=1)
    if descending:
        values, indices = lax.rev(values, (dim,)), lax.rev(indices, (dim,))
    return values, indices


@register_lowering("aten::sort.stable")
def sort_stable(self, *, stable=None, dim=-1, descending=False):
    x, dim = _line(self, dim)
    values, indices = _sort(x, dim, descending)
    return values.reshape(self.shape), indices.reshape(self.shape)


@register_lowering("aten::sort")
def sort(self, dim=-1, descending=False):
    return sort_stable(self, dim=dim, descending=descending)


@register_lowering("aten::topk")
def topk(self, k, dim=-1, largest=True, sorted=True):
    x, dim = _line(self, dim)
    if x.shape[dim] == 0 or k == 0:
        shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        values, indices = jnp.zeros(shape, x.dtype), jnp.zeros(shape, jnp.int32)
    else:
        keys = jnp.moveaxis(_ascending_keys(x, largest), dim, -1)
        _, indices = lax.top_k(keys, k)
        indices = jnp.moveaxis(indices, -1, dim)
        values = _take(x, indices, dim)
    shape = values.shape if self.ndim else ()
    return values.reshape(shape), indices.reshape(shape)


def _ascending_keys(x, largest: bool):
    """Keys whose greatest are wanted. XLA orders NaN by its sign bit, so NaN gets the right one."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.where(jnp.isnan(x), like(jnp.nan, x), x)
        return x if largest else -x
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    return x if largest else ~x


def _take(x, indices, dim: int):
    return jnp.take_along_axis(
        x, indices, dim, mode="promise_in_bounds", wrap_negative_indices=False
    )


def _pick(values, indices, dim: int, rank, keepdim: bool, ndim: int):
    """Entry `rank` (an int, or an array of one for each line) of sorted values and indices."""
    if isinstance(rank, int):
        picked = [lax.slice_in_dim(a, rank, rank + 1, axis=dim) for a in (values, indices)]
    else:
        picked = [_take(a, rank, dim) for a in (values, indices)]
    if ndim == 0:
        return tuple(a.reshape(()) for a in picked)
    return tuple(picked) if keepdim else tuple(a.squeeze(dim) for a in picked)


@register_lowering("aten::kthvalue")
def kthvalue(self, k, dim=-1, keepdim=False):
    x, dim = _line(self, dim)
    values, indices = _sort(x, dim)
    if values.size == 0:
        return _empty_lines(values, dim, keepdim)
    return _pick(values, indices, dim, k - 1, keepdim, self.ndim)


def _empty_lines(x, dim: int, keepdim: bool):
    shape = list(x.shape)
    shape[dim : dim + 1] = [1] if keepdim else []
    return jnp.zeros(shape, x.dtype), jnp.zeros(shape, jnp.int32)


def _median(self, dim: int, keepdim: bool, ignore_nan: bool):
    """The lower median. NaN wins, with its first index, unless it is ignored."""
    x, dim = _line(self, dim)
    size = x.shape[dim]
    if x.size == 0:
        return _empty_lines(x, dim, keepdim)
    values, indices = _sort(x, dim)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return _pick(values, indices, dim, (size - 1) // 2, keepdim, self.ndim)
    nans = jnp.sum(jnp.isnan(values), dim, dtype=indices.dtype, keepdims=True)
    if ignore_nan:
        rank = jnp.maximum(size - nans - 1, 0) // 2
    else:
        rank = jnp.where(nans > 0, size - nans, (size - 1) // 2)
    return _pick(values, indices, dim, rank.astype(indices.dtype), keepdim, self.ndim)


@register_lowering("aten::median.dim")
def median_dim(self, dim, keepdim=False):
    return _median(self, dim, keepdim, ignore_nan=False)


@register_lowering("aten::nanmedian.dim")
def nanmedian_dim(self, dim, keepdim=False):
    return _median(self, dim, keepdim, ignore_nan=True)


def _full_median(self, ignore_nan: bool):
    if self.size == 0:
        floating = jnp.issubdtype(self.dtype, jnp.floating)
        return like(jnp.nan if floating else jnp.iinfo(self.dtype).min, self)
    return _median(self.reshape(-1), 0, keepdim=False, ignore_nan=ignore_nan)[0]


@register_lowering("aten::median")
def median(self):
    return _full_median(self, ignore_nan=False)


@register_lowering("aten::nanmedian")
def nanmedian(self):
    return _full_median(self, ignore_nan=True)


@register_lowering("aten::mode")
def mode(self, dim=-1, keepdim=False):
    """The most frequent value, the smallest of several, and the last index where it stands."""
    x, dim = _line(self, dim)
    values, indices = _sort(x, dim)
    if values.size == 0:
        return _empty_lines(values, dim, keepdim)
    # Equal values are neighbours: an entry's place in its run counts how often the value came.
    place = lax.broadcasted_iota(indices.dtype, x.shape, dim)
    before = lax.slice_in_dim(values, 0, x.shape[dim] - 1, axis=dim)
    after = lax.slice_in_dim(values, 1, x.shape[dim], axis=dim)
    padding = [(int(d == dim), 0) for d in range(x.ndim)]
    begins = jnp.pad(before != after, padding, constant_values=True)
    run_start = lax.cummax(jnp.where(begins, place, 0), axis=dim)
    best = jnp.argmax(place - run_start, dim, keepdims=True).astype(indices.dtype)
    return _pick(values, indices, dim, best, keepdim, self.ndim)


def _isin(elements, test_elements, invert: bool):
    tests = test_elements.reshape(-1)
    if tests.size == 0 or elements.size == 0:
        return jnp.full(elements.shape, invert)
    # PyTorch's own bound between comparing all pairs and sorting the smaller side.
    if tests.size < 10 * elements.size**0.145:
        found = jnp.any(elements[..., None] == tests, -1)
    else:
        tests = jnp.sort(tests)
        place = jnp.minimum(jnp.searchsorted(tests, elements), tests.size - 1)
        found = tests[place] == elements
    return ~found if invert else found


@register_lowering("aten::isin.Tensor_Tensor", promote=("elements", "test_elements"))
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    return _isin(elements, test_elements, invert)


@register_lowering(
    "aten::isin.Tensor_Scalar", promote=("elements", "test_element"), dynamic="test_element"
)
def isin_of_scalar(elements, test_element, *, assume_unique=False, invert=False):
    return _isin(elements, jnp.asarray(test_element), invert)


@register_lowering(
    "aten::isin.Scalar_Tensor", promote=("element", "test_elements"), dynamic="element"
)
def isin_scalar(element, test_elements, *, assume_unique=False, invert=False):
    return _isin(jnp.asarray(element), test_elements, invert)
