"""The rule for the end of warm-up, the check of the timer, and the metrics made of samples."""

from __future__ import annotations

import pytest

from bench.meters.time import TimeMeter, TimeOptions, UnsynchronizedTimer, WarmUp
from bench.record import Record


def warm(times, compiles=None, reads=0.0, **changes):
    rule = WarmUp(**{"window": 2, "tolerance": 0.1, "minimum": 2, "maximum": 9} | changes)
    for n, time_s in enumerate(times):
        rule.add(time_s, compiles[n] if compiles else 1, reads)
    return rule


@pytest.mark.parametrize(
    ("times", "compiles", "settled"),
    [
        ([1, 1, 1], None, False),
        ([1, 1, 1, 1], None, True),
        ([2, 2, 1, 1], None, False),
        ([2, 2, 1, 1, 1, 1], None, True),
        ([1, 1, 1, 1], [1, 2, 3, 4], False),
        ([1, 1, 1, 1], [1, 2, 2, 2], True),
        ([1, 1, 1, 1], [1, 1, 2, 2], False),
    ],
)
def test_warm_up_is_settled_when_compiling_stopped_and_medians_agree(times, compiles, settled):
    assert warm(times, compiles).settled is settled


def test_warm_up_ends_at_its_limit_and_says_why():
    rule = warm([4, 3, 2, 1], maximum=4)
    assert rule.over
    assert "limit of 4 steps before medians" in rule.problem()
    assert "still compiled" in warm([1, 1, 1, 1], [1, 2, 3, 4], maximum=4).problem()
    assert warm([1, 1, 1, 1]).problem() is None


def test_warm_up_has_a_minimum():
    assert not warm([1] * 4, minimum=5).over
    assert warm([1] * 5, minimum=5).over


def test_a_late_result_is_caught():
    with pytest.raises(UnsynchronizedTimer):
        warm([0.01] * 4, reads=0.5).check_synchronized()


@pytest.mark.parametrize(("step_s", "read_s"), [(0.1, 0.001), (0.0001, 0.0015), (1.0, 0.3)])
def test_a_read_that_is_merely_slow_is_not(step_s, read_s):
    warm([step_s] * 4, reads=read_s).check_synchronized()


def metrics(times, waits=None, work=None):
    record = Record(workload="w", device="cpu", work_per_step=work or {"tokens": 10.0})
    meter = TimeMeter(TimeOptions(0.1), None)
    for n, time_s in enumerate(times):
        meter.add(time_s, waits[n] if waits else 0.0)
    meter.report(record)
    return record


def test_metrics_of_known_samples():
    record = metrics([1.0, 2.0, 3.0, 4.0], waits=[1.0] * 4)
    assert record.metric("step_time_s").value == 2.5
    assert record.metric("step_time_s").ci95 is None
    assert "no interval from fewer than 5" in record.metric("step_time_s").method
    assert record.metric("step_time_mean_s").value == 2.5
    assert record.metric("throughput_tokens_per_s").value == 4.0
    assert record.metric("input_wait_share").value == pytest.approx(4 / 14)


def test_percentiles_need_enough_samples():
    record = metrics([1.0] * 20)
    assert record.metric("step_time_p95_s").value == 1.0
    assert record.metric("step_time_p99_s").value is None
    assert "needs >= 100 samples, has 20" in record.metric("step_time_p99_s").method


def test_quiet_samples_give_no_warning_and_wide_ones_do():
    assert metrics([1.0] * 10).warnings == []
    assert any("spread by" in w for w in metrics([1.0, 1.5] * 5).warnings)


def test_no_samples_give_no_metrics():
    assert metrics([]).metrics == []
