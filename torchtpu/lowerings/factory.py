"""Tensors from nothing: fill, ranges, identity, triangle indices. (``empty*`` is the device's own.)"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import like
from torchtpu.lowerings.indexing import index_dtype
from torchtpu.lowerings.registry import register_lowering


@register_lowering("aten::zeros", "aten::_efficientzerotensor", factory=True)
def zeros(size, *, dtype):
    return jnp.zeros(size, dtypes.to_jax(dtype))


@register_lowering("aten::ones", factory=True)
def ones(size, *, dtype):
    return jnp.ones(size, dtypes.to_jax(dtype))


@register_lowering("aten::full", factory=True, dynamic="fill_value")
def full(size, fill_value, *, dtype):
    return jnp.full(size, jnp.asarray(fill_value).astype(dtypes.to_jax(dtype)))


@register_lowering("aten::scalar_tensor", factory=True, dynamic="s")
def scalar_tensor(s, *, dtype):
    return jnp.asarray(s).astype(dtypes.to_jax(dtype))


@register_lowering("aten::eye", factory=True)
def eye(n, *, dtype):
    return eye_m(n, n, dtype=dtype)


@register_lowering("aten::eye.m", factory=True)
def eye_m(n, m, *, dtype):
    return jnp.eye(n, m, dtype=dtypes.to_jax(dtype))


def _progression(start, step, count: int, dtype):
    """start + i * step for i < count. Real numbers are computed in float64 and rounded once, as the
    CPU does it; whole ones, which are exact anyway, in a narrower type where it is wide enough."""
    whole = all(isinstance(v, int) or float(v).is_integer() for v in (start, step))
    if whole:
        start, step = int(start), int(step)
        largest = max(abs(start), abs(start + step * count), count)
        wide = jnp.int32 if largest < 2**31 else jnp.int64
    else:
        wide = jnp.float64
    numbers = lax.iota(wide, count)
    if step != 1:
        numbers = numbers * like(step, numbers)
    if start != 0:
        numbers = numbers + like(start, numbers)
    return numbers.astype(dtype)


@register_lowering("aten::arange", factory=True)
def arange_end(end, *, dtype):
    return arange(0, end, 1, dtype=dtype)


@register_lowering("aten::arange.start", factory=True)
def arange_start(start, end, *, dtype):
    return arange(start, end, 1, dtype=dtype)


@register_lowering("aten::arange.start_step", factory=True)
def arange(start, end, step=1, *, dtype):
    dtype = dtypes.to_jax(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        # PyTorch casts the limits to the result's type first.
        start, end, step = int(start), int(end), int(step)
    if all(isinstance(v, int) for v in (start, end, step)):
        count = -((start - end) // step)
    else:
        count = math.ceil((end - start) / step)
    return _progression(start, step, max(0, count), dtype)


@register_lowering("aten::range.step", factory=True)
def range_step(start, end, step=1, *, dtype):
    """Both ends included."""
    return _progression(start, step, int((end - start) / step) + 1, dtypes.to_jax(dtype))


@register_lowering("aten::range", factory=True)
def range_(start, end, *, dtype):
    return range_step(start, end, 1, dtype=dtype)


def _linspace(start, end, steps: int, dtype):
    """Evenly spaced values between two 0-d arrays or numbers, wide enough to be cast to `dtype`.

    From both ends to the middle, so that both are met exactly. The ends are cast to `dtype` first,
    as PyTorch does it.
    """
    wide = dtypes.opmath(dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.float64
    start, end = (jnp.asarray(v).reshape(()).astype(dtype).astype(wide) for v in (start, end))
    if steps <= 1:
        return start.reshape(1)[:steps]
    i = lax.iota(index_dtype(steps), steps)
    step = (end - start) / like(steps - 1, start)
    forth, back = start + step * i.astype(wide), end - step * (steps - 1 - i).astype(wide)
    return jnp.where(i < steps // 2, forth, back)


_LINSPACE_FORMS = ("", ".Tensor_Tensor", ".Tensor_Scalar", ".Scalar_Tensor")


def _register_spaces(form: str) -> None:
    # A Scalar end arrives at run time, like a Tensor one: other ends do not compile again.
    first, _, second = form.removeprefix(".").partition("_")
    names = zip(("start", "end"), (first, second), strict=True)
    dynamic = tuple(name for name, kind in names if kind != "Tensor")

    @register_lowering(f"aten::linspace{form}", factory=True, dynamic=dynamic)
    def linspace(start, end, steps, *, dtype):
        return _linspace(start, end, steps, dtypes.to_jax(dtype))

    @register_lowering(f"aten::logspace{form}", factory=True, dynamic=dynamic)
    def logspace(start, end, steps, base=10.0, *, dtype):
        exponents = _linspace(start, end, steps, dtypes.to_jax(dtype))
        return like(base, exponents) ** exponents


for _form in _LINSPACE_FORMS:
    _register_spaces(_form)


def _triangle(row: int, col: int, offset: int, lower: bool):
    """Row and column numbers of the entries of a triangle, in row-major order."""
    on_or_left = [min(col, max(0, r + offset + lower)) for r in range(row)]
    count = sum(n if lower else col - n for n in on_or_left)
    if count == 0:
        return jnp.zeros((2, 0), jnp.int32)
    rows = lax.broadcasted_iota(jnp.int32, (row, col), 0)
    columns = lax.broadcasted_iota(jnp.int32, (row, col), 1)
    keep = columns - rows <= offset if lower else columns - rows >= offset
    return jnp.stack(jnp.nonzero(keep, size=count))


@register_lowering("aten::tril_indices", factory=True)
def tril_indices(row, col, offset=0, *, dtype):
    return _triangle(row, col, offset, lower=True)


@register_lowering("aten::triu_indices", factory=True)
def triu_indices(row, col, offset=0, *, dtype):
    return _triangle(row, col, offset, lower=False)
