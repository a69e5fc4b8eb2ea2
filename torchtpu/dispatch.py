"""Binds ATen to the PrivateUse1 key. The only file that does.

Every registered lowering serves its functional overload and all in-place and out= overloads whose
schemas follow from it. What touches storages rather than values (creation, views, copies between
devices, resizing) is written out here. Anything else goes to PyTorch's decomposition or, counted
and named, to the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchtpu import fallback
from torchtpu import lowerings as _families  # noqa: F401  (fills the registry)
from torchtpu.composites import composites
from torchtpu.engines import decomposed, eager, forms
from torchtpu.engines.fast import fast_kernel
from torchtpu.engines.infer import meta_like
from torchtpu.errors import FallbackError
from torchtpu.lowerings import registry
from torchtpu.runtime import client
from torchtpu.runtime.buffer import contiguous_stride, is_dense, layout
from torchtpu.tensor import (
    META_KEYS,
    adopt_layout,
    buffer_of,
    check_in_bounds,
    check_placement,
    empty,
    empty_strided,
    from_cpu,
    is_tpu_tensor,
    is_whole,
    new_tensor,
    set_geometry,
)

aten = torch.ops.aten
_library = torch.library.Library("aten", "IMPL")
_fallback_library = torch.library.Library("_", "IMPL")
kernels: dict[torch._ops.OpOverload, eager.Kernel] = {}


_CPU = torch.device("cpu")


def _dtype(dtype) -> torch.dtype:
    return torch.get_default_dtype() if dtype is None else dtype


# -- creation ------------------------------------------------------------------------------------


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    check_placement(layout, device)
    tensor_dtype = _dtype(dtype)
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        return empty(size, tensor_dtype)
    probe = torch.empty(size, dtype=tensor_dtype, device="meta", memory_format=memory_format)
    return empty_strided(size, probe.stride(), tensor_dtype)


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    check_placement(layout, device)
    return empty_strided(size, stride, _dtype(dtype))


# -- views ---------------------------------------------------------------------------------------

_VIEWS = (
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
)
# PyTorch's own kernels of these make the view without calling one of those above.
_COMPOSITE_VIEWS = (
    aten.view.dtype,
    aten._conj.default,
    aten._neg_view.default,
    aten._unsafe_view.default,
)
_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)


def _view_kernel(overload, keys=META_KEYS):
    redispatch = overload.redispatch

    def kernel(self, *args, **kwargs):
        buffer_of(self).mark_viewed()
        return redispatch(keys, self, *args, **kwargs)

    return kernel


def _as_strided(self, size, stride, storage_offset=None):
    offset = self.storage_offset() if storage_offset is None else storage_offset
    buffer = buffer_of(self)
    check_in_bounds(buffer, size, stride, offset, self.dtype)
    buffer.mark_viewed()
    return aten.as_strided.default.redispatch(META_KEYS, self, size, stride, offset)


def _as_strided_(self, size, stride, storage_offset=None):
    offset = self.storage_offset() if storage_offset is None else storage_offset
    check_in_bounds(buffer_of(self), size, stride, offset, self.dtype)
    set_geometry(self, size, stride, offset)
    return self


def _set_storage_offset(self, source, storage_offset, size, stride=()):
    if not hasattr(source, "tpu_buffer"):
        raise RuntimeError(
            f"set_ on a tpu tensor needs a storage on the tpu device, not on {source.device}"
        )
    stride = tuple(stride) if len(stride) == len(size) else contiguous_stride(size)
    check_in_bounds(source.tpu_buffer, size, stride, storage_offset, self.dtype)
    source.tpu_buffer.mark_viewed()
    aten.set_.source_Storage_storage_offset.redispatch(
        META_KEYS, self, source, storage_offset, size, stride
    )
    _adopt_dtype(self, source.tpu_buffer)
    return self


def _adopt_dtype(tensor, buffer) -> None:
    """Let a storage of bytes, as torch.load makes them, lie as the tensor that covers all of it."""
    own = layout(tuple(tensor.shape), tensor.stride(), tensor.dtype)
    if (
        buffer.layout.dtype is torch.uint8
        and tensor.dtype is not torch.uint8
        and own.nbytes == buffer.layout.nbytes > 0
        and is_dense(own.size, own.stride)
        and buffer.array is not None
    ):
        buffer.put(buffer_of(kernels[aten.clone.default](tensor)).array, own)


def _set_storage(self, source):
    elements = source.nbytes() // self.dtype.itemsize
    return _set_storage_offset(self, source, 0, (elements,), (1,))


def _set_tensor(self, source):
    return _set_storage_offset(
        self, source.untyped_storage(), source.storage_offset(), source.shape, source.stride()
    )


def _set_nothing(self):
    return _set_tensor(self, empty((0,), self.dtype))


def _resize(self, size, *, memory_format=None):
    size = tuple(size)
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to resize a tensor to a negative size: {list(size)}")
    if size == tuple(self.shape) and memory_format is None:
        return self  # whatever its strides, as PyTorch does
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        stride = contiguous_stride(size)
    else:
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    offset = self.storage_offset()
    numel = 1
    for n in size:
        numel *= n
    _grow(self, offset + numel if numel else 0)
    set_geometry(self, size, stride, offset)
    adopt_layout(self, buffer_of(self))
    return self


def _grow(tensor, numel: int) -> None:
    """Make a tensor's storage hold at least `numel` elements of its dtype; old contents stay."""
    resize_storage(tensor.untyped_storage(), numel * tensor.dtype.itemsize, only_grow=True)


def resize_storage(storage, nbytes: int, only_grow: bool = False) -> None:
    """Resize a tpu storage to `nbytes`; the contents that fit stay."""
    buffer = storage.tpu_buffer
    old = buffer.layout
    if nbytes == old.nbytes or (only_grow and nbytes < old.nbytes):
        return
    buffer.mark_viewed()
    dtype = old.dtype if nbytes % old.dtype.itemsize == 0 else torch.uint8
    elements = nbytes // dtype.itemsize
    new_layout = layout((elements,), (1,), dtype)
    if buffer.array is None or elements == 0 or old.numel == 0:
        buffer.put(None, new_layout)
        return
    source = new_tensor(buffer.array, old)
    kept = min(nbytes, old.nbytes) // dtype.itemsize
    source = aten.set_.source_Storage_storage_offset.redispatch(
        META_KEYS, empty((0,), dtype), source.untyped_storage(), 0, (kept,), (1,)
    )
    buffer_of(source).mark_viewed()
    grown = empty((elements,), dtype)
    grown[:kept].copy_(source)
    buffer.put(buffer_of(grown).array, new_layout)


# -- copies --------------------------------------------------------------------------------------


def _whole(tensor):
    """The Buffer of a tensor that is all of its storage as it is, else None."""
    buffer = buffer_of(tensor)
    return buffer if is_whole(tensor, buffer) else None


def read(tensor):
    """The tensor's values as a JAX array in its logical shape."""
    buffer = _whole(tensor)
    if buffer is None:
        buffer = buffer_of(kernels[aten.clone.default](tensor))
    return buffer.materialize()


def to_cpu(tensor) -> Tensor:
    """A contiguous CPU tensor with a copy of a tpu tensor's values."""
    if eager.is_tracing():
        raise FallbackError(
            "a value was needed on the host while a Program was being traced (.item(), .cpu(), "
            "printing, or an if on a tensor). Compute it outside the traced function."
        )
    return client.to_cpu_tensor(read(tensor), tensor.dtype)


def _copy(self, src, non_blocking=False):
    if self is src:
        return self
    if not is_tpu_tensor(self):
        return self.copy_(to_cpu(src))
    adopt_layout(self, buffer_of(self))
    if not is_tpu_tensor(src):
        if src.layout is not torch.strided:
            raise NotImplementedError(f"cannot copy a {src.layout} tensor to the tpu device")
        if src.device.type != "cpu":
            src = src.cpu()
        if src.dtype != self.dtype:
            src = src.to(self.dtype)
        if src.dim() > self.dim() or torch.broadcast_shapes(src.shape, self.shape) != self.shape:
            raise RuntimeError(
                f"The size of tensor a {tuple(self.shape)} must match the size of tensor b "
                f"{tuple(src.shape)}"
            )
        src = from_cpu(src)
    target, source = _whole(self), _whole(src)
    if target is not None and source is not None and target.layout is source.layout:
        # Arrays are immutable: sharing one is a copy.
        target.put(source.array, source.layout)
        return self
    return kernels[aten.copy_.default](self, src)


def _copy_from(self, dst, non_blocking=False):
    _copy(dst, self, non_blocking)
    return dst


def _clone(self, *, memory_format=None):
    buffer = _whole(self)
    if buffer is not None and buffer.array is not None:
        keeps = memory_format in (None, torch.preserve_format)
        if keeps or (memory_format is torch.contiguous_format and buffer.layout.is_contiguous):
            return new_tensor(buffer.array, buffer.layout)
    if memory_format is None:
        return kernels[aten.clone.default](self)
    return kernels[aten.clone.default](self, memory_format=memory_format)


def _to_copy(self, **kwargs):
    device = kwargs.get("device")
    if device is not None and device.type != "tpu":
        dtype = kwargs.get("dtype") or self.dtype
        memory_format = kwargs.get("memory_format") or torch.preserve_format
        cast = self if dtype == self.dtype else kernels[aten._to_copy.default](self, dtype=dtype)
        result = to_cpu(cast)
        if device.type != "cpu":
            result = result.to(device)
        if memory_format is torch.preserve_format:
            # PyTorch keeps the strides of a dense tensor.
            if is_dense(tuple(self.shape), self.stride()) and 0 not in self.shape:
                strided = torch.empty_strided(
                    tuple(self.shape), self.stride(), dtype=dtype, device=device
                )
                return strided.copy_(result)
            return result
        return result.contiguous(memory_format=memory_format)
    check_placement(kwargs.get("layout"), device)
    if not is_tpu_tensor(self):
        return _from_host(self, kwargs.get("dtype"), kwargs.get("memory_format"))
    options = {k: v for k, v in kwargs.items() if k in ("dtype", "memory_format") and v is not None}
    if options.get("dtype", self.dtype) == self.dtype:
        return _clone(self, memory_format=options.get("memory_format"))
    return kernels[aten._to_copy.default](self, **options)


def _from_host(source, dtype, memory_format) -> Tensor:
    """A tpu tensor with a copy of a tensor of another device, strides as ``Tensor.to`` gives them."""
    if source.layout is not torch.strided:
        raise NotImplementedError(
            f"tpu tensors are dense (torch.strided); a {source.layout} tensor cannot move to tpu. "
            "Call .to_dense() first."
        )
    dtype = source.dtype if dtype is None else dtype
    memory_format = torch.preserve_format if memory_format is None else memory_format
    stride = torch.empty_like(meta_like(source), memory_format=memory_format).stride()
    host = source.cpu().to(dtype)
    result_layout = eager.result_layout(
        torch.empty_strided(tuple(source.shape), stride, dtype=dtype, device="meta")
    )
    return new_tensor(client.from_cpu_tensor(host), result_layout)


def _local_scalar_dense(self):
    return to_cpu(self).item()


def _equal(self, other):
    if not (is_tpu_tensor(self) and is_tpu_tensor(other)):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{self.device} and {other.device}!"
        )
    return self.shape == other.shape and bool((self == other).all().item())


def _linalg_check_errors(info, api_name, *, is_matrix):
    # PyTorch's own kernel looks at `info` on the host, which a Program cannot.
    if not eager.is_tracing():
        aten._linalg_check_errors.default(to_cpu(info), api_name, is_matrix=is_matrix)


def _is_set_to(self, tensor):
    return (
        self.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        and self.storage_offset() == tensor.storage_offset()
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
    )


def _record_stream(self, stream):
    return None


# -- indexing with masks ----------------------------------------------------------------------------


def _integer_indices(indices, self):
    """Indices as the lowerings take them: masks become integer positions, CPU indices move over."""
    result = []
    for index in indices:
        if index is None:
            result.append(None)
            continue
        if index.dtype in (torch.bool, torch.uint8):
            dim = len(result)
            if tuple(index.shape) != tuple(self.shape[dim : dim + index.dim()]):
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {dim} does not match the "
                    f"shape of the indexed tensor {list(self.shape)} at index {dim}"
                )
            result.extend(part.to("tpu") for part in index.nonzero().unbind(1))
        else:
            result.append(index if is_tpu_tensor(index) else index.to("tpu"))
    return result


def _with_integer_indices(kernel, base: str):
    masked_fill = aten.masked_fill_ if base.endswith("_") else aten.masked_fill

    def run(self, indices, *args, **kwargs):
        accumulate = len(args) > 1 and args[1]
        if args and not accumulate and _is_whole_mask(indices, self) and args[0].numel() == 1:
            # `x[mask] = number`: no shape depends on the mask.
            return masked_fill(self, indices[0].to("tpu"), args[0].reshape(()))
        if any(
            index is not None
            and (index.dtype in (torch.bool, torch.uint8) or not is_tpu_tensor(index))
            for index in indices
        ):
            indices = _integer_indices(indices, self)
        values = [a.to("tpu") if _is_cpu_scalar(a) else a for a in args]
        return kernel(self, indices, *values, **kwargs)

    return run


def _is_whole_mask(indices, self) -> bool:
    if len(indices) != 1 or indices[0] is None:
        return False
    return indices[0].dtype is torch.bool and indices[0].shape == self.shape


def _is_cpu_scalar(value) -> bool:
    return isinstance(value, Tensor) and value.device.type == "cpu" and value.dim() == 0


_INDEXING = (
    "index",
    "_unsafe_index",
    "index_put",
    "index_put_",
    "_unsafe_index_put",
    "_index_put_impl",
    "_index_put_impl_",
)


# -- registration --------------------------------------------------------------------------------


def _implement(overload, function, key="PrivateUse1") -> None:
    name = overload.name().removeprefix("aten::")
    _library.impl(name, function, key, allow_override=True)


def _register_lowering(lowering) -> None:
    for form in (forms.functional_form(lowering), *forms.derived_forms(lowering)):
        overload = form.overload
        if overload in kernels or overload.namespace != "aten":
            continue
        if form.overload is not lowering.overload and registry.lookup(overload) is not None:
            continue  # it has a lowering of its own
        kernel = eager.Kernel(form, _run_on_cpu)
        kernels[overload] = kernel
        if overload in _WRITTEN_OUT:
            continue
        function = fast_kernel(kernel)
        base = overload._schema.name.removeprefix("aten::")
        if base in _INDEXING:
            function = _with_integer_indices(function, base)
        _implement(overload, function)


_WRITTEN_OUT = {
    aten.empty.memory_format: _empty,
    aten.empty_strided.default: _empty_strided,
    aten.as_strided.default: _as_strided,
    aten.as_strided_.default: _as_strided_,
    aten.set_.source_Storage_storage_offset: _set_storage_offset,
    aten.set_.source_Storage: _set_storage,
    aten.set_.source_Tensor: _set_tensor,
    aten.set_.default: _set_nothing,
    aten.resize_.default: _resize,
    aten.copy_.default: _copy,
    aten._copy_from.default: _copy_from,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _local_scalar_dense,
    aten.equal.default: _equal,
    aten._linalg_check_errors.default: _linalg_check_errors,
    aten.is_set_to.default: _is_set_to,
    aten.record_stream.default: _record_stream,
}


_late: dict[torch._ops.OpOverload, eager.Kernel | None] = {}


def _fallback(overload, *args, **kwargs):
    """Any operator that has no kernel of its own on this key: PyTorch's decomposition, or the CPU."""
    if overload not in _late:
        _late[overload] = decomposed.kernel_for(overload, read, _run_on_cpu)
    kernel = _late[overload]
    if kernel is not None:
        try:
            return kernel(*args, **kwargs)
        except FallbackError:
            # The decomposition needs a value on the host, or an operator that only the CPU has.
            if eager.is_tracing():
                raise
    result = _run_on_cpu(overload, args, kwargs)
    _late[overload] = None  # not before the CPU could: a setting may have forbidden it
    return result


def _run_on_cpu(overload, args, kwargs):
    return fallback.run_on_cpu(overload, args, kwargs, lambda t: _to_copy(t, device=_CPU))


def register() -> None:
    """Fill the dispatch table of the PrivateUse1 key. Called once, at first use of the device."""
    _fallback_library.fallback(_fallback, "PrivateUse1")
    for overload in _VIEWS:
        _implement(overload, _view_kernel(overload))
    for overload in _COMPOSITE_VIEWS:
        _implement(overload, _view_kernel(overload, _COMPOSITE))
    for overload, function in _WRITTEN_OUT.items():
        _implement(overload, function)
    for lowering in registry.lowerings().values():
        _register_lowering(lowering)
    for (overload, key), function in composites().items():
        _implement(overload, function, key)
    registry.freeze()
