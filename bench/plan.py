"""From a configuration to a checked plan of one run, its first record and its directory.

Nothing is imported or started for the run in here: wrong input must be found at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import environment
from bench.cost import CostError, Price
from bench.devices.base import Device
from bench.discovery import find_class
from bench.meters.base import Meter
from bench.meters.time import TimeMeter
from bench.options import UsageError, option, read_options
from bench.parity import ParityOptions
from bench.record import RECORD_NAME, Record, config_fingerprint
from bench.workloads.base import Setting, Workload

REFERENCE_DEVICE = "cpu"
# Keys that say where things lie; they do not change a result.
PLACES = ("hydra", "run_dir", "runs_dir", "cache_dir", "report")


@dataclass(frozen=True)
class RunOptions:
    """The top level of conf/config.yaml."""

    run: str = option(choices=("measure",))
    seed: int = option(at_least=0, at_most=2**32 - 1)
    run_dir: str | None
    runs_dir: str
    cache_dir: str | None


@dataclass(frozen=True)
class ScaleOptions:
    """See conf/scale/full.yaml."""

    name: str
    warm_up_window: int = option(at_least=1)
    warm_up_tolerance: float = option(above=0)
    min_warm_up_steps: int = option(at_least=1)
    max_warm_up_steps: int = option(at_least=1)
    min_steps: int = option(at_least=1)
    max_steps: int = option(at_least=1)
    window_s: float = option(at_least=0)


@dataclass(frozen=True)
class ReportOptions:
    """See conf/report/terminal.yaml."""

    name: str
    summary: bool
    progress: bool


@dataclass
class Plan:
    """A checked configuration. Nothing has been imported or started yet for it."""

    config: dict[str, Any]
    run: RunOptions
    scale: ScaleOptions
    parity: ParityOptions
    report: ReportOptions
    workload_name: str
    make_workload: Callable[[Setting], Workload]
    device: Device
    reference: Device
    meters: list[Meter]


def make_plan(config: dict[str, Any]) -> Plan:
    """Check all values. Raises UsageError."""
    groups = {"workload", "device", "scale", "meter", "price", "report", "parity"}
    top = read_options(RunOptions, {k: v for k, v in config.items() if k not in groups}, "config")
    scale = read_options(ScaleOptions, config["scale"], "scale")
    if scale.max_steps < scale.min_steps:
        raise UsageError(
            f"scale.max_steps={scale.max_steps}: below scale.min_steps={scale.min_steps}"
        )
    values = dict(config["workload"])
    name = values.pop("name")
    kind = find_class("bench.workloads", name, Workload)
    scales = values.pop("scales", {})
    # What the scale holds beyond the workload's own keys are defaults for the workload to choose.
    extra = {k: v for k, v in scales.get(scale.name, {}).items() if k not in values}
    options = read_options(kind.Options, values | extra, "workload")
    device = _device(config["device"])
    meters = []
    for meter_name, meter_values in config["meter"].items():
        meter = find_class("bench.meters", meter_name, Meter)
        meters.append(
            meter(read_options(meter.Options, meter_values or {}, f"meter.{meter_name}"), device)
        )
    if not any(isinstance(m, TimeMeter) for m in meters):
        raise UsageError("meter: must include time, e.g. meter=[time,memory]")
    try:
        Price.from_config(config["price"])
    except CostError as error:
        raise UsageError(f"price: {error}") from None
    plain = {"name": REFERENCE_DEVICE, "mode": "eager", "precision": "fp32"}
    return Plan(
        config=config,
        run=top,
        scale=scale,
        parity=read_options(ParityOptions, config["parity"], "parity"),
        report=read_options(ReportOptions, config["report"], "report"),
        workload_name=name,
        make_workload=lambda setting: kind(options, setting),
        device=device,
        reference=_device(plain),
        meters=meters,
    )


def _device(values: dict[str, Any]) -> Device:
    values = dict(values)
    kind = find_class("bench.devices", values.pop("name"), Device)
    return kind(read_options(kind.Options, values, "device"))


def new_record(plan: Plan) -> Record:
    """The record as it is before anything has run. Its platform is not known yet."""
    options = plan.device.options
    return Record(
        workload=plan.workload_name,
        device=plan.device.name,
        scale=plan.scale.name,
        mode=options.mode,
        precision=options.precision,
        run=plan.run.run,
        platform="unknown",
        software=environment.software(),
        git_commit=environment.git_commit(),
        host=environment.host(),
        config=plan.config,
        config_fingerprint=config_fingerprint(plan.config, PLACES),
    )


def new_run_dir(plan: Plan) -> tuple[Path, bool]:
    """(the run's directory, whether it was made here). Never one that already holds a record."""
    options = plan.device.options
    if plan.run.run_dir is not None:
        path = Path(plan.run.run_dir)
        if (path / RECORD_NAME).exists():
            raise UsageError(f"run_dir={path}: already holds a record; choose another directory")
        existed = path.exists()
        _make(path, exist_ok=True)
        return path, not existed
    parts = [time.strftime("%Y%m%d-%H%M%S"), plan.workload_name, plan.device.name, plan.scale.name]
    parts += [options.mode] if options.mode != "eager" else []
    parts += [options.precision] if options.precision != "fp32" else []
    stem = Path(plan.run.runs_dir) / "_".join(parts)
    for n in range(1, 1000):
        path = stem if n == 1 else stem.with_name(f"{stem.name}_{n}")
        if _make(path, exist_ok=False):
            return path, True
    raise UsageError(f"runs_dir={plan.run.runs_dir}: no free name like {stem.name}")


def _make(path: Path, *, exist_ok: bool) -> bool:
    """Make the directory; False if it was there already and must not be."""
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if path.is_dir() and not exist_ok:
            return False
        raise UsageError(f"{path}: cannot be a run directory, it is a file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be made ({error.strerror})") from None
    return True
