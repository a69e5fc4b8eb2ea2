"""Buffers: what a tpu storage holds, one dense array and the strides its shape stands for."""

from __future__ import annotations

import math
import threading

import numpy as np
import torch
from jax.core import Tracer

from torchtpu import dtypes
from torchtpu.runtime import client


class Layout:
    """How an array lies in its storage: dense, without overlap, covering all of it from offset 0.

    size, stride: tuples in elements; dtype: torch dtype. needs_stride: a tensor made from the size
    alone would have other strides. Interned by :func:`layout`, so that two
    equal layouts are one object and hash by identity.
    """

    __slots__ = (
        "dtype",
        "is_contiguous",
        "jax_dtype",
        "nbytes",
        "needs_stride",
        "numel",
        "size",
        "stride",
    )

    def __init__(self, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype):
        self.size = size
        self.stride = stride
        self.dtype = dtype
        self.jax_dtype = dtypes.to_jax(dtype)
        self.numel = math.prod(size)
        self.nbytes = self.numel * self.jax_dtype.itemsize
        self.is_contiguous = stride == contiguous_stride(size)
        self.needs_stride = self.numel == 0 or not self.is_contiguous

    def __repr__(self) -> str:
        return f"Layout(size={self.size}, stride={self.stride}, dtype={self.dtype})"


_layouts: dict[tuple, Layout] = {}
_layouts_lock = threading.Lock()


def layout(size, stride, dtype: torch.dtype) -> Layout:
    """The one Layout with these properties."""
    key = (tuple(size), tuple(stride), dtype)
    found = _layouts.get(key)
    if found is None:
        with _layouts_lock:
            found = _layouts.setdefault(key, Layout(*key))
    return found


def contiguous_stride(size) -> tuple[int, ...]:
    """Row-major strides, as PyTorch writes them (a zero-size dimension counts as 1)."""
    stride, running = [], 1
    for n in reversed(tuple(size)):
        stride.append(running)
        running *= max(n, 1)
    return tuple(reversed(stride))


def is_dense(size, stride) -> bool:
    """Whether elements fill the span from the first to the last without gap or overlap."""
    expected = 1
    for n, s in sorted(
        ((n, s) for n, s in zip(size, stride, strict=True) if n != 1), key=lambda ns: (ns[1], ns[0])
    ):
        if n == 0:
            return True
        if s != expected:
            return False
        expected *= n
    return True


class Buffer:
    """The contents of one storage.

    array: the JAX array (or, while a Program is traced, the tracer) in the shape ``layout.size``, or
    None while uninitialised. viewed: whether some tensor may see this storage in another geometry
    than ``layout``. whole: the layout if `array` is a concrete array and nothing is viewed, so that
    every tensor of the storage is that array as it is; else None.
    """

    __slots__ = ("array", "layout", "viewed", "whole")

    def __init__(self, array, layout: Layout):
        self.viewed = False
        self.put(array, layout)

    def put(self, array, layout: Layout) -> None:
        """Replace the contents."""
        self.array = array
        self.layout = layout
        is_concrete = array is not None and not isinstance(array, Tracer)
        self.whole = layout if is_concrete and not self.viewed else None

    def mark_viewed(self) -> None:
        """Note that a tensor of another geometry may exist from now on."""
        self.viewed = True
        self.whole = None

    def materialize(self):
        """The array; an uninitialised one becomes zeros."""
        if self.array is None:
            zeros = np.zeros(self.layout.size, self.layout.jax_dtype)
            self.put(client.from_numpy(zeros), self.layout)
        return self.array
