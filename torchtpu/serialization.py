"""Storages to and from the host: ``torch.save``, ``torch.load``, copying and resizing of storages."""

from __future__ import annotations

import torch


def storage_to_cpu(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A CPU storage with a copy of a tpu storage's bytes."""
    from torchtpu import dispatch
    from torchtpu.tensor import empty

    if storage.nbytes() == 0:
        return torch.UntypedStorage(0)
    # The whole storage as one flat tensor of its own dtype. Of a clone, which shares the array: a
    # storage that has been viewed is slower to use from then on.
    lay = storage.tpu_buffer.layout
    flat = empty((0,), lay.dtype).set_(clone_storage(storage), 0, (lay.numel,), (1,))
    return dispatch.to_cpu(flat).untyped_storage()


def storage_to_tpu(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A tpu storage with a copy of a CPU storage's bytes."""
    flat = torch.empty(0, dtype=torch.uint8).set_(storage)
    return flat.to("tpu").untyped_storage()


def clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A tpu storage of its own with the same bytes."""
    from torchtpu.tensor import new_tensor

    buffer = storage.tpu_buffer
    return new_tensor(buffer.array, buffer.layout).untyped_storage()


def copy_storage(target: torch.UntypedStorage, source) -> torch.UntypedStorage:
    """Copy the bytes of a storage of any device into a tpu storage of the same size."""
    if source.nbytes() != target.nbytes():
        raise RuntimeError(
            f"cannot copy a storage of {source.nbytes()} bytes into one of {target.nbytes()} bytes"
        )
    if not hasattr(source, "tpu_buffer"):
        source = storage_to_tpu(source.cpu())
    if target.tpu_buffer.layout is not source.tpu_buffer.layout:
        target.tpu_buffer.mark_viewed()  # by the target's own tensors
    target.tpu_buffer.put(source.tpu_buffer.array, source.tpu_buffer.layout)
    return target


def resize_storage(storage: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    """Resize a tpu storage; 0 drops its buffer."""
    from torchtpu import dispatch

    dispatch.resize_storage(storage, int(nbytes))
    return storage


def write_storage_to_file(storage: torch.UntypedStorage, *args) -> None:
    """``UntypedStorage._write_file``, of the bytes on the device."""
    storage_to_cpu(storage)._write_file(*args)


def read_storage_from_file(storage: torch.UntypedStorage, *args) -> torch.UntypedStorage:
    """``UntypedStorage._set_from_file``, into the device."""
    host = torch.UntypedStorage(storage.nbytes())
    host._set_from_file(*args)
    return copy_storage(storage, host)


def _tag(storage):
    return "tpu" if storage.device.type == "tpu" else None


def _restore(storage, location):
    if location == "tpu" or location.startswith("tpu:"):
        return storage_to_tpu(storage)
    return None


def register() -> None:
    """Tell torch.save and torch.load of tpu storages."""
    # Before PyTorch's own entry for outside devices, which copies raw memory.
    torch.serialization.register_package(1, _tag, _restore)
