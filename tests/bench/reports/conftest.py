"""Records with known numbers. Nothing here measures: every value is written down or computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.record import Parity, Record, config_fingerprint
from bench.stats import bootstrap_median_ci, median, rate


def steps_around(center_s: float, count: int = 24, spread: float = 0.02) -> list[float]:
    """Step times on a fixed wave around `center_s`; their median is close to it."""
    return [center_s * (1 + spread * math.sin(2.4 * i)) for i in range(count)]


def make_record(device: str = "cpu", **changes: Any) -> Record:
    """A finished bert_large record of a device; `step_s` sets its pace, other keys its fields."""
    step_s = changes.pop("step_s", 4.4)
    count = changes.pop("steps", 24)
    emulated = device == "tpu" and changes.get("platform", "cpu") == "cpu"
    losses = [10.53 * math.exp(-0.04 * i) for i in range(count)]
    config = {
        "workload": {"name": "bert_large", "batch_size": 2, "sequence_length": 128},
        "device": {"name": device, "mode": "eager"},
        "price": changes.pop("price", {"usd_per_chip_hour": None}),
    }
    values: dict[str, Any] = {
        "workload": "bert_large",
        "device": device,
        "platform": {"tpu": "cpu"}.get(device, "native"),
        "ran_on": "tpu (PJRT platform: cpu, no TPU found: these times say nothing about a TPU)"
        if emulated
        else device,
        "software": {"python": "3.12.4", "torch": "2.13.0", "jax": "0.10.2"},
        "git_commit": "0123abc",
        "host": {"name": "lab-1", "cpu": "2 cores", "memory_bytes": 25769803776},
        "config": config,
        "config_fingerprint": config_fingerprint(config),
        "corpus_hash": "c0ffee",
        "started_utc": "2026-03-01T10:00:00+00:00",
        "finished_utc": "2026-03-01T10:04:00+00:00",
        "work_per_step": {"sequences": 2, "tokens": 256},
        "phases": {"import": 2.1, "data": 1.4, "model_load": 6.0, "warm_up": 3 * step_s},
        "loss_curve": losses,
        "counters": {"compiles": 0, "cpu_fallback_ops": {}},
        "status": "ok",
    }
    if device == "tpu":
        values["phases"] |= {"compile_cold": 11.2, "parity": 40.0}
        values["counters"] = {"compiles": 212, "cpu_fallback_ops": {}}
        values["parity"] = Parity(
            verdict="pass",
            tolerance=1e-3,
            max_relative_difference=2.1e-5,
            steps=3,
            note="4 of 24 layers: the full model does not fit twice",
            reference_losses=[10.5301, 10.1172, 9.7205],
            device_losses=[10.5302, 10.1174, 9.7204],
        )
    elif device == "cpu":
        values["parity"] = Parity(verdict="reference")
    values["phases"]["steady"] = count * step_s
    record = Record(**(values | changes))
    samples = steps_around(step_s, count)
    record.add_samples("step_time_s", "s", samples)
    ci95 = bootstrap_median_ci(samples)
    method = f"median of {count} timed steps; 95 % bootstrap interval"
    record.add_metric("step_time_s", median(samples), "s", method=method, ci95=ci95)
    value, ci95 = rate(2, median(samples), ci95)
    method = "2 sequences per step over the median step time"
    record.add_metric("throughput_sequences_per_s", value, "sequences/s", method=method, ci95=ci95)
    method = "not reported by this PJRT client" if emulated else "no device memory on a CPU"
    record.add_metric("peak_memory_bytes", None, "bytes", method=method)
    record.add_metric(
        "host_peak_memory_bytes", 5.5 * 2**30, "bytes", method="peak resident set of the process"
    )
    return record


@pytest.fixture(scope="session")
def record_factory() -> Callable[..., Record]:
    return make_record


@pytest.fixture
def record_of() -> Callable[..., Record]:
    return make_record


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Save a record to a run directory of its own and return that directory."""

    def save(record: Record, name: str | None = None) -> Path:
        folder = tmp_path / "runs" / (name or f"{record.device}-{len(list(tmp_path.rglob('*')))}")
        folder.mkdir(parents=True)
        record.save(folder)
        return folder

    return save
