"""A clock, a device and a workload with known answers, for the timing contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from bench.devices.base import Device, DeviceOptions
from bench.meters.memory import MemoryMeter, MemoryOptions
from bench.meters.time import TimeMeter, TimeOptions
from bench.parity import ParityOptions
from bench.plan import Plan, ReportOptions, RunOptions, ScaleOptions
from bench.workloads.base import Setting, TrainingWorkload


@dataclass
class FakeClock:
    """Stands still until something takes time."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class FakeDevice(Device):
    """Steps take `step_s` on the fake clock, in the background: only `wait` makes them pass.

    step_s(n) gives the seconds of the n-th step; compiles_at: steps that compile something;
    is_broken: every loss is off by 1 %; forgets_to_wait: `wait` returns at once.
    """

    name = "fake"

    def __init__(self, clock, step_s=lambda n: 0.1, compiles_at=(0,), options=None):
        super().__init__(options or DeviceOptions("eager", "fp32"))
        self.clock, self.step_s, self.compiles_at = clock, step_s, set(compiles_at)
        self.is_broken = self.forgets_to_wait = self.reference = False
        self.state = {"steps": 0, "compiled": 0, "ready_s": 0.0, "ops": {}}

    def start(self) -> None:
        pass

    @property
    def torch_device(self):
        return torch.device("cpu")

    @property
    def is_reference(self) -> bool:
        return self.reference

    @property
    def platform(self) -> str:
        return "fake"

    def describe(self) -> str:
        return "fake (a test)"

    def modes(self):
        return ("eager",)

    def wrap_step(self, step, model, optimizer):
        inner = super().wrap_step(step, model, optimizer)

        def run(batch):
            n = self.state["steps"]
            self.state["steps"] += 1
            self.state["compiled"] += n in self.compiles_at
            self.state["ready_s"] = max(self.clock(), self.state["ready_s"]) + self.step_s(n)
            loss = inner(batch)
            return LateTensor.of(loss * 1.01 if self.is_broken else loss, self)

        return run

    def catch_up(self) -> None:
        self.clock.now_s = max(self.clock.now_s, self.state["ready_s"])

    def wait(self, tensors) -> None:
        assert len(list(tensors)) >= 1
        if not self.forgets_to_wait:
            self.catch_up()

    def compiles(self) -> int:
        return self.state["compiled"]

    def fallbacks(self):
        return dict(self.state["ops"])


class LateTensor(torch.Tensor):
    """A loss that is there only when its device has caught up."""

    @staticmethod
    def of(value, device):
        late = value.detach().as_subclass(LateTensor)
        late._late_device = device
        return late

    def cpu(self):
        self._late_device.catch_up()
        return self.as_subclass(torch.Tensor).cpu()


class FakeWorkload(TrainingWorkload):
    """Fits a line: 4 weights, no dropout."""

    def build(self):
        torch.manual_seed(self.setting.seed)
        return torch.nn.Linear(4, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def batch(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(8, 4, generator=generator)
        return {"x": x, "y": x.sum(1, keepdim=True)}

    def loss(self, model, batch):
        return torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])

    def resolved(self):
        return {}

    def work_per_step(self):
        return {"lines": 8.0}

    def parity_variant(self, *, reduced):
        return self, "reduced" if reduced else "whole"

    def estimated_memory_bytes(self):
        return 1


@dataclass
class FakePlan:
    """Builds plans; change a part before `make`."""

    device: FakeDevice
    workload: type = FakeWorkload
    scale: dict = field(default_factory=dict)
    parity: ParityOptions = field(default_factory=lambda: ParityOptions(True, 3, 1e-3))

    def make(self) -> Plan:
        scale = {
            "name": "test",
            "warm_up_window": 2,
            "warm_up_tolerance": 0.1,
            "min_warm_up_steps": 2,
            "max_warm_up_steps": 6,
            "min_steps": 10,
            "max_steps": 10,
            "window_s": 0.0,
        } | self.scale
        reference = FakeDevice(FakeClock())
        reference.reference = True
        return Plan(
            config={"workload": {"name": "fake"}},
            run=RunOptions("measure", 0, None, "runs", None),
            scale=ScaleOptions(**scale),
            parity=self.parity,
            report=ReportOptions("terminal", False, False),
            workload_name="fake",
            make_workload=lambda setting: self.workload(None, Setting(seed=setting.seed)),
            device=self.device,
            reference=reference,
            meters=[
                TimeMeter(TimeOptions(0.1), self.device),
                MemoryMeter(MemoryOptions(), self.device),
            ],
        )


def write_text(path: Path, documents: int = 4, sentences: int = 30) -> Path:
    """A text of known documents, each with its own words."""
    paragraphs = [
        " ".join(
            f"Document {d} says in sentence {s} that word{d}x{s % 7} follows another one."
            for s in range(sentences)
        )
        for d in range(documents)
    ]
    path.write_text("\n\n\n".join(paragraphs), encoding="utf-8")
    return path
