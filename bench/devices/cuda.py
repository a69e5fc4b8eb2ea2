"""Native PyTorch on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bench.devices.base import Device, Reading
from bench.options import UsageError

if TYPE_CHECKING:
    import torch


class CudaDevice(Device):
    """The current CUDA device; work is queued on its current stream."""

    name = "cuda"

    def start(self) -> None:
        import torch

        if not torch.cuda.is_available():
            built = torch.version.cuda
            why = (
                f"PyTorch {torch.__version__} finds no CUDA GPU"
                if built
                else (f"this PyTorch ({torch.__version__}) is built without CUDA")
            )
            raise UsageError(f"device=cuda: {why}; use device=cpu or device=tpu")
        self._device = torch.device("cuda", torch.cuda.current_device())

    @property
    def torch_device(self) -> torch.device:
        return self._device

    @property
    def is_accelerator(self) -> bool:
        return True

    @property
    def chip(self) -> str | None:
        import torch

        return torch.cuda.get_device_name(self._device)

    def describe(self) -> str:
        import torch

        return f"cuda ({self.chip}, native PyTorch, CUDA {torch.version.cuda})"

    def modes(self) -> tuple[str, ...]:
        return ("eager", "compile")

    def loader(self, batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            yield {
                name: value.pin_memory().to(self._device, non_blocking=True)
                for name, value in batch.items()
            }

    def wait(self, tensors: Iterable[torch.Tensor]) -> None:
        """Wait for all that is queued on the stream that computes these tensors.

        A CUDA tensor has no completion event of its own; the event recorded behind its last
        writer on the same stream is the nearest thing.
        """
        import torch

        kept = list(tensors)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        event.synchronize()
        del kept

    def peak_memory_bytes(self) -> Reading:
        import torch

        peak = torch.cuda.max_memory_allocated(self._device)
        return Reading(float(peak), "torch.cuda.max_memory_allocated")

    def reset_peak_memory(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(self._device)

    def release(self) -> None:
        import torch

        torch.cuda.empty_cache()
