"""The comparison of two ways to call, with a bare call of known answers."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import FakeClock

from bench import config as configuration
from bench.devices.base import BareCall
from bench.devices.cpu import CpuDevice
from bench.plan import make_plan, new_record
from bench.run import Runner, WrongResult

COMMAND = ["workload=dispatch", "device=cpu", "workload.blocks=6", "workload.calls_per_block=100"]


class WithBareCall(CpuDevice):
    """Numpy as the bare call; one of its calls takes 3 us, one of PyTorch's 6 us."""

    def __init__(self, options, clock):
        super().__init__(options)
        self.clock, self.error = clock, 0.0

    def wait(self, tensors):
        self.clock.advance(100 * 6e-6)

    def bare_call(self, operation):
        assert operation == "add"
        return BareCall(
            name="numpy",
            call=lambda a, b: a + b,
            put=lambda value, shape: np.full(shape, value + self.error, np.float32),
            wait=lambda _: self.clock.advance(100 * 3e-6),
            read=lambda array: float(array[-1, -1]),
        )


def run(with_bare_call, error=0.0):
    plan = make_plan(configuration.load_config(COMMAND))
    clock = FakeClock()
    if with_bare_call:
        plan.device = WithBareCall(plan.device.options, clock)
        plan.device.error = error
    record = new_record(plan)
    Runner(plan, record, clock=clock).run()
    return record


def test_the_ratio_of_interleaved_blocks():
    record = run(with_bare_call=True)
    ratio = record.metric("dispatch_overhead_ratio")
    assert ratio.value == pytest.approx(2.0)
    assert ratio.ci95 == pytest.approx((2.0, 2.0))
    assert ratio.unit == "1"
    assert record.metric("eager_call_s").value == pytest.approx(6e-6)
    assert record.metric("bare_call_s").value == pytest.approx(3e-6)
    assert len(record.samples["eager_block_s"].values) == 6
    assert len(record.samples["bare_block_s"].values) == 6


def test_without_a_bare_call_only_the_call_is_reported():
    record = run(with_bare_call=False)
    assert record.metric("dispatch_overhead_ratio") is None
    assert record.metric("eager_call_s") is not None
    assert any("no bare call" in w for w in record.warnings)
    assert record.parity.verdict == "reference"


def test_a_wrong_sum_fails_by_name():
    with pytest.raises(WrongResult, match="bare: 100 calls gave"):
        run(with_bare_call=True, error=0.5)
