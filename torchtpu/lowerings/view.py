"""Reading and writing strided views of a buffer, as pure functions on JAX arrays.

XLA arrays have no strides. A buffer holds one dense array in its *natural* shape, together with the
strides that shape stands for in PyTorch's storage. Any other view (size, stride, offset, dtype) of
that storage is decomposed here into transpose, reshape, slice and broadcast; only what cannot be
(diagonals, overlapping windows) becomes a gather or scatter.

Legend: M = number of elements of the storage; *physical* = row-major order of the storage.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class _Plan:
    """How a view lies in the storage: the storage is reshaped to `lengths`; axis i is sliced from
    starts[i], counts[i] elements, every steps[i]; view dimension dims[i] (or None) lies on axis i."""

    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    dims: tuple[int | None, ...]

    def slices(self) -> tuple[slice, ...]:
        return tuple(
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(self.starts, self.counts, self.steps, strict=True)
        )


def _physical_order(size, stride) -> list[int]:
    """Dimensions from the largest to the smallest stride; size-1 dimensions first."""
    return sorted(range(len(size)), key=lambda d: (size[d] != 1, -stride[d], d))


def _plan(natural_size, natural_stride, size, stride, offset) -> _Plan | None:
    """A plan without gather, or None. All sizes are > 0; dimensions of stride 0 are left out."""
    storage_numel = math.prod(natural_size)
    dims = [d for d in range(len(size)) if size[d] != 1 and stride[d] != 0]
    natural_cuts = {s for n, s in zip(natural_size, natural_stride, strict=True) if n != 1} | {1}
    view_cuts = {stride[d] for d in dims} | {1}
    # The natural axes first: slicing them moves no data. Then finer, then the view's own.
    for cuts in (natural_cuts, natural_cuts | view_cuts, view_cuts):
        plan = _plan_for_cuts(sorted(cuts, reverse=True), storage_numel, dims, size, stride, offset)
        if plan is not None:
            return plan
    return None


def _plan_for_cuts(cuts, storage_numel, dims, size, stride, offset) -> _Plan | None:
    if storage_numel % cuts[0] or any(a % b for a, b in itertools.pairwise(cuts)):
        return None
    lengths = [storage_numel // cuts[0]] + [a // b for a, b in itertools.pairwise(cuts)]
    starts = [(offset // cut) % length for cut, length in zip(cuts, lengths, strict=True)]
    counts = [1] * len(cuts)
    steps = [1] * len(cuts)
    on_axis: list[int | None] = [None] * len(cuts)
    for d in dims:
        axis = next(
            (
                i
                for i, cut in enumerate(cuts)
                if stride[d] % cut == 0
                and on_axis[i] is None
                and starts[i] + (size[d] - 1) * (stride[d] // cut) < lengths[i]
            ),
            None,
        )
        if axis is None:
            return None
        on_axis[axis], counts[axis], steps[axis] = d, size[d], stride[d] // cuts[axis]
    return _Plan(tuple(lengths), tuple(starts), tuple(counts), tuple(steps), tuple(on_axis))


def _flat_indices(size, stride, offset):
    """Positions in the flat storage of every element of the view, shaped like the view."""
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    dtype = jnp.int32 if reach < 2**31 else jnp.int64
    index = jnp.full(size, offset, dtype)
    for d, s in enumerate(stride):
        index = index + lax.broadcasted_iota(dtype, size, d) * np.asarray(s, dtype)
    return index


def to_physical(array, stride):
    """The array in the order of its storage (row-major), size-1 dimensions first."""
    order = _physical_order(array.shape, stride)
    return array if order == list(range(array.ndim)) else lax.transpose(array, order)


def _from_physical(physical, size, stride):
    """Inverse of :func:`to_physical` for an array of any shape with the right number of elements."""
    order = _physical_order(size, stride)
    array = physical.reshape([size[d] for d in order])
    return array if order == list(range(len(size))) else lax.transpose(array, np.argsort(order))


def bitcast(flat, dtype):
    """A flat (1-D) array's bytes as another dtype (JAX dtype), as ``Tensor.view(dtype)`` does."""
    dtype = np.dtype(dtype)
    if flat.dtype == dtype:
        return flat
    if flat.dtype == np.bool_:
        flat = flat.astype(np.uint8)
    if np.issubdtype(flat.dtype, np.complexfloating):
        flat = jnp.stack([flat.real, flat.imag], axis=-1).reshape(-1)
        return bitcast(flat, dtype)
    if np.issubdtype(dtype, np.complexfloating):
        real = bitcast(flat, np.float32 if dtype == np.complex64 else np.float64).reshape(-1, 2)
        return lax.complex(real[:, 0], real[:, 1])
    if dtype == np.bool_:
        return bitcast(flat, np.uint8) != 0
    if flat.dtype == dtype:
        return flat
    source, target = flat.dtype.itemsize, dtype.itemsize
    if target > source:
        flat = flat.reshape(-1, target // source)
    return lax.bitcast_convert_type(flat, dtype).reshape(-1)


def read_view(base, natural_stride, size, stride, offset, dtype):
    """The view (size, stride, offset in elements of `dtype`) of a storage that holds `base`.

    base: array in its natural shape, which covers the whole storage. dtype: JAX dtype.
    Returns an array of shape `size`.
    """
    size = tuple(size)
    if 0 in size:
        return jnp.zeros(size, dtype)
    natural_size = base.shape
    if base.dtype != dtype:
        base = bitcast(to_physical(base, natural_stride).reshape(-1), dtype)
        natural_size, natural_stride = base.shape, (1,)
    if size == natural_size and tuple(stride) == tuple(natural_stride):
        return base
    plan = _plan(natural_size, natural_stride, size, stride, offset)
    physical = to_physical(base, natural_stride)
    if plan is None:
        return (
            physical.reshape(-1)
            .at[_flat_indices(size, stride, offset)]
            .get(mode="promise_in_bounds")
        )
    part = physical.reshape(plan.lengths)
    if plan.counts != plan.lengths:
        limits = [s.stop for s in plan.slices()]
        part = lax.slice(part, plan.starts, limits, plan.steps)
    # Axes that carry a view dimension, in the view's order; all others have length 1.
    carried = [i for i, d in enumerate(plan.dims) if d is not None]
    part = part.reshape([plan.counts[i] for i in carried])
    order = sorted(range(len(carried)), key=lambda i: plan.dims[carried[i]])
    if order != list(range(len(order))):
        part = lax.transpose(part, order)
    placed = {plan.dims[i] for i in carried}
    part = part.reshape([n if d in placed else 1 for d, n in enumerate(size)])
    return part if part.shape == size else jnp.broadcast_to(part, size)


def write_view(base, natural_stride, size, stride, offset, dtype, value):
    """`base` with the view (size, stride, offset, dtype) of its storage replaced by `value`.

    value: array of shape `size` and of `dtype`. Returns an array like `base`.
    """
    size = tuple(size)
    if 0 in size:
        return base
    if base.dtype != dtype:
        flat = bitcast(to_physical(base, natural_stride).reshape(-1), dtype)
        flat = write_view(flat, (1,), size, stride, offset, dtype, value)
        flat = bitcast(flat, base.dtype)
        return _from_physical(flat, base.shape, natural_stride)
    if size == base.shape and tuple(stride) == tuple(natural_stride):
        return value
    plan = _plan(base.shape, natural_stride, size, stride, offset)
    physical = to_physical(base, natural_stride)
    if any(s == 0 and n > 1 for n, s in zip(size, stride, strict=True)):
        plan = None  # several elements share a place: the scatter picks one of them
    if plan is None:
        flat = physical.reshape(-1)
        flat = flat.at[_flat_indices(size, stride, offset)].set(value, mode="promise_in_bounds")
        return _from_physical(flat, base.shape, natural_stride)
    carried = sorted(
        (d, i) for i, d in enumerate(plan.dims) if d is not None
    )  # (view dimension, axis)
    part = value.reshape([size[d] for d, _ in carried])
    axes = [i for _, i in carried]
    part = lax.transpose(part, np.argsort(np.asarray(axes, int))) if len(axes) > 1 else part
    part = part.reshape(plan.counts)
    parts = physical.reshape(plan.lengths)
    if all(step == 1 for step in plan.steps):
        if plan.counts == plan.lengths:
            parts = part
        else:
            parts = lax.dynamic_update_slice(parts, part, [np.int32(s) for s in plan.starts])
    else:
        parts = parts.at[plan.slices()].set(part, indices_are_sorted=True, unique_indices=True)
    return _from_physical(parts, base.shape, natural_stride)
