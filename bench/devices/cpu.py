"""Native PyTorch on this machine's CPU: the reference that every other device is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bench.devices.base import Device

if TYPE_CHECKING:
    import torch


class CpuDevice(Device):
    """Operators return when they are done, so there is nothing to wait for."""

    name = "cpu"

    def start(self) -> None:
        import torch

        self._device = torch.device("cpu")

    @property
    def torch_device(self) -> torch.device:
        return self._device

    @property
    def is_reference(self) -> bool:
        return True

    def describe(self) -> str:
        import torch

        return f"cpu (native PyTorch, {torch.get_num_threads()} threads)"

    def modes(self) -> tuple[str, ...]:
        return ("eager", "compile")

    def wait(self, tensors: Iterable[torch.Tensor]) -> None:
        pass
