"""The timing contract, with a clock and a device of known answers."""

from __future__ import annotations

import pytest
import torch
from fakes import FakeClock, FakeDevice, FakePlan, FakeWorkload

from bench.meters.time import RecompiledInWindow, UnsynchronizedTimer
from bench.parity import ParityError, ParityOptions
from bench.plan import new_record
from bench.run import NonFiniteLoss, Runner


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(autouse=True)
def quick_collection(monkeypatch, request):
    """A full collection of a test process takes half a second, several times a run."""
    if "freed" not in request.node.name:
        monkeypatch.setattr("bench.parity.gc.collect", lambda: 0)


def run(plan, clock):
    record = new_record(plan)
    return Runner(plan, record, clock=clock), record


def test_step_times_are_those_of_the_device(clock):
    plan = FakePlan(FakeDevice(clock, step_s=lambda n: 2.0 if n == 0 else 0.25)).make()
    runner, record = run(plan, clock)
    runner.run()
    assert record.samples["step_time_s"].values == pytest.approx([0.25] * 10)
    assert record.metric("step_time_s").value == pytest.approx(0.25)
    assert record.metric("throughput_lines_per_s").value == pytest.approx(32.0)
    assert record.metric("first_step_s").value == pytest.approx(2.0)
    assert record.metric("compile_cold_s").value == pytest.approx(1.75)
    assert record.phases["steady"] == pytest.approx(2.5)
    assert record.phases["warm_up"] == pytest.approx(1.0)
    assert record.warnings == []
    record.finish("ok")
    record.validate()


def test_the_loss_curve_has_every_step(clock):
    runner, record = run(FakePlan(FakeDevice(clock)).make(), clock)
    runner.run()
    assert len(record.loss_curve) == 1 + 4 + 10
    assert record.loss_curve[-1] < record.loss_curve[0]


def test_the_window_ends_after_its_seconds_but_not_before_its_least_steps(clock):
    scale = {"min_steps": 3, "max_steps": 100, "window_s": 2.0}
    runner, record = run(FakePlan(FakeDevice(clock, lambda n: 0.5), scale=scale).make(), clock)
    runner.run()
    assert len(record.samples["step_time_s"].values) == 4
    slow = FakePlan(FakeDevice(clock, lambda n: 9.0), scale=scale).make()
    runner, record = run(slow, clock)
    runner.run()
    assert len(record.samples["step_time_s"].values) == 3


def test_a_recompile_inside_the_window_fails_the_run_by_name(clock):
    plan = FakePlan(FakeDevice(clock, compiles_at=(0, 7))).make()
    runner, record = run(plan, clock)
    with pytest.raises(RecompiledInWindow, match="timed step 3 compiled 1"):
        runner.run()
    assert len(record.samples["step_time_s"].values) == 3
    assert record.counters["compiles"] == 2


def test_warm_up_goes_on_while_things_are_compiled(clock):
    plan = FakePlan(FakeDevice(clock, compiles_at=(0, 1, 2, 3))).make()
    runner, record = run(plan, clock)
    runner.run()
    # Steps 1 to 3 compile; two more stand still.
    assert len(record.samples["warm_up_step_time_s"].values) == 5
    assert record.warnings == []


def test_warm_up_at_its_limit_is_said(clock):
    plan = FakePlan(FakeDevice(clock, step_s=lambda n: 0.5**n)).make()
    runner, record = run(plan, clock)
    runner.run()
    assert any("warm-up ended at its limit of 6 steps" in w for w in record.warnings)


def test_a_device_that_does_not_wait_is_caught_by_name(clock):
    device = FakeDevice(clock)
    device.forgets_to_wait = True
    runner, _ = run(FakePlan(device).make(), clock)
    with pytest.raises(UnsynchronizedTimer, match="before the work is done"):
        runner.run()


def test_the_clock_waits_for_the_loss_and_the_parameters(clock):
    device = FakeDevice(clock)
    waited = []
    wait = device.wait
    device.wait = lambda tensors: (waited.append(len(list(tensors))), wait([1]))
    runner, _ = run(FakePlan(device).make(), clock)
    runner.run()
    # Weight and bias; in every step also the loss.
    assert waited[0] == 2
    assert set(waited[1:]) == {3}


def test_a_loss_off_by_one_percent_fails_parity_by_name(clock):
    device = FakeDevice(clock)
    device.is_broken = True
    runner, record = run(FakePlan(device).make(), clock)
    with pytest.raises(ParityError, match=r"differ .* by 0\.01"):
        runner.run()
    assert record.parity.verdict == "fail"
    assert record.parity.max_relative_difference == pytest.approx(0.01)


def test_an_equal_device_passes_parity(clock):
    runner, record = run(FakePlan(FakeDevice(clock)).make(), clock)
    runner.run()
    assert record.parity.verdict == "pass"
    assert record.parity.device_losses == record.parity.reference_losses
    assert record.parity.note == "whole"


def test_the_reference_has_no_verdict_of_its_own(clock):
    device = FakeDevice(clock)
    device.reference = True
    runner, record = run(FakePlan(device).make(), clock)
    runner.run()
    assert record.parity.verdict == "reference"


def test_parity_can_be_left_out_and_the_record_says_so(clock):
    plan = FakePlan(FakeDevice(clock), parity=ParityOptions(False, 3, 1e-3)).make()
    runner, record = run(plan, clock)
    runner.run()
    assert record.parity.verdict == "not-run"


def test_parity_runs_reduced_where_memory_is_short(clock, monkeypatch):
    monkeypatch.setattr("bench.environment.available_memory_bytes", lambda: 0)
    runner, record = run(FakePlan(FakeDevice(clock)).make(), clock)
    runner.run()
    assert record.parity.note.startswith("reduced")


def test_a_loss_that_is_not_finite_fails_the_run(clock):
    class Exploding(FakeWorkload):
        def loss(self, model, batch):
            return super().loss(model, batch) * float("inf")

    runner, record = run(FakePlan(FakeDevice(clock), workload=Exploding).make(), clock)
    with pytest.raises(NonFiniteLoss, match="step 0"):
        runner.run()
    record.finish("failed", NonFiniteLoss("x"))
    assert record.to_dict()["loss_curve"][0] is None


def test_a_slower_second_half_and_a_wide_spread_are_warned_of(clock):
    device = FakeDevice(clock, step_s=lambda n: 0.1 if n < 10 else 0.2)
    runner, record = run(FakePlan(device).make(), clock)
    runner.run()
    assert any("second half of the steps took 2.00 times" in w for w in record.warnings)
    assert any("spread by" in w for w in record.warnings)


def test_fallbacks_are_counted_and_named(clock):
    device = FakeDevice(clock)
    device.state["ops"] = {"aten::before": 4}
    step_s = device.step_s

    def falling_back(n):
        device.state["ops"]["aten::foo"] = device.state["ops"].get("aten::foo", 0) + 1
        return step_s(n)

    device.step_s = falling_back
    runner, record = run(FakePlan(device).make(), clock)
    runner.run()
    steps = 1 + 4 + 10 + 3
    assert record.counters["cpu_fallback_ops"] == {"aten::foo": steps}
    assert record.metric("cpu_fallback_ops").value == steps
    assert f"aten::foo x{steps}" in record.metric("cpu_fallback_ops").method


def test_waiting_for_input_is_measured_apart(clock):
    class SlowInput(FakeWorkload):
        def batch(self, index):
            clock.advance(0.3)
            return super().batch(index)

    runner, record = run(FakePlan(FakeDevice(clock), workload=SlowInput).make(), clock)
    runner.run()
    assert record.samples["input_wait_s"].values == pytest.approx([0.3] * 10)
    assert record.samples["step_time_s"].values == pytest.approx([0.1] * 10)
    assert record.metric("input_wait_share").value == pytest.approx(0.75)


def test_the_model_is_freed_before_parity(clock, monkeypatch):
    import weakref

    built = []

    class Watched(FakeWorkload):
        def build(self):
            assert all(ref() is None for ref in built), "an earlier model is still alive"
            model = super().build()
            built.append(weakref.ref(model))
            return model

    runner, _ = run(FakePlan(FakeDevice(clock), workload=Watched).make(), clock)
    runner.run()
    assert len(built) == 3


def test_bf16_timing_keeps_parity_in_float32(clock):
    from bench.devices.base import DeviceOptions

    seen = []

    class Looking(FakeWorkload):
        def loss(self, model, batch):
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().loss(model, batch)

    device = FakeDevice(clock, options=DeviceOptions("eager", "bf16"))
    runner, record = run(FakePlan(device, workload=Looking).make(), clock)
    runner.run()
    assert seen == [True] * 15 + [False] * 6
    assert record.precision == "bf16"
