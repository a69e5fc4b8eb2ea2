"""Find records, load them, and put them into pandas frames. Nothing here writes or draws."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bench import stats
from bench.cost import CostError, Price, cost_per_step
from bench.record import PHASES, RECORD_NAME, Metric, Record, RecordError, load

PERCENTILES = (50, 90, 95, 99)
_HARDWARE_ORDER = ("tpu", "cuda", "cpu")


class ReportError(Exception):
    """The input cannot become a report; the message says why and what to do."""


@dataclass(frozen=True)
class Run:
    """A loaded record. `name` is unique in its report and short enough for an axis."""

    name: str
    path: Path
    record: Record


@dataclass(frozen=True)
class Broken:
    path: Path
    reason: str


def collect(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Run], list[Broken]]:
    """Load every record at or below the paths (a record file, a run directory, or any parent).

    Returns the runs, best known hardware first, and the records that could not be read. Raises
    ReportError for a path that does not exist or that holds no record.
    """
    loaded: list[tuple[Path, Record]] = []
    broken: list[Broken] = []
    for file in _record_files(paths):
        try:
            loaded.append((file, load(file)))
        except RecordError as error:
            reason = str(error).removeprefix(f"{file}: ")
            broken.append(Broken(file, reason))
        except OSError as error:
            broken.append(Broken(file, error.strerror or type(error).__name__))
    loaded.sort(key=lambda item: _sort_key(item[1]))
    return _named(loaded), broken


def _record_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    found: dict[Path, Path] = {}  # resolved -> as given, so that a record named twice counts once
    for given in map(Path, paths):
        if not given.exists():
            raise ReportError(f"{given}: no such file or directory")
        if given.is_file():
            files = [given]
        elif (given / RECORD_NAME).is_file():
            files = [given / RECORD_NAME]
        else:
            files = sorted(given.rglob(RECORD_NAME))
        if not files:
            raise ReportError(
                f"{given}: no {RECORD_NAME} in it or below; give a run directory of python -m bench"
            )
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _sort_key(record: Record) -> tuple:
    hardware = record.hardware
    known = _HARDWARE_ORDER.index(hardware) if hardware in _HARDWARE_ORDER else 9
    return (
        record.workload,
        record.scale,
        record.precision,
        record.is_emulated_tpu,
        known,
        record.mode,
        record.started_utc,
    )


def hardware_text(record: Record) -> str:
    """What a run ran on, for people: "TPU v5e", "cpu", or "tpu on cpu" where there was no TPU."""
    if record.hardware == "unknown":
        return f"{record.device} (never started)"
    if record.is_emulated_tpu:
        return f"tpu on {record.hardware}"
    if record.hardware == "cpu" or not record.chip:
        return record.hardware
    return record.chip if record.chip_count == 1 else f"{record.chip_count} x {record.chip}"


def _named(loaded: Sequence[tuple[Path, Record]]) -> list[Run]:
    """Name a run by its hardware, then by as much more as makes it differ within its section."""
    choices = (
        lambda r: hardware_text(r),
        lambda r: f"{hardware_text(r)}, {r.mode}",
        lambda r: f"{hardware_text(r)}, {r.mode}, {r.started_utc[:16].replace('T', ' ')}",
    )
    names: list[str] = []
    for _, record in loaded:
        same = [r for _, r in loaded if section_key(r) == section_key(record)]
        for choice in choices:
            name = choice(record)
            if sum(choice(r) == name for r in same) == 1:
                break
        names.append(name)
    seen: Counter = Counter()
    runs = []
    for (path, record), name in zip(loaded, names, strict=True):
        key = (section_key(record), name)
        seen[key] += 1
        runs.append(Run(name if seen[key] == 1 else f"{name} #{seen[key]}", path, record))
    return runs


def section_key(record: Record) -> tuple[str, str, str]:
    """Only runs that share this are shown side by side: workload, scale and precision."""
    return (record.workload, record.scale, record.precision)


def sections(runs: Iterable[Run]) -> dict[tuple[str, str, str], list[Run]]:
    """The runs by `section_key`, in the order in which they come."""
    grouped: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault(section_key(run.record), []).append(run)
    return grouped


def is_withheld(metric: Metric, record: Record) -> bool:
    """A TPU's price, energy and MFU are not shown for a run that no TPU took part in."""
    if not record.is_emulated_tpu:
        return False
    return metric.unit.split("/")[0] in ("USD", "J", "W") or "mfu" in metric.name.split("_")


def shown_metrics(record: Record) -> list[Metric]:
    """The record's metrics, plus what follows from its raw samples and its price."""
    metrics = [m for m in record.metrics if not is_withheld(m, record)]
    have = {m.name for m in metrics}
    metrics += [m for m in _from_samples(record) if m.name not in have]
    try:
        cost = cost_per_step(record, price_of(record))
    except CostError:
        return metrics
    return metrics if cost.name in have else [*metrics, cost]


def step_samples(record: Record) -> list[float]:
    """The timed steps in seconds, in order; empty where the record has none."""
    samples = record.samples.get("step_time_s")
    return [] if samples is None else [v for v in samples.values if v is not None]


def _from_samples(record: Record) -> list[Metric]:
    steps = step_samples(record)
    if not steps:
        return []
    n = len(steps)
    metrics = [
        Metric(
            "step_time_s",
            stats.median(steps),
            "s",
            method=f"median of {n} timed steps; 95 % bootstrap interval",
            ci95=stats.bootstrap_median_ci(steps),
        )
    ]
    for percent in PERCENTILES:
        value = stats.percentile(steps, percent)
        needed = stats.samples_needed(percent)
        method = f"of {n} timed steps" if value is not None else f"needs {needed} samples, has {n}"
        metrics.append(Metric(f"step_time_p{percent}_s", value, "s", method=method))
    return metrics


def price_of(record: Record) -> Price | None:
    """The price in the record's configuration. Raises CostError where it is no valid price."""
    config = record.config.get("price")
    return Price.from_config(config) if isinstance(config, dict) else None


def throughput(record: Record) -> Metric | None:
    """The headline throughput: the first `throughput_*_per_s` that has a value."""
    return next(
        (m for m in record.metrics if m.name.startswith("throughput_") and m.value is not None),
        None,
    )


def phase_order(runs: Iterable[Run]) -> list[str]:
    """All phase names of the runs: the known ones in their order, then the others."""
    names = dict.fromkeys(name for run in runs for name in run.record.phases)
    return [p for p in PHASES if p in names] + [n for n in names if n not in PHASES]


def results_frame(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per number: who, what, value, unit, label, method, interval."""
    rows = []
    for run in runs:
        r = run.record
        head = {
            "run": run.name,
            "workload": r.workload,
            "scale": r.scale,
            "precision": r.precision,
            "mode": r.mode,
            "device": r.device,
            "platform": r.platform,
            "chip": r.chip,
            "is_tpu": r.hardware == "tpu",
            "status": r.status,
            "parity": r.parity.verdict,
        }
        tail = {
            "started_utc": r.started_utc,
            "git_commit": r.git_commit,
            "corpus_hash": r.corpus_hash,
            "config_fingerprint": r.config_fingerprint,
            "record": str(run.path),
        }
        phases = [
            Metric(f"phase_{name}_s", seconds, "s", method="wall clock of the phase")
            for name, seconds in r.phases.items()
        ]
        for m in [*shown_metrics(r), *phases]:
            low, high = m.ci95 or (None, None)
            value = {
                "metric": m.name,
                "value": m.value,
                "unit": m.unit,
                "ci95_low": low,
                "ci95_high": high,
                "label": m.label,
                "method": m.method,
            }
            rows.append(head | value | tail)
    return pd.DataFrame(rows)
