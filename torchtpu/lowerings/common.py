"""Small helpers that several lowering families share."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from torchtpu import dtypes


def upcast(x):
    """`x` in the dtype PyTorch computes in: float32 for the 16-bit and 8-bit floats, else as it is.

    Anything that is not an array passes through.
    """
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return x
    opmath = dtypes.opmath(dtype)
    return x if opmath == dtype else x.astype(opmath)


def in_opmath(function):
    """Decorator: array arguments are upcast, so that a formula of 16-bit floats rounds only once
    (the caller casts the result back)."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*map(upcast, args), **{k: upcast(v) for k, v in kwargs.items()})

    return wrapper


def like(number, x):
    """A Python number or 0-d array in the dtype of `x`, so that it cannot widen the formula."""
    return jnp.asarray(number).astype(x.dtype)


def normalize_dims(dim, ndim: int) -> tuple[int, ...]:
    """PyTorch's ``dim`` (int, list or None; empty means all) as sorted non-negative axes.

    A 0-d tensor counts as having one dimension, and so has no axes.
    """
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    if ndim == 0:
        return ()
    return tuple(sorted(d % ndim for d in dims))
