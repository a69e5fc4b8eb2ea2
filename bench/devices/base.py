"""What a device is to the harness. Knows no workload.

A device object moves things there, says which ways of running it has, waits for results, counts
compilations and CPU fallbacks, and says in one sentence what it really ran on.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from bench.options import UsageError, one_of, option

if TYPE_CHECKING:
    import torch

MODES = ("eager", "fused", "compile", "capture")
PRECISIONS = ("fp32", "bf16")

Step = Callable[..., "torch.Tensor"]


@dataclass(frozen=True)
class DeviceOptions:
    """mode: how the step is run; precision: fp32, or bf16 by autocast."""

    mode: str = option(choices=MODES)
    precision: str = option(choices=PRECISIONS)


@dataclass(frozen=True)
class Reading:
    """A number, or None and in `method` the reason why there is none."""

    value: float | None
    method: str


@dataclass(frozen=True)
class BareCall:
    """A call made without PyTorch, to judge PyTorch's cost by.

    call(a, b) is asynchronous; put(values, shape) makes its float32 argument; wait and read as
    the device's own, on the call's results.
    """

    name: str
    call: Callable[[Any, Any], Any]
    put: Callable[[float, tuple[int, ...]], Any]
    wait: Callable[[Iterable[Any]], None]
    read: Callable[[Any], float]


class ParametersUntied(Exception):
    """A move to a device made several parameters of one: another model would be trained."""


def _shared(model: torch.nn.Module) -> set[frozenset[str]]:
    """The groups of names that stand for one and the same parameter."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


class Device(ABC):
    """One device of this machine. The constructor only keeps the options: it imports nothing."""

    name: ClassVar[str]
    Options: ClassVar[type] = DeviceOptions

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options

    # Identity

    @abstractmethod
    def start(self) -> None:
        """Import and start the runtime. Raises UsageError, in one line, if it is not there."""

    @property
    @abstractmethod
    def torch_device(self) -> torch.device: ...

    @property
    def is_accelerator(self) -> bool:
        """True only if the arithmetic runs on something else than this machine's CPU."""
        return False

    @property
    def is_reference(self) -> bool:
        """True for the device that others are compared with."""
        return False

    @property
    def platform(self) -> str:
        """The PJRT platform, or "native" for plain PyTorch."""
        return "native"

    @property
    def chip(self) -> str | None:
        """The chip's name as the runtime gives it."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """One sentence for people on what this device is."""

    def with_precision(self, precision: str) -> Device:
        """The same started device with another precision."""
        other = copy.copy(self)
        other.options = replace(self.options, precision=precision)
        return other

    # Running

    @abstractmethod
    def modes(self) -> tuple[str, ...]:
        """The modes that work here."""

    def check_mode(self) -> None:
        """Raise UsageError if the configured mode is not there."""
        if self.options.mode not in self.modes():
            valid = one_of(self.options.mode, self.modes())
            raise UsageError(
                f"device.mode={self.options.mode}: not available on {self.name}; {valid}"
            )

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model on this device. Raises ParametersUntied if the move changed the model."""
        before = _shared(model)
        placed = model.to(self.torch_device)
        lost = before - _shared(placed)
        if lost:
            names = "; ".join(" = ".join(sorted(group)) for group in lost)
            raise ParametersUntied(
                f"moving the model to {self.name} parted shared weights: {names}"
            )
        return placed

    def loader(self, batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The batches on this device, in order."""
        for batch in batches:
            yield {name: value.to(self.torch_device) for name, value in batch.items()}

    def autocast(self) -> AbstractContextManager:
        """The context of the forward pass for the configured precision."""
        if self.options.precision == "fp32":
            return nullcontext()
        import torch

        return torch.autocast(self.torch_device.type, dtype=torch.bfloat16)

    def wrap_step(self, step: Step, model: Any, optimizer: Any) -> Callable[[Any], torch.Tensor]:
        """batch -> loss, by the configured mode. `step` is the workload's step."""
        if self.options.mode == "compile":
            model = self.compiled(model)
        return lambda batch: step(model, optimizer, batch, self.autocast)

    def compiled(self, model: Any) -> Any:
        import torch

        return torch.compile(model)

    @abstractmethod
    def wait(self, tensors: Iterable[torch.Tensor]) -> None:
        """Return when the values of these very tensors exist."""

    # What happened

    def compiles(self) -> int:
        """How many executables were compiled so far in this process."""
        # Looked up, not imported: that takes seconds, and who compiled has done it.
        dynamo = sys.modules.get("torch._dynamo.utils")
        return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0

    def fallbacks(self) -> dict[str, int]:
        """Operator -> how often it ran on the CPU instead, so far."""
        return {}

    def peak_memory_bytes(self) -> Reading:
        """The device's own peak since `reset_peak_memory`."""
        return Reading(None, "the device has no memory of its own: see host_peak_memory_bytes")

    def reset_peak_memory(self) -> None:  # noqa: B027 (a hook)
        """Start a new peak."""

    def release(self) -> None:  # noqa: B027 (a hook)
        """Give unused memory back before something large is built."""

    def bare_call(self, operation: str) -> BareCall | None:
        """The same operation ("add") without PyTorch, or None where there is none."""
        return None
