"""Money: pure functions from a record and a price to metrics in USD. No file, no clock.

A run on the `tpu` device that took place on a CPU says nothing about a TPU's cost, so it has no
price here: every function raises CostError with the reason instead of returning a number. One that
took place on a GPU is priced as that GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from bench.record import LIST_PRICE, Metric, Record, combine_labels, split_label

SECONDS_PER_HOUR = 3600.0
STALE_AFTER_DAYS = 90


class CostError(ValueError):
    """No cost can be given; the message is the reason, fit for a report."""


@dataclass(frozen=True)
class Price:
    """What one chip costs per hour, and where that number comes from.

    chips  the runtime names that this price is for; empty means any (the user's own quote)
    as_of  "2026", "2026-Q1", "2026-03" or "2026-03-09"
    """

    usd_per_chip_hour: float
    accelerator: str | None = None
    chips: tuple[str, ...] = ()
    currency: str = "USD"
    provider: str = ""
    sku: str = ""
    region: str = ""
    plan: str = ""
    label: str = LIST_PRICE
    source: str = ""
    as_of: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        value = self.usd_per_chip_hour
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CostError(f"usd_per_chip_hour: {value!r} is no number")
        if not (math.isfinite(value) and value >= 0):
            raise CostError(f"usd_per_chip_hour: {value!r} is not a finite number >= 0")
        if self.currency != "USD":
            raise CostError(f"currency: only USD is supported, not {self.currency!r}")
        split_label(self.label)
        first_day(self.as_of)

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None) -> Price | None:
        """The price of a configuration's `price` group, or None where it holds no price."""
        if not config or config.get("usd_per_chip_hour") is None:
            return None
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(config) - known)
        if unknown:
            raise CostError(f"unknown price key {unknown[0]!r}; valid: {', '.join(sorted(known))}")
        values = dict(config)
        values["chips"] = tuple(values.get("chips") or ())
        return cls(**values)

    def summary(self) -> str:
        """One line for people: provider, SKU, region, plan, rate and date."""
        parts = [self.provider, self.sku, self.region, self.plan]
        rate = f"{self.usd_per_chip_hour:g} {self.currency} per chip-hour"
        dated = f"as of {self.as_of}" if self.as_of else "undated"
        return ", ".join([*(part for part in parts if part), rate, dated])

    def is_stale(self, today: date) -> bool:
        """Older than 90 days, counted from the first day that `as_of` can mean."""
        day = first_day(self.as_of)
        return day is not None and (today - day).days > STALE_AFTER_DAYS


def first_day(as_of: str) -> date | None:
    """The first day of "2026", "2026-Q2", "2026-04" or "2026-04-09"; None for "".

    The first, because a price may have changed at any time since: better an early warning.
    """
    if not as_of:
        return None
    parts = as_of.split("-")
    try:
        year = int(parts[0])
        if len(parts) == 2 and parts[1].startswith("Q"):
            return date(year, 3 * int(parts[1][1:]) - 2, 1)
        month, day = (int(part) for part in [*parts[1:], "1", "1"][:2])
        if len(parts) > 3:
            raise ValueError
        return date(year, month, day)
    except ValueError:
        raise CostError(f"as_of: {as_of!r} is no date such as 2026-03 or 2026-Q1") from None


def why_no_cost(record: Record, price: Price | None) -> str | None:
    """The reason why this record must not be priced so, or None where it may be."""
    if not record.is_good:
        return f"the run is {record.status}"
    if record.is_emulated_tpu:
        return (
            f"asked for a TPU but ran on the PJRT platform {record.platform}: "
            "these times say nothing about a TPU"
        )
    if record.hardware == "unknown":
        return "the record does not say where it ran"
    if price is None:
        return "no price"
    if price.chips and record.chip not in price.chips:
        return f"the price is for {price.accelerator}, the run used {record.chip or 'no chip'}"
    return None


def cost_per_step(record: Record, price: Price | None) -> Metric:
    """USD per step: step time x chips x price. Raises CostError where there is no cost."""
    step = _step_time(record, price)
    factor = record.chip_count * price.usd_per_chip_hour / SECONDS_PER_HOUR
    return Metric(
        "cost_usd_per_step",
        step.value * factor,
        "USD/step",
        label=combine_labels(step.label, price.label),
        method=f"median step time x {record.chip_count} chip(s) x {price.summary()}",
        ci95=None if step.ci95 is None else (step.ci95[0] * factor, step.ci95[1] * factor),
    )


def cost_per_unit(record: Record, price: Price | None, unit: str, count: float = 1.0) -> Metric:
    """USD for `count` of a unit of `record.work_per_step`, e.g. 1e6 "tokens"."""
    work = record.work_per_step.get(unit)
    if not work or work <= 0:
        valid = ", ".join(sorted(record.work_per_step)) or "none"
        raise CostError(f"the record does not say how many {unit} a step does; it has: {valid}")
    step = cost_per_step(record, price)
    factor = count / work
    per = unit if count == 1 else f"{count:.0f}_{unit}"
    return Metric(
        f"cost_usd_per_{per}",
        step.value * factor,
        f"USD/{per.replace('_', '-')}",
        label=step.label,
        method=f"{step.method}; {work:g} {unit} per step",
        ci95=None if step.ci95 is None else (step.ci95[0] * factor, step.ci95[1] * factor),
    )


def _step_time(record: Record, price: Price | None) -> Metric:
    reason = why_no_cost(record, price)
    if reason:
        raise CostError(reason)
    step = record.metric("step_time_s")
    if step is None or step.value is None:
        raise CostError("the record has no step time")
    return step
