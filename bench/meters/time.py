"""Step times: the stopwatch, the rule for the end of warm-up, and the metrics made of samples.

A step's time runs from handing over its batch to the moment when its own outputs (the loss and the
parameters that it updated) exist on the device. Waiting for the batch is measured apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bench import stats
from bench.meters.base import Meter
from bench.options import option
from bench.record import Record

PERCENTILES = (50, 90, 95, 99)
# A result that is there takes no time to read. These are generous: the check looks for timers
# that stop before the work is done, and those are off by about a whole step.
LATE_SHARE = 0.25
LATE_FLOOR_S = 0.002


class TimingError(Exception):
    """The times cannot be trusted; the subclass's name says why."""


class RecompiledInWindow(TimingError):
    """Something was compiled inside the timed window."""


class UnsynchronizedTimer(TimingError):
    """The clock stopped before the step's outputs existed."""


@dataclass(frozen=True)
class TimeOptions:
    """spread_warning: warn at this standard deviation, as a share of the mean."""

    spread_warning: float = option(above=0)


@dataclass
class Stopwatch:
    """Times steps one by one on a clock in seconds.

    `wait(outputs)` must return only when those outputs exist; `read(outputs)` brings one of them
    to the host.
    """

    clock: Callable[[], float]
    wait: Callable[[Iterable[Any]], None]

    def step(self, run: Callable[[Any], Any], batch: Any, updated: list[Any]) -> tuple[Any, float]:
        """(loss, seconds); `updated` are the tensors that the step writes into."""
        start_s = self.clock()
        loss = run(batch)
        # The list holds the outputs until the wait is over: a freed one could not be waited for.
        outputs = [loss, *updated]
        self.wait(outputs)
        end_s = self.clock()
        del outputs
        return loss, end_s - start_s

    def read_s(self, read: Callable[[], Any]) -> float:
        """Seconds to bring a result to the host that should exist already."""
        start_s = self.clock()
        read()
        return self.clock() - start_s


@dataclass
class WarmUp:
    """Decides when warming up is over: nothing is compiled any more and recent medians agree."""

    window: int
    tolerance: float
    minimum: int
    maximum: int
    step_times_s: list[float] = field(default_factory=list)
    read_times_s: list[float] = field(default_factory=list)
    compiles: list[int] = field(default_factory=list)

    def add(self, step_time_s: float, compiles: int, read_time_s: float) -> None:
        """One warm-up step: its time, the compile counter after it, the time to read its loss."""
        self.step_times_s.append(step_time_s)
        self.compiles.append(compiles)
        self.read_times_s.append(read_time_s)

    @property
    def compiling_stopped(self) -> bool:
        """The counter stood still over the last window of steps."""
        recent = self.compiles[-self.window - 1 :]
        return len(recent) > self.window and len(set(recent)) == 1

    @property
    def settled(self) -> bool:
        return (
            len(self.step_times_s) >= self.minimum
            and self.compiling_stopped
            and stats.is_settled(self.step_times_s, window=self.window, tolerance=self.tolerance)
        )

    @property
    def over(self) -> bool:
        return self.settled or len(self.step_times_s) >= self.maximum

    def problem(self) -> str | None:
        """Why the warm-up ended at its limit instead of by its rule."""
        if self.settled:
            return None
        n = len(self.step_times_s)
        if not self.compiling_stopped:
            return f"warm-up ended at its limit of {n} steps while things were still compiled"
        return (
            f"warm-up ended at its limit of {n} steps before medians of {self.window} steps "
            f"agreed within {self.tolerance:.0%}"
        )

    def check_synchronized(self) -> None:
        """Raise UnsynchronizedTimer if outputs that were waited for were not there yet.

        The quickest of the reads counts, so that a busy machine alone cannot cause it.
        """
        if not self.read_times_s:
            return
        step_s, read_s = stats.median(self.step_times_s), min(self.read_times_s)
        if read_s > LATE_FLOOR_S and read_s > LATE_SHARE * (step_s + read_s):
            raise UnsynchronizedTimer(
                f"after waiting for a step of {step_s:.3g} s, reading its loss took another "
                f"{read_s:.3g} s: the clock stops before the work is done"
            )


class TimeMeter(Meter):
    """Keeps the raw samples of the timed window."""

    Options = TimeOptions

    def __init__(self, options: TimeOptions, device: Any) -> None:
        super().__init__(options, device)
        self.step_times_s: list[float] = []
        self.input_waits_s: list[float] = []

    def add(self, step_time_s: float, input_wait_s: float) -> None:
        self.step_times_s.append(step_time_s)
        self.input_waits_s.append(input_wait_s)

    def report(self, record: Record) -> None:
        times = self.step_times_s
        if not times:
            return
        record.add_samples("step_time_s", "s", times)
        record.add_samples("input_wait_s", "s", self.input_waits_s)
        n = len(times)
        interval = stats.bootstrap_median_ci(times)
        method = f"median of n={n} steps, each waited for by its own outputs"
        if interval is None:
            method += f"; no interval from fewer than {stats.MIN_SAMPLES_FOR_INTERVAL}"
        median_s = stats.median(times)
        record.add_metric("step_time_s", median_s, "s", method=method, ci95=interval)
        record.add_metric("step_time_mean_s", stats.mean(times), "s", method=f"mean of n={n}")
        for percent in PERCENTILES:
            value = stats.percentile(times, percent)
            needed = stats.samples_needed(percent)
            how = f"of n={n} steps" if value is not None else f"needs >= {needed} samples, has {n}"
            record.add_metric(f"step_time_p{percent}_s", value, "s", method=how)
        for item, amount in record.work_per_step.items():
            value, ci95 = stats.rate(amount, median_s, interval)
            record.add_metric(
                f"throughput_{item}_per_s",
                value,
                f"{item}/s",
                method=f"{amount:g} {item} a step over the median step time",
                ci95=ci95,
            )
        waits_s, total_s = sum(self.input_waits_s), sum(times) + sum(self.input_waits_s)
        record.add_metric(
            "input_wait_share",
            waits_s / total_s if total_s else None,
            "1",
            method=f"waiting for batches over waiting and stepping, n={n}",
        )
        self._warn(record, times)

    def _warn(self, record: Record, times: list[float]) -> None:
        spread = stats.coefficient_of_variation(times)
        if spread is not None:
            record.add_metric(
                "step_time_spread_ratio", spread, "1", method="standard deviation over mean"
            )
            if spread >= self.options.spread_warning:
                record.warn(
                    f"step times spread by {spread:.0%} of their mean "
                    f"(limit {self.options.spread_warning:.0%}): the machine was not quiet"
                )
        drift = stats.halves_ratio(times)
        if drift is not None and max(drift, 1 / drift) >= 1 + self.options.spread_warning:
            record.warn(
                f"the second half of the steps took {drift:.2f} times as long as the first: "
                "the median describes neither"
            )
