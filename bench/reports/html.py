"""The report page: frames, figures and verdicts in one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from bench.cost import CostError, why_no_cost
from bench.record import LABELS, MEASURED, Metric, Record
from bench.reports import formats, verdicts
from bench.reports.figures import Drawing, drawings
from bench.reports.frames import (
    Broken,
    ReportError,
    Run,
    collect,
    phase_order,
    price_of,
    results_frame,
    sections,
    shown_metrics,
    step_samples,
    throughput,
)

_COLUMNS = (
    ("throughput", "Throughput", "below it: 95 % interval"),
    ("step_time_s", "Step median", "below it: 95 % interval"),
    ("step_time_p90_s", "p90", "time of a step"),
    ("step_time_p99_s", "p99", "time of a step"),
    ("peak_memory_bytes", "Device memory", "peak"),
    ("host_peak_memory_bytes", "Host memory", "peak"),
    ("cost_usd_per_step", "Cost", "of the steps alone, at the price in the notes"),
)
_LABEL_TEXT = {
    "assumed": "given by the user or taken as a working assumption",
    "modelled": "computed from a model, not seen on hardware",
    "measured": "timed or counted in the run itself",
    "published": "taken from a vendor's or a benchmark's publication",
    "list price": "a provider's public price at the stated date",
}


def write(
    paths: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    today: date | None = None,
) -> Path:
    """Write report.html, results.csv and one PNG a figure to `out`; returns the report's path.

    Broken records are named on stderr and in the report. Raises ReportError if a path does not
    exist, if not one record is good, or if `out` cannot be written.
    """
    runs, broken = collect(paths)
    for item in broken:
        print(f"not read: {item.path}: {item.reason}", file=sys.stderr)
    if not any(run.record.is_good for run in runs):
        raise ReportError(_why_nothing(runs, broken))
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        pictures = {key: drawings(group) for key, group in sections(runs).items()}
        for key, made in pictures.items():
            for drawing in made:
                (out / f"{_slug(*key)}-{drawing.key}.png").write_bytes(drawing.png)
        results_frame(runs).to_csv(out / "results.csv", index=False)
        page = render(runs, broken, pictures, today or datetime.now(UTC).date())
        report = out / "report.html"
        report.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{out}: cannot write the report: {error.strerror}") from None
    return report


def render(
    runs: Sequence[Run],
    broken: Sequence[Broken],
    pictures: dict[tuple[str, str, str], list[Drawing]],
    today: date,
) -> str:
    """The page as text; the same records and day give the same bytes."""
    notes = _Notes()
    script = _template("sort.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"words": formats.words, "quantity": formats.quantity}
    return environment.from_string(_template("report.html.j2")).render(
        headline=verdicts.headline(runs),
        period=_period(runs),
        sections=[
            _section(key, group, pictures[key], notes) for key, group in sections(runs).items()
        ],
        runs=[_run_details(run) for run in runs],
        run_count=len(runs),
        broken=broken,
        staleness=_staleness(runs, today),
        notes=notes,
        labels=[(label, _LABEL_TEXT[label]) for label in LABELS if label in notes.labels],
        style=Markup(_template("style.css")),
        script=Markup(script),
        script_hash=digest,
    )


class _Notes:
    """Numbers the distinct (label, method) pairs: each becomes one footnote."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, str], int] = {}

    def number(self, label: str, method: str) -> int:
        return self._index.setdefault((label, method), len(self._index) + 1)

    def cell(self, metric: Metric | None, *, missing: str = formats.NOTHING) -> dict[str, Any]:
        """What a table cell needs: text, interval, sort value, label, method and its footnote."""
        if metric is None:
            return {"text": missing, "sort": "", "note": None, "mark": "", "ci": "", "title": ""}
        text = formats.quantity(metric.value, metric.unit)
        label = "not available" if metric.value is None else metric.label
        return {
            "text": text,
            "sort": "" if metric.value is None else repr(metric.value),
            "ci": formats.interval(metric.ci95, metric.value, metric.unit),
            "note": self.number(label, metric.method),
            # Measured is the rule; what is not must show it without a pointer over it.
            "mark": "" if metric.label == MEASURED or metric.value is None else metric.label,
            "title": f"{label}: {metric.method}" if metric.method else label,
        }

    @property
    def labels(self) -> set[str]:
        return {part for label, _ in self._index for part in label.split(" + ")}

    @property
    def items(self) -> list[tuple[int, str, str]]:
        return [(n, label, method) for (label, method), n in self._index.items()]


def _section(
    key: tuple[str, str, str], runs: Sequence[Run], pictures: Sequence[Drawing], notes: _Notes
) -> dict[str, Any]:
    workload, scale, precision = key
    phases = phase_order(runs)
    rows = [_row(run, notes) for run in runs]
    measurements = _measurements(runs, notes)
    return {
        "id": _slug(*key),
        "workload": workload,
        "scale": scale,
        "precision": precision,
        "answers": verdicts.answers(runs),
        "rows": rows,
        "columns": [
            (key, head, hint)
            for key, head, hint in _COLUMNS
            if any(row["cells"][key]["note"] for row in rows)
        ],
        "measurements": measurements,
        "show_measurements": not any(throughput(run.record) for run in runs),
        "pictures": [
            {"title": d.title, "note": d.note, "alt": d.alt, "svg": Markup(d.svg)} for d in pictures
        ],
        "phases": phases,
        "phase_rows": [
            {
                "name": run.name,
                "cells": [
                    notes.cell(_phase_metric(run.record, name))
                    if name in run.record.phases
                    else None
                    for name in phases
                ],
            }
            for run in runs
            if run.record.phases
        ],
        "parity_rows": [_parity_row(run) for run in runs if run.record.parity.verdict != "not-run"],
        "warnings": [(run.name, text) for run in runs for text in run.record.warnings],
    }


def _phase_metric(record: Record, name: str) -> Metric:
    return Metric(f"phase_{name}_s", record.phases[name], "s", method="wall clock of the phase")


def _metrics(run: Run) -> dict[str, Metric]:
    return {m.name: m for m in shown_metrics(run.record)}


def _row(run: Run, notes: _Notes) -> dict[str, Any]:
    record, metrics = run.record, _metrics(run)
    ops = verdicts.fallback_ops(record)
    return {
        "name": run.name,
        "emulated": record.is_emulated_tpu,
        "ran_on": record.ran_on,
        "mode": record.mode,
        "status": record.status,
        "error": record.error,
        "steps": len(step_samples(record)) or None,
        "cells": {
            "throughput": notes.cell(throughput(record)),
            **{key: notes.cell(metrics.get(key)) for key, _, _ in _COLUMNS[1:-1]},
            "cost_usd_per_step": notes.cell(metrics.get("cost_usd_per_step"), missing="no price"),
        },
        "fallback": None if ops is None else len(ops),
        "fallback_names": ", ".join(f"{name} x {count}" for name, count in (ops or {}).items()),
        "parity": record.parity.verdict,
        "no_cost": _no_cost(record),
    }


def _measurements(runs: Sequence[Run], notes: _Notes) -> list[tuple[str, list[dict[str, Any]]]]:
    """(name, a cell a run) for the metrics that the table of runs has no column for."""
    in_table = {key for key, _, _ in _COLUMNS}
    of_run = [_metrics(run) for run in runs]
    rates = {rate.name for run in runs if (rate := throughput(run.record))}
    names = dict.fromkeys(name for metrics in of_run for name in metrics)
    return [
        (formats.words(name), [notes.cell(metrics.get(name)) for metrics in of_run])
        for name in names
        if name not in in_table | rates
    ]


def _no_cost(record: Record) -> str:
    try:
        return why_no_cost(record, price_of(record)) or ""
    except CostError as error:
        return str(error)


def _parity_row(run: Run) -> dict[str, Any]:
    parity = run.record.parity
    lines = [
        {
            "step": i + 1,
            "device": _loss(device),
            "reference": _loss(reference),
        }
        for i, (device, reference) in enumerate(
            zip(parity.device_losses, parity.reference_losses, strict=False)
        )
    ]
    difference = parity.max_relative_difference
    return {
        "name": run.name,
        "verdict": parity.verdict,
        "difference": formats.NOTHING if difference is None else formats.number(difference, 2),
        "tolerance": formats.NOTHING if parity.tolerance is None else f"{parity.tolerance:g}",
        "steps": parity.steps,
        "note": parity.note,
        "lines": lines[:10],
    }


def _loss(value: float | None) -> str:
    return "not finite" if value is None else formats.number(value, 7)


def _run_details(run: Run) -> dict[str, Any]:
    record = run.record
    facts = {
        "record": str(run.path),
        "ran on": record.ran_on,
        "device": f"{record.device}, mode {record.mode}, {record.precision}",
        "platform": record.platform,
        "chip": record.chip and f"{record.chip_count} x {record.chip}",
        "started": record.started_utc,
        "finished": record.finished_utc,
        "work per step": ", ".join(f"{v:g} {k}" for k, v in record.work_per_step.items()),
        "git commit": record.git_commit,
        "corpus": record.corpus_hash,
        "configuration": record.config_fingerprint,
        "workload": ", ".join(f"{k}: {v}" for k, v in record.facts.items()),
        "software": ", ".join(f"{k} {v}" for k, v in record.software.items()),
        "host": ", ".join(f"{k}: {v}" for k, v in record.host.items()),
    }
    return {
        "name": run.name,
        "workload": record.workload,
        "scale": record.scale,
        "precision": record.precision,
        "status": record.status,
        "facts": [(name, text) for name, text in facts.items() if text],
        "counters": json.dumps(record.counters, indent=1, ensure_ascii=False),
        "config": json.dumps(record.config, indent=1, ensure_ascii=False),
    }


def _staleness(runs: Sequence[Run], today: date) -> str:
    """One line for the whole report, or "" where every price is fresh."""
    stale = set()
    for run in runs:
        try:
            price = price_of(run.record)
        except CostError:
            continue
        if price and price.is_stale(today) and why_no_cost(run.record, price) is None:
            stale.add(price.summary())
    if not stale:
        return ""
    return f"Prices older than 90 days, check before deciding: {'; '.join(sorted(stale))}."


def _period(runs: Sequence[Run]) -> str:
    days = sorted(run.record.started_utc[:10] for run in runs)
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _why_nothing(runs: Sequence[Run], broken: Sequence[Broken]) -> str:
    found = [f"{run.path} is {run.record.status}{_error_text(run.record)}" for run in runs]
    found += [f"{item.path} cannot be read: {item.reason}" for item in broken]
    return "no good record, so there is nothing to report: " + "; ".join(found)


def _error_text(record: Record) -> str:
    return "" if record.error is None else f" ({record.error.type}: {record.error.message})"


def _slug(*parts: str) -> str:
    """A file name from text that may hold anything; a hash keeps what was changed apart."""
    text = "-".join(parts)
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60].strip("-")
    if clean == text:
        return clean
    return f"{clean}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".lstrip("-")


def _template(name: str) -> str:
    return (resources.files("bench.reports") / "templates" / name).read_text(encoding="utf-8")
