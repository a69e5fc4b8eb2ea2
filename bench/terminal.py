"""What a run shows: a progress bar on standard error, a table of results on standard output."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.record import Metric, Record

_PHASE_NAMES = {
    "import": "importing",
    "data": "preparing the input",
    "model_load": "building the model",
    "compile_cold": "first step (compiling)",
    "warm_up": "warming up",
    "steady": "timed steps",
    "parity": "comparing with the CPU",
}


class ProgressBar:
    """One bar for the phase at work. Shows nothing unless standard error is a terminal."""

    def __init__(self, enabled: bool = True) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not (enabled and console.is_terminal),
        )
        self._task = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._bar.stop()

    def phase(self, name: str, total: int | None = None) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(_PHASE_NAMES.get(name, name), total=total)

    def advance(self) -> None:
        if self._task is not None:
            self._bar.advance(self._task)


_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
}


def scale_of(value: float | None, unit: str) -> tuple[float, str]:
    """(factor, name) of the unit in which a person would write this value."""
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, "" if unit == "1" else unit
    if not value:
        return scales[-1] if unit == "bytes" else scales[0]
    return next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])


def scaled(value: float | None, unit: str) -> str:
    """A number for people: 0.00123 s -> "1.23 ms", 5368709120 bytes -> "5 GiB"."""
    if value is None:
        return "n/a"
    factor, name = scale_of(value, unit)
    return f"{value / factor:.4g} {name}".rstrip()


def summary(record: Record, where: str, console: Console | None = None) -> None:
    """Print the results: what ran on what, the metrics, the parity, the warnings."""
    if console is None:
        # Not a terminal: no line is cut to the 80 columns that would be assumed.
        width = None if sys.stdout.isatty() else 120
        console = Console(file=sys.stdout, highlight=False, width=width)
    plain = {"markup": False, "soft_wrap": True}
    console.print(f"{record.workload} on {record.ran_on or record.device}", **plain)
    console.print(
        f"scale {record.scale}, mode {record.mode}, {record.precision}, "
        + ", ".join(f"{n:g} {item}" for item, n in record.work_per_step.items())
        + " a step",
        **plain,
    )
    table = Table(show_edge=False, pad_edge=False)
    for name, side in (("metric", "left"), ("value", "right"), ("95 % interval", "right")):
        table.add_column(name, justify=side, overflow="fold")
    table.add_column("label", overflow="fold")
    for metric in record.metrics:
        if metric.value is not None:
            table.add_row(
                metric.name, scaled(metric.value, metric.unit), _interval(metric), metric.label
            )
    if record.metrics:
        console.print(table)
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in record.phases.items())
    console.print(f"phases: {phases}", **plain)
    if record.loss_curve:
        ends = f"{_number(record.loss_curve[0])} -> {_number(record.loss_curve[-1])}"
        console.print(f"loss: {ends} over {len(record.loss_curve)} steps", **plain)
    console.print(f"parity: {_parity(record)}", **plain)
    ops = record.counters.get("cpu_fallback_ops")
    if ops:
        names = ", ".join(f"{name} x{n}" for name, n in sorted(ops.items()))
        console.print(f"ran on the CPU instead: {names}", **plain)
    for warning in record.warnings:
        console.print(f"warning: {warning}", **plain)
    console.print(f"status: {record.status}", **plain)
    console.print(f"record: {where}", **plain)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def _interval(metric: Metric) -> str:
    if metric.ci95 is None:
        return ""
    factor, _ = scale_of(metric.value, metric.unit)  # the value's own, named beside it
    return " .. ".join(f"{end / factor:.4g}" for end in metric.ci95)


def _parity(record: Record) -> str:
    parity = record.parity
    text = parity.verdict
    if parity.verdict in ("pass", "fail"):
        shown = parity.max_relative_difference
        difference = "not finite" if shown is None else f"{shown:.2g}"
        text += f" (largest relative difference {difference}, tolerance {parity.tolerance:g})"
    return f"{text}; {parity.note}" if parity.note else text
