"""tpu tensors: real torch tensors whose storage carries a Buffer. Views, sizes and strides are
PyTorch's own; here is how they find their bytes. No operator maths."""

from __future__ import annotations

import torch

from torchtpu import dtypes
from torchtpu.program import Input, View
from torchtpu.runtime import client
from torchtpu.runtime.buffer import Buffer, Layout, contiguous_stride, is_dense, layout

_create_empty_tensor = torch._C._acc.create_empty_tensor
META_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_as_strided = torch.ops.aten.as_strided.default
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset


def new_tensor(array, tensor_layout: Layout) -> torch.Tensor:
    """A tpu tensor of its own storage that holds `array` (None: uninitialised)."""
    tensor = _create_empty_tensor(tensor_layout.size, tensor_layout.dtype)
    tensor.untyped_storage().tpu_buffer = Buffer(array, tensor_layout)
    if tensor_layout.needs_stride:
        tensor = _as_strided.redispatch(
            META_KEYS, tensor, tensor_layout.size, tensor_layout.stride, 0
        )
    return tensor


def empty_strided(size, stride, dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tpu tensor with these strides, as ``torch.empty_strided``."""
    size, stride = tuple(size), tuple(stride)
    dtypes.to_jax(dtype)  # raises for a dtype XLA cannot hold
    if is_dense(size, stride):
        return new_tensor(None, layout(size, stride, dtype))
    # Gaps or overlap: a flat storage of the span, seen through the strides.
    span = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    flat = new_tensor(None, layout((span,), (1,), dtype))
    buffer_of(flat).mark_viewed()
    return _as_strided.redispatch(META_KEYS, flat, size, stride, 0)


def empty(size, dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised contiguous tpu tensor."""
    size = tuple(size)
    return new_tensor(None, layout(size, contiguous_stride(size), dtype))


def buffer_of(tensor: torch.Tensor) -> Buffer:
    """The Buffer of a tpu tensor's storage. Raises AttributeError for any other tensor."""
    return tensor.untyped_storage().tpu_buffer


def is_tpu_tensor(value) -> bool:
    """Whether this is a tensor on the tpu device."""
    return isinstance(value, torch.Tensor) and value.device.type == "tpu"


def input_spec(tensor: torch.Tensor, buffer: Buffer) -> Input:
    """How a Program reads this tensor from its storage."""
    if is_whole(tensor, buffer):
        return Input(buffer.layout)
    view = View(
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )
    return Input(buffer.layout, view)


def is_whole(tensor: torch.Tensor, buffer: Buffer) -> bool:
    """Whether the tensor is its storage's array as it is."""
    lay = buffer.layout
    return (
        tensor.shape == lay.size
        and tensor.stride() == lay.stride
        and tensor.dtype is lay.dtype
        and not (buffer.viewed and (tensor.is_conj() or tensor.is_neg()))
    )


def adopt_layout(tensor: torch.Tensor, buffer: Buffer) -> None:
    """Before the first write into an uninitialised storage: let it lie as this tensor sees it, if
    the tensor covers all of it, so that the writer's shape becomes the natural one."""
    size, stride = tuple(tensor.shape), tensor.stride()
    lay = buffer.layout
    if (
        buffer.array is None
        and tensor.dtype.itemsize * tensor.numel() == lay.nbytes
        and is_dense(size, stride)
        and 0 not in size
    ):
        buffer.put(None, layout(size, stride, tensor.dtype))


def from_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tpu tensor with a copy of a CPU tensor's values."""
    size = tuple(tensor.shape)
    lay = layout(size, contiguous_stride(size), tensor.dtype)
    return new_tensor(client.from_cpu_tensor(tensor), lay)


def set_geometry(tensor: torch.Tensor, size, stride, offset: int) -> None:
    """Give a tensor another size, stride and offset over its storage, in place."""
    buffer_of(tensor).mark_viewed()
    _set_storage.redispatch(META_KEYS, tensor, tensor.untyped_storage(), offset, size, stride)


def check_in_bounds(buffer: Buffer, size, stride, offset: int, dtype: torch.dtype) -> None:
    """Raise RuntimeError, as PyTorch does, if a view reaches beyond its storage."""
    reach = offset
    for n, s in zip(size, stride, strict=True):
        if n == 0:
            return
        reach += (n - 1) * s
    needed = (reach + 1) * dtype.itemsize
    if offset < 0 or needed > buffer.layout.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {dtype.itemsize} requiring a storage size of {needed} are out of bounds for "
            f"storage of size {buffer.layout.nbytes}"
        )


def check_placement(tensor_layout, device) -> None:
    """Raise for a layout (torch.layout) or device that tpu tensors cannot have."""
    if tensor_layout not in (None, torch.strided):
        raise NotImplementedError(
            f"tpu tensors are dense (torch.strided); {tensor_layout} is not supported. "
            "Keep sparse tensors on the CPU."
        )
    if device is not None and device.index not in (None, 0):
        raise RuntimeError(
            f"{device} does not exist: a process drives one TPU chip, tpu:0. "
            "Start one process for each chip."
        )
