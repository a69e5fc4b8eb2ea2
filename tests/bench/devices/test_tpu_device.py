"""The tpu device as the harness sees it, on whatever PJRT platform is there."""

from __future__ import annotations

import pytest
import torch
from fakes import FakePlan

from bench.devices.base import DeviceOptions
from bench.devices.tpu import TpuDevice
from bench.plan import new_record
from bench.run import Runner


@pytest.fixture(scope="module")
def tpu():
    device = TpuDevice(DeviceOptions("eager", "fp32"))
    device.start()
    return device


def test_it_says_plainly_what_it_runs_on(tpu):
    assert f"PJRT platform: {tpu.platform}" in tpu.describe()
    if tpu.platform == "cpu":
        assert "these times say nothing about a TPU" in tpu.describe()
        assert tpu.chip is None
        assert not tpu.is_accelerator


def test_eager_is_among_its_modes(tpu):
    assert "eager" in tpu.modes()
    tpu.check_mode()


def test_waiting_makes_results_ready(tpu):
    x = torch.ones(256, 256).to(tpu.torch_device)
    outputs = [x @ x, (x + 1)[3:5]]
    tpu.wait(outputs)
    assert all(t.untyped_storage().tpu_buffer.array.is_ready() for t in outputs)


def test_compilations_are_counted(tpu):
    x = torch.ones(3, 7, 11).to(tpu.torch_device)
    before = tpu.compiles()
    first = x * 3 + x
    counted = tpu.compiles()
    second = x * 3 + x
    assert counted > before
    assert tpu.compiles() == counted
    assert torch.equal(first.cpu(), second.cpu())


def test_the_bare_call_adds(tpu):
    bare = tpu.bare_call("add")
    out = bare.call(bare.put(2.0, (2, 2)), bare.put(3.0, (2, 2)))
    bare.wait([out])
    assert bare.read(out) == 5.0
    assert tpu.bare_call("multiply") is None


def test_a_training_run_equals_the_cpu_without_fallbacks(tpu):
    plan = FakePlan(tpu).make()
    record = new_record(plan)
    Runner(plan, record).run()
    assert record.parity.verdict == "pass"
    assert record.counters["cpu_fallback_ops"] == {}
    assert record.platform == tpu.platform
    assert record.counters["compiles"] > 0
