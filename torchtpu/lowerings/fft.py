"""Fourier transforms: complex to complex, real to complex, complex to real; their frequencies."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import like
from torchtpu.lowerings.indexing import index_dtype
from torchtpu.lowerings.registry import register_lowering

# PyTorch's ``normalization``: the factor, from the number of points of the transform.
_SCALES = {0: lambda n: 1.0, 1: lambda n: 1 / math.sqrt(n), 2: lambda n: 1 / n}
_MAX_RANK = 3  # of one XLA transform


def _transform(x, dims, kind: str, lengths):
    """One XLA transform over at most `_MAX_RANK` dimensions; the last of `dims` is the halved one."""
    last = tuple(range(x.ndim - len(dims), x.ndim))
    x = lax.fft(jnp.moveaxis(x, dims, last), kind, lengths)
    return jnp.moveaxis(x, last, dims)


def _complex_transform(x, dims, forward: bool):
    """Unnormalized transform over all `dims` (XLA's inverse divides by the number of points)."""
    for begin in range(0, len(dims), _MAX_RANK):
        some = dims[begin : begin + _MAX_RANK]
        lengths = tuple(x.shape[d] for d in some)
        x = _transform(x, some, "FFT" if forward else "IFFT", lengths)
        if not forward:
            x = x * like(math.prod(lengths), x)
    return x


def _scaled(x, normalization: int, points: int):
    scale = _SCALES[normalization](points)
    return x if scale == 1 else x * like(scale, x)


@register_lowering("aten::_fft_c2c")
def _fft_c2c(self, dim, normalization, forward):
    if self.size == 0 or not dim:
        return self
    dims = [d % self.ndim for d in dim]
    points = math.prod(self.shape[d] for d in dims)
    return _scaled(_complex_transform(self, dims, forward), normalization, points)


@register_lowering("aten::_fft_r2c")
def _fft_r2c(self, dim, normalization, onesided):
    dims = [d % self.ndim for d in dim]
    points = math.prod(self.shape[d] for d in dims)
    if onesided:
        x = _transform(self, dims[-1:], "RFFT", (self.shape[dims[-1]],))
        dims = dims[:-1]
    else:
        x = lax.complex(self, jnp.zeros_like(self))
    return _scaled(_complex_transform(x, dims, forward=True), normalization, points)


@register_lowering("aten::_fft_c2r")
def _fft_c2r(self, dim, normalization, last_dim_size):
    *dims, last = [d % self.ndim for d in dim]
    points = math.prod(self.shape[d] for d in dims) * last_dim_size
    x = _complex_transform(self, dims, forward=False)
    # Only the first half of a Hermitian signal is read.
    x = lax.slice_in_dim(x, 0, last_dim_size // 2 + 1, axis=last)
    x = _transform(x, [last], "IRFFT", (last_dim_size,)) * last_dim_size
    return _scaled(x, normalization, points)


def _frequencies(count: int, n: int, d: float, dtype):
    i = lax.iota(index_dtype(n), count)
    signed = jnp.where(i < (n + 1) // 2, i, i - n) if count == n else i
    wide = signed.astype(dtypes.to_jax(dtype))
    return wide * like(1.0 / (n * d), wide)


@register_lowering("aten::fft_fftfreq", factory=True)
def fft_fftfreq(n, d=1.0, *, dtype):
    return _frequencies(n, n, d, dtype)


@register_lowering("aten::fft_rfftfreq", factory=True)
def fft_rfftfreq(n, d=1.0, *, dtype):
    return _frequencies(n // 2 + 1, n, d, dtype)
