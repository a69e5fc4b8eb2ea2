"""The versioned result schema: one run of one workload on one device, written as strict JSON.

This module knows no device, no clock and no report, and imports no torch. Quantities are in SI
units and carry the unit in their name (`step_time_s`, `peak_memory_bytes`); reports convert.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.units import (
    ASSUMED,
    LABELS,
    LIST_PRICE,
    MEASURED,
    MODELLED,
    PUBLISHED,
    RecordError,
    check_unit,
    combine_labels,
    expected_unit,
    split_label,
)

__all__ = [
    "ASSUMED",
    "LABELS",
    "LIST_PRICE",
    "MEASURED",
    "MODELLED",
    "PHASES",
    "PUBLISHED",
    "RECORD_NAME",
    "SCHEMA_VERSION",
    "STATUSES",
    "VERDICTS",
    "Metric",
    "Parity",
    "Record",
    "RecordError",
    "RunError",
    "Samples",
    "check_unit",
    "combine_labels",
    "config_fingerprint",
    "expected_unit",
    "from_dict",
    "load",
    "split_label",
    "utc_now",
]

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"

STATUSES = ("running", "ok", "failed", "interrupted")
VERDICTS = ("pass", "fail", "reference", "not-run")
# Known phases in the order in which they happen; others are allowed and come after these.
PHASES = (
    "import",
    "data",
    "model_load",
    "compile_cold",
    "compile_warm",
    "warm_up",
    "steady",
    "parity",
)


# --- parts of a record -------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """One number with all that is needed to trust it.

    `value` None means unavailable, and `method` then says why: a missing sensor is never 0.
    `ci95` is (low, high) in the metric's own unit.
    """

    name: str
    value: float | None
    unit: str
    label: str = MEASURED
    method: str = ""
    ci95: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_unit(self.name, self.unit)
        split_label(self.label)
        if self.value is None and not self.method:
            raise RecordError(f"metric {self.name!r} has no value and no method that says why")
        if self.value is not None:
            object.__setattr__(self, "value", _finite(self.value, f"metric {self.name!r}"))
        if self.ci95 is not None:
            if self.value is None or len(self.ci95) != 2:
                raise RecordError(f"metric {self.name!r}: ci95 is (low, high) beside a value")
            low, high = (_finite(end, f"metric {self.name!r} ci95") for end in self.ci95)
            if low > high:
                raise RecordError(f"metric {self.name!r}: ci95 {low} > {high}")
            object.__setattr__(self, "ci95", (low, high))


@dataclass(frozen=True)
class Samples:
    """Raw samples in the order in which they were taken; None where one is not a number."""

    unit: str
    values: list[float | None]


@dataclass(frozen=True)
class Parity:
    """Do the device and the reference agree? From a separate, untimed pass.

    `note` says what the pass differs in from the timed run (depth, dropout). A reference run
    (the CPU itself) has the verdict "reference".
    """

    verdict: str = "not-run"
    tolerance: float | None = None
    max_relative_difference: float | None = None
    steps: int = 0
    note: str = ""
    reference_losses: list[float | None] = field(default_factory=list)
    device_losses: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise RecordError(f"unknown parity verdict {self.verdict!r}; valid: {VERDICTS}")
        if self.verdict in ("pass", "fail") and self.tolerance is None:
            raise RecordError("a parity verdict needs the tolerance that it was judged by")
        if self.verdict == "pass":
            difference = self.max_relative_difference
            # A NaN difference compares false with everything: it must not pass.
            if difference is None or not difference <= self.tolerance:
                raise RecordError(f"parity 'pass' with difference {difference} > {self.tolerance}")


@dataclass(frozen=True)
class RunError:
    type: str
    message: str


@dataclass
class Record:
    """One run. Build it with status "running", fill it, `finish()` it and `save()` it.

    device        what was asked for: "tpu", "cuda" or "cpu"
    platform      where it ran: the PJRT platform ("tpu", "cpu", "cuda") or "native" (plain torch)
    chip          the chip's name as the runtime gives it, e.g. "TPU v5e", or None
    ran_on        one sentence for people, e.g. "tpu (PJRT platform: cpu, no TPU found: ...)"
    work_per_step how much one step does, e.g. {"sequences": 2, "tokens": 256}
    facts         what the workload says of itself, e.g. {"parameters": 336226108}
    phases        seconds by phase name, see PHASES
    samples       raw samples by name; the timed steps are "step_time_s"
    counters      e.g. {"compiles": 3, "cpu_fallback_ops": {"aten::foo": 2}}
    """

    workload: str
    device: str
    scale: str = "full"
    mode: str = "eager"
    precision: str = "fp32"
    run: str = "measure"
    platform: str = "native"
    chip: str | None = None
    chip_count: int = 1
    ran_on: str = ""
    software: dict[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    host: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    config_fingerprint: str = ""
    corpus_hash: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    started_utc: str = field(default_factory=lambda: utc_now())
    finished_utc: str | None = None
    work_per_step: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    samples: dict[str, Samples] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    loss_curve: list[float | None] = field(default_factory=list)
    parity: Parity = field(default_factory=Parity)
    counters: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    status: str = "running"
    error: RunError | None = None
    schema_version: int = SCHEMA_VERSION

    # Reading

    @property
    def is_good(self) -> bool:
        """True only for a run that ended well: a running, failed or stopped one never counts."""
        return self.status == "ok"

    @property
    def hardware(self) -> str:
        """What the times speak of: "tpu", "cuda", "cpu" or "unknown", whatever was asked for."""
        if self.platform != "native":
            return self.platform
        # There is no native PyTorch on a TPU: such a record stopped before it knew its platform.
        return "unknown" if self.device == "tpu" else self.device

    @property
    def is_emulated_tpu(self) -> bool:
        """Asked for `tpu`, ran on the PJRT CPU client: never priced or ranked as a TPU."""
        return self.device == "tpu" and self.hardware not in ("tpu", "cuda")

    def metric(self, name: str) -> Metric | None:
        return next((m for m in self.metrics if m.name == name), None)

    # Building

    def warn(self, message: str) -> None:
        """Add a warning once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def add_metric(self, name: str, value: float | None, unit: str, **more: Any) -> Metric:
        """Append a Metric (keywords: label, method, ci95); a name is used once in a record."""
        if self.metric(name):
            raise RecordError(f"the record already has a metric {name!r}")
        metric = Metric(name, value, unit, **more)
        self.metrics.append(metric)
        return metric

    def add_samples(self, name: str, unit: str, values: Iterable[float | None]) -> None:
        check_unit(name, unit)
        self.samples[name] = Samples(unit, [None if v is None else float(v) for v in values])

    def finish(self, status: str, error: BaseException | RunError | None = None) -> None:
        """Set the final status and the end time; an exception becomes `error`."""
        if isinstance(error, BaseException):
            error = RunError(type(error).__name__, str(error))
        self.status, self.error, self.finished_utc = status, error, utc_now()

    def validate(self) -> None:
        """Raise RecordError unless all parts agree with the schema and with each other."""
        for name, value in self.phases.items():
            check_unit(f"phase_{name}_s", "s")
            if _finite(value, f"phase {name!r}") < 0:
                raise RecordError(f"phase {name!r} is negative: {value}")
        for name, samples in self.samples.items():
            check_unit(name, samples.unit)
        names = [m.name for m in self.metrics]
        if len(set(names)) != len(names):
            raise RecordError(f"metrics: a name occurs twice in {sorted(names)}")
        for name in ("workload", "device", "platform"):
            if not getattr(self, name):
                raise RecordError(f"{name}: empty")
        if self.schema_version != SCHEMA_VERSION:
            raise RecordError(f"schema_version: {self.schema_version} is not {SCHEMA_VERSION}")
        if self.status not in STATUSES:
            raise RecordError(f"status: {self.status!r}; valid: {', '.join(STATUSES)}")
        if self.status != "running" and not self.finished_utc:
            raise RecordError(f"finished_utc: missing although the status is {self.status!r}")
        if self.status == "failed" and self.error is None:
            raise RecordError("error: missing although the status is 'failed'")
        if self.status == "ok" and self.error is not None:
            raise RecordError("error: present although the status is 'ok'")
        for name in ("started_utc", "finished_utc"):
            stamp = getattr(self, name)
            if stamp is not None and _parse_utc(stamp) is None:
                raise RecordError(f"{name}: {stamp!r} is no ISO 8601 time with an offset")

    # Writing

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only. A number that is not finite becomes null, with a warning."""
        self.validate()
        lost: list[str] = []
        tree = _jsonable(asdict(self), "", lost)
        for path, count in _count_by_array(lost).items():
            note = f"{path}: {count} non-finite number{'s' * (count > 1)} written as null"
            if note not in tree["warnings"]:
                tree["warnings"].append(note)
        return tree

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write atomically: a reader sees the old record or the new one, never a part of it.

        `path` is a file, or a run directory that gets `record.json`.
        """
        path = Path(path)
        if path.is_dir():
            path = path / RECORD_NAME
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)  # mkstemp makes it private; reports are shared.
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _fsync_directory(path.parent)
        return path


# --- reading -----------------------------------------------------------------------------------

_NUMBER_OR_NONE = (int, float, type(None))
# What JSON holds for the annotation of a field of Record; an annotation's parameters are checked
# further down.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "dict": (dict,),
    "list": (list,),
    "Parity": (dict,),
    "RunError | None": (dict, type(None)),
    "float | None": _NUMBER_OR_NONE,
    "tuple": (list, type(None)),
}


def load(path: str | os.PathLike[str]) -> Record:
    """Read and validate a record file (or the one in a run directory).

    Raises RecordError naming the file and the field, FileNotFoundError if there is none. A record
    of status "running" loads, but is not `is_good`.
    """
    path = Path(path)
    if path.is_dir():
        path = path / RECORD_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 text ({error.reason})") from None
    try:
        tree = json.loads(text, parse_constant=_refuse_constant)
        return from_dict(tree)
    except json.JSONDecodeError as error:
        what = "empty" if not text.strip() else "truncated or not JSON"
        raise RecordError(f"{path}: {what} (line {error.lineno}: {error.msg})") from None
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except RecursionError:
        raise RecordError(f"{path}: nested too deeply to be a record") from None


def from_dict(tree: Any) -> Record:
    """The inverse of `Record.to_dict`; raises RecordError naming the field."""
    if not isinstance(tree, dict):
        raise RecordError(f"a record is a JSON object, not {type(tree).__name__}")
    # The version first: another version's fields would only give misleading errors.
    version = tree.get("schema_version")
    if "schema_version" not in tree:
        raise RecordError("schema_version: missing; this is no benchmark record")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise RecordError(f"schema_version: {version!r} is unknown; this reads {SCHEMA_VERSION}")
    _check_fields(tree, Record, "")
    values = dict(tree)
    values["samples"] = {
        name: _part(Samples, item, f"samples.{name}") for name, item in tree["samples"].items()
    }
    for name, samples in values["samples"].items():
        _check_numbers(samples.values, f"samples.{name}.values")
    values["metrics"] = [
        _part(Metric, item, f"metrics[{i}]") for i, item in enumerate(tree["metrics"])
    ]
    values["parity"] = _part(Parity, tree["parity"], "parity")
    for name in ("reference_losses", "device_losses"):
        _check_numbers(getattr(values["parity"], name), f"parity.{name}")
    if tree["error"] is not None:
        values["error"] = _part(RunError, tree["error"], "error")
    _check_numbers(tree["loss_curve"], "loss_curve")
    for name in ("phases", "work_per_step"):
        for key, number in tree[name].items():
            _check_type(number, (int, float), f"{name}.{key}")
    for i, text in enumerate(tree["warnings"]):
        _check_type(text, (str,), f"warnings[{i}]")
    record = Record(**values)
    record.validate()
    return record


def config_fingerprint(config: Mapping[str, Any], ignore: Iterable[str] = ()) -> str:
    """SHA-256 of the configuration's canonical JSON; keys of `ignore` do not change a result."""
    kept = {key: value for key, value in config.items() if key not in set(ignore)}
    text = json.dumps(_jsonable(kept, "", []), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """The time in UTC as ISO 8601 with seconds, e.g. 2026-01-31T12:00:00+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- helpers -----------------------------------------------------------------------------------


def _finite(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RecordError(f"{what}: {value!r} is no number") from None
    if isinstance(value, str | bool) or not math.isfinite(number):
        raise RecordError(f"{what}: {value!r} is not a finite number; use None where there is none")
    return number


def _parse_utc(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None


def _jsonable(value: Any, path: str, lost: list[str]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v, f"{path}.{k}".lstrip("."), lost) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v, f"{path}[{i}]", lost) for i, v in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a numpy scalar, without importing numpy
        value = value.item()
        if isinstance(value, bool | int | str):
            return value
    if not isinstance(value, float):
        raise RecordError(f"{path}: a {type(value).__name__} cannot be written as JSON")
    if math.isfinite(value):
        return value
    lost.append(path)
    return None


def _count_by_array(paths: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path in paths:
        name = re.sub(r"\[\d+\]$", "", path)
        counts[name] = counts.get(name, 0) + 1
    return counts


def _refuse_constant(text: str) -> None:
    raise RecordError(f"{text} is not strict JSON")


def _check_fields(tree: Mapping[str, Any], kind: type, where: str) -> None:
    dot = f"{where}." if where else ""
    known = {item.name: _JSON_TYPES[item.type.split("[")[0]] for item in fields(kind)}
    for name, types in known.items():
        if name not in tree:
            raise RecordError(f"{dot}{name}: missing")
        _check_type(tree[name], types, f"{dot}{name}")
    for name in tree:
        if name not in known:
            raise RecordError(f"{dot}{name}: unknown field of schema {SCHEMA_VERSION}")


def _check_type(value: Any, types: tuple[type, ...], where: str) -> None:
    # bool is an int in Python, but `true` is no count.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        names = " or ".join("null" if t is type(None) else t.__name__ for t in types)
        raise RecordError(f"{where}: expected {names}, found {type(value).__name__}")


def _check_numbers(values: Any, where: str) -> None:
    _check_type(values, (list,), where)
    for i, value in enumerate(values):
        _check_type(value, _NUMBER_OR_NONE, f"{where}[{i}]")


def _part(kind: type, tree: Any, where: str) -> Any:
    _check_type(tree, (dict,), where)
    _check_fields(tree, kind, where)
    values = {k: tuple(v) if k == "ci95" and isinstance(v, list) else v for k, v in tree.items()}
    try:
        return kind(**values)
    except (RecordError, TypeError) as error:
        raise RecordError(f"{where}: {error}") from None


def _fsync_directory(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not on Windows
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
