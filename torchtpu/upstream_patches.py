"""Every patch of an object that belongs to PyTorch, each with its reason and what would remove it."""

from __future__ import annotations

import functools

import torch

from torchtpu import serialization


def apply() -> None:
    """Apply all patches; they leave every other device as it was."""
    serialization.register()
    _patch_storage()
    _patch_printing()
    _patch_module_moves()
    _patch_accelerator()


def _patch_module_moves() -> None:
    """``module.to("tpu")`` keeps its Parameter objects, as it does between CPU and CUDA.

    nn.Module replaces a parameter whose new tensor cannot take over its old one's identity, and
    PyTorch says so of PrivateUse1: tied weights would come apart, and an optimizer made before the
    move would hold the old ones. PyTorch's own swap of tensors keeps both; it is switched on here
    for moves to and from tpu only.

    Removed when torch._has_compatible_shallow_copy_type accepts PrivateUse1.
    """
    original = torch.nn.Module._apply

    def _apply(self, fn, recurse=True):
        future = torch.__future__
        if future.get_swap_module_params_on_conversion() or not _changes_tpu(self, fn):
            return original(self, fn, recurse)
        future.set_swap_module_params_on_conversion(True)
        try:
            return original(self, fn, recurse)
        finally:
            future.set_swap_module_params_on_conversion(False)

    torch.nn.Module._apply = _apply


def _changes_tpu(module: torch.nn.Module, fn) -> bool:
    """Whether `fn` moves the module's parameters to or from tpu."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        return False
    with torch.no_grad():
        moved = fn(torch.empty(0, dtype=parameter.dtype, device=parameter.device))
    devices = {parameter.device.type, moved.device.type}
    return "tpu" in devices and len(devices) == 2


def _patch_printing() -> None:
    """Printing formats a tensor's values with a dozen operators; here on the host, on one copy.

    Removed when torch._tensor_str lists outside devices among those it prints from the CPU.
    """
    original = torch._tensor_str._tensor_str

    def _tensor_str(self, indent):
        return original(self.cpu() if self.device.type == "tpu" else self, indent)

    torch._tensor_str._tensor_str = _tensor_str


def _patch_storage() -> None:
    """UntypedStorage of a tpu tensor: its bytes are in a PJRT buffer, PyTorch sees a storage of 0
    bytes. Size, resizing and copying to the host are answered from the buffer.

    Removed when the Python device hooks let a backend give its storages a size and a copy function.
    """
    storage_class = torch.UntypedStorage

    def route(name, on_tpu):
        original = getattr(storage_class, name)

        def method(self, *args, **kwargs):
            if hasattr(self, "tpu_buffer"):
                return on_tpu(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        method.__name__ = name
        method.__doc__ = original.__doc__
        setattr(storage_class, name, method)

    route("nbytes", lambda self: self.tpu_buffer.layout.nbytes)
    route("size", lambda self: self.tpu_buffer.layout.nbytes)
    route("__len__", lambda self: self.tpu_buffer.layout.nbytes)
    # An identity, as PyTorch and others use it to see which tensors share a storage; no address.
    route("data_ptr", lambda self: self._cdata if self.tpu_buffer.layout.nbytes else 0)
    route("resize_", serialization.resize_storage)
    route("cpu", serialization.storage_to_cpu)
    route("clone", serialization.clone_storage)
    route("tolist", lambda self: serialization.storage_to_cpu(self).tolist())
    route("__getitem__", lambda self, index: serialization.storage_to_cpu(self)[index])
    route("_write_file", serialization.write_storage_to_file)
    route("_set_from_file", serialization.read_storage_from_file)
    original_copy = storage_class.copy_

    def copy_(self, source, non_blocking=None):
        if hasattr(self, "tpu_buffer"):
            return serialization.copy_storage(self, source)
        if hasattr(source, "tpu_buffer"):
            source = serialization.storage_to_cpu(source)
        return original_copy(self, source, non_blocking)

    storage_class.copy_ = copy_


def _patch_accelerator() -> None:
    """torch.accelerator asks the C++ device guard and allocator to wait, for streams and for memory,
    which the Python device hooks cannot provide (one of the calls would crash the process). Where the
    accelerator is the tpu, torch.tpu answers.

    Removed when the Python device hooks cover streams, waiting and memory statistics.
    """
    accelerator = torch.accelerator

    def route(name, on_tpu):
        original = getattr(accelerator, name, None)
        if original is None:
            return  # not in this release of PyTorch

        @functools.wraps(original)
        def function(*args, **kwargs):
            device = accelerator.current_accelerator()
            if device is not None and device.type == "tpu":
                return on_tpu(*args, **kwargs)
            return original(*args, **kwargs)

        setattr(accelerator, name, function)
        if getattr(accelerator.memory, name, None) is original:
            setattr(accelerator.memory, name, function)

    for name in (
        "synchronize",
        "current_stream",
        "set_stream",
        "empty_cache",
        "memory_stats",
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "reset_peak_memory_stats",
        "get_device_capability",
    ):
        route(name, getattr(torch.tpu, name))
    route("get_memory_info", torch.tpu.mem_get_info)
    route("reset_accumulated_memory_stats", torch.tpu.reset_peak_memory_stats)
    route("empty_host_cache", torch.tpu.empty_cache)
