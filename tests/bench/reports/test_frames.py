"""Finding and loading records, and what of them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import RunError
from bench.reports.frames import (
    ReportError,
    collect,
    results_frame,
    sections,
    shown_metrics,
    throughput,
)

V5E = {"accelerator": "v5e", "chips": ["TPU v5 lite"], "usd_per_chip_hour": 1.2}


def test_a_run_dir_a_parent_and_a_file_all_work(saved, record_of, tmp_path: Path) -> None:
    a, b = saved(record_of("cpu"), "a"), saved(record_of("tpu"), "deep/b")
    for paths in ([tmp_path], [a, b], [a / "record.json", tmp_path], [a, a, b]):
        runs, broken = collect(paths)
        assert [run.name for run in runs] == ["cpu", "tpu on cpu"]
        assert broken == []


def test_broken_records_are_named_with_their_reason(saved, record_of, tmp_path: Path) -> None:
    saved(record_of("cpu"), "good")
    text = (saved(record_of("cpu"), "cut") / "record.json").read_text()
    (tmp_path / "runs/cut/record.json").write_text(text[: len(text) // 2])
    old = saved(record_of("cpu"), "old") / "record.json"
    old.write_text(old.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    runs, broken = collect([tmp_path])
    assert len(runs) == 1
    reasons = {item.path.parent.name: item.reason for item in broken}
    assert reasons["cut"].startswith("truncated")
    assert reasons["old"] == "schema_version: 7 is unknown; this reads 1"


def test_unknown_and_empty_paths_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such file or directory"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(ReportError, match=r"no record\.json in it or below"):
        collect([tmp_path])


def test_names_grow_only_as_far_as_they_must(saved, record_of, tmp_path: Path) -> None:
    saved(record_of("cpu"), "1")
    saved(record_of("tpu", mode="eager"), "2")
    saved(record_of("tpu", mode="fused"), "3")
    saved(record_of("tpu", platform="tpu", chip="TPU v5 lite", chip_count=4), "4")
    assert [run.name for run in collect([tmp_path])[0]] == [
        "4 x TPU v5 lite",
        "cpu",
        "tpu on cpu, eager",
        "tpu on cpu, fused",
    ]


def test_equal_runs_still_get_different_names(saved, record_of, tmp_path: Path) -> None:
    for name in "abc":
        saved(record_of("cpu"), name)
    names = [run.name for run in collect([tmp_path])[0]]
    assert len(set(names)) == 3


def test_another_scale_or_precision_is_another_section(saved, record_of, tmp_path: Path) -> None:
    saved(record_of("cpu"), "a")
    saved(record_of("cpu", precision="bf16"), "b")
    saved(record_of("cpu", scale="smoke"), "c")
    runs, _ = collect([tmp_path])
    assert [key[1:] for key in sections(runs)] == [
        ("full", "bf16"),
        ("full", "fp32"),
        ("smoke", "fp32"),
    ]


def test_percentiles_come_from_the_samples_or_not_at_all(record_of) -> None:
    metrics = {m.name: m for m in shown_metrics(record_of("cpu", steps=24))}
    assert metrics["step_time_p90_s"].value is not None
    assert metrics["step_time_p99_s"].value is None
    assert metrics["step_time_p99_s"].method == "needs 100 samples, has 24"
    metrics = {m.name: m for m in shown_metrics(record_of("cpu", steps=100))}
    assert metrics["step_time_p99_s"].value is not None


def test_an_emulated_tpu_shows_no_price_energy_or_mfu(record_of) -> None:
    def names(**where: str) -> set[str]:
        record = record_of("tpu", price=V5E, **where)
        record.add_metric("energy_j", 5.0, "J", label="modelled", method="x")
        record.add_metric("power_w", 5.0, "W", label="modelled", method="x")
        record.add_metric("mfu_ratio", 0.4, "1", method="x")
        record.add_metric("cost_usd", 1.0, "USD", method="x")
        return {m.name for m in shown_metrics(record)}

    withheld = {"energy_j", "power_w", "mfu_ratio", "cost_usd", "cost_usd_per_step"}
    assert not withheld & names()
    assert withheld <= names(platform="tpu", chip="TPU v5 lite")


def test_the_csv_has_unit_label_and_method_for_every_number(
    saved, record_of, tmp_path: Path
) -> None:
    saved(record_of("tpu"), "a")
    failed = record_of("cpu", status="failed", error=RunError("ValueError", "no"))
    saved(failed, "b")
    frame = results_frame(collect([tmp_path])[0])
    assert frame[["unit", "label", "method"]].notna().all().all()
    assert set(frame["status"]) == {"ok", "failed"}
    assert not frame["is_tpu"].any()
    row = frame[(frame["metric"] == "phase_compile_cold_s")].iloc[0]
    assert (row["value"], row["unit"], row["device"], row["platform"]) == (11.2, "s", "tpu", "cpu")


def test_the_first_throughput_with_a_value_counts(record_of) -> None:
    record = record_of("cpu")
    record.add_metric("throughput_tokens_per_s", 1.0, "tokens/s")
    assert throughput(record).name == "throughput_sequences_per_s"
