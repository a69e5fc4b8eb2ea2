"""What a workload is: a job on real input. No timing and no device names in here.

A workload makes its model and its batches on the CPU; whoever runs it moves them. Batches are
dicts of CPU tensors of one fixed shape, the same for the same seed and index everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

Batch = dict[str, "torch.Tensor"]


@dataclass(frozen=True)
class Setting:
    """What a workload is told about its run.

    is_accelerator  whether the batches' defaults may be those of an accelerator
    cache_dir       where things that are costly to make may be kept
    """

    seed: int = 0
    is_accelerator: bool = False
    cache_dir: Path | None = None


class Workload(ABC):
    """Common to all kinds. `Options` is the dataclass of the workload's configuration group."""

    Options: ClassVar[type]

    def __init__(self, options: Any, setting: Setting) -> None:
        self.options = options
        self.setting = setting
        self.warnings: list[str] = []

    def resolved(self) -> dict[str, Any]:
        """The options as used, with every default filled in."""
        return asdict(self.options)

    def load(self) -> None:  # noqa: B027 (a hook)
        """Import what the workload needs; counts as import time."""

    def prepare(self) -> None:  # noqa: B027 (a hook)
        """Read and prepare the input, on the host. Raises UsageError if it cannot be used."""

    @property
    def corpus_hash(self) -> str | None:
        """Identity of the input: losses of different hashes are never compared."""
        return None

    def facts(self) -> dict[str, Any]:
        """What a reader should know about the job, e.g. the number of parameters."""
        return {}


class TrainingWorkload(Workload):
    """Training steps: build a model, then step through batches."""

    @abstractmethod
    def build(self) -> torch.nn.Module:
        """The model in training mode, on the CPU, the same for the same seed.

        Allocates nothing that FakeTensor cannot stand in for.
        """

    @abstractmethod
    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the model's parameters, wherever they are by now."""

    @abstractmethod
    def batch(self, index: int) -> Batch:
        """The batch of a step."""

    @abstractmethod
    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Scalar loss of the forward pass."""

    @abstractmethod
    def work_per_step(self) -> dict[str, float]:
        """How much one step does, most telling unit first, e.g. {"sequences": 2, "tokens": 256}."""

    @abstractmethod
    def parity_variant(self, *, reduced: bool) -> tuple[TrainingWorkload, str]:
        """The same job without noise (dropout 0), and what else differs.

        It shares the prepared input. `reduced`: smaller, for a machine that cannot hold it whole.
        """

    @abstractmethod
    def estimated_memory_bytes(self) -> int:
        """Roughly what a training step holds at its peak, in float32."""

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Endless batches in order."""
        index = start
        while True:
            yield self.batch(index)
            index += 1

    def step(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: Batch,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
    ) -> torch.Tensor:
        """One training step; the detached loss, still on the device. Never waits for it."""
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = self.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()


@dataclass
class Side:
    """One of the things that a comparison measures in turn.

    block(calls) does that many calls without waiting and returns the tensors or arrays that hold
    the last results; wait(results) returns when they exist; read(results) is a plain number.
    """

    name: str
    block: Callable[[int], list[Any]]
    wait: Callable[[list[Any]], None]
    read: Callable[[list[Any]], float]


@dataclass
class Comparison:
    """Sides to be measured block by block in turn. The first is judged against the second."""

    sides: list[Side]
    blocks: int
    calls_per_block: int
    ratio_name: str
    expected: float
    notes: list[str] = field(default_factory=list)


class ComparisonWorkload(Workload):
    """The same small work done in two ways in one process."""

    @abstractmethod
    def comparison(self, device: Any) -> Comparison:
        """The sides, made with what the device object offers."""
