"""The `tpu` device of torchtpu. The only file of the harness, beside the estimates, that imports it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bench.devices.base import BareCall, Device, Reading, Step
from bench.options import UsageError

if TYPE_CHECKING:
    import torch


class TpuDevice(Device):
    """PyTorch on XLA through PJRT: on a TPU where there is one, else on another PJRT platform."""

    name = "tpu"

    def start(self) -> None:
        try:
            import torch

            import torchtpu
            from torchtpu import errors, metrics
            from torchtpu.runtime import client
        except ImportError as error:
            raise UsageError(f"device=tpu: torchtpu cannot be imported ({error})") from None
        try:
            torchtpu._autoload()
            client.device()
        except errors.TpuError as error:
            raise UsageError("device=tpu: " + " ".join(str(error).split())) from None
        self._client, self._metrics = client, metrics
        self._device = torch.device("tpu", 0)

    @property
    def torch_device(self) -> torch.device:
        return self._device

    @property
    def is_accelerator(self) -> bool:
        return self.platform != "cpu"

    @property
    def platform(self) -> str:
        return self._client.platform()

    @property
    def chip(self) -> str | None:
        return self._client.device().device_kind if self.is_accelerator else None

    def describe(self) -> str:
        return self._client.describe()

    def modes(self) -> tuple[str, ...]:
        import torchtpu

        modes = ["eager"]
        if importlib.util.find_spec("torchtpu.engines.compile"):
            modes.append("compile")
        if hasattr(torchtpu, "capture"):
            modes.append("capture")
        return tuple(modes)

    def compiled(self, model: Any) -> Any:
        import torch

        return torch.compile(model, backend="torchtpu")

    def wrap_step(self, step: Step, model: Any, optimizer: Any) -> Callable[[Any], torch.Tensor]:
        run = super().wrap_step(step, model, optimizer)
        if self.options.mode == "capture":
            import torchtpu

            return torchtpu.capture(run)
        return run

    def wait(self, tensors: Iterable[torch.Tensor]) -> None:
        """Wait for the arrays behind these tensors."""
        buffers = [tensor.untyped_storage().tpu_buffer for tensor in tensors]
        self._client.block_until_ready([buffer.materialize() for buffer in buffers])

    def compiles(self) -> int:
        return self._metrics.compiles()

    def fallbacks(self) -> dict[str, int]:
        return self._metrics.fallbacks()

    def peak_memory_bytes(self) -> Reading:
        stats = self._client.device().memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        if peak is None:
            return Reading(
                None, f"the PJRT platform {self.platform} does not say; it is host memory"
            )
        return Reading(
            float(peak), "PJRT memory_stats peak_bytes_in_use, since the process started"
        )

    def release(self) -> None:
        import torch

        torch.tpu.empty_cache()

    def bare_call(self, operation: str) -> BareCall | None:
        if operation != "add":
            return None
        import jax
        import numpy as np

        target = self._client.device()

        def put(value: float, shape: tuple[int, ...]) -> Any:
            return jax.device_put(np.full(shape, value, np.float32), target)

        return BareCall(
            name="jax.jit(lambda a, b: a + b)",
            call=jax.jit(lambda a, b: a + b),
            put=put,
            wait=jax.block_until_ready,
            read=lambda array: float(np.asarray(array)[-1, -1]),
        )
