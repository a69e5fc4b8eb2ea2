"""The schema: what a record refuses, and what survives being written and read."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.record import (
    Metric,
    Parity,
    Record,
    RecordError,
    RunError,
    check_unit,
    combine_labels,
    config_fingerprint,
    expected_unit,
    from_dict,
    load,
)


def finished() -> Record:
    record = Record(workload="bert_large", device="tpu", platform="cpu", config={"seed": 1})
    record.add_samples("step_time_s", "s", [1.0, 1.5, 1.25])
    record.add_metric(
        "throughput_tokens_per_s", 204.8, "tokens/s", method="from the median", ci95=(170.7, 256.0)
    )
    record.add_metric("peak_memory_bytes", None, "bytes", method="not reported by this client")
    record.phases["import"] = 2.5
    record.loss_curve = [10.5, 10.25]
    record.parity = Parity("pass", 1e-3, 2e-5, 3, "4 of 24 layers", [10.5], [10.5])
    record.counters = {"compiles": 2, "cpu_fallback_ops": {"aten::nonzero": 3}}
    record.warn("slow disk")
    record.finish("ok")
    return record


def test_a_record_reads_back_equal(tmp_path: Path) -> None:
    record = finished()
    path = record.save(tmp_path)
    assert path == tmp_path / "record.json"
    assert load(tmp_path) == load(path) == record


def test_record_needs_no_torch() -> None:
    code = "import sys, bench.record; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("step_time_s", "s"),
        ("peak_memory_bytes", "bytes"),
        ("energy_j", "J"),
        ("power_w", "W"),
        ("cost_usd", "USD"),
        ("cost_usd_per_step", "USD/step"),
        ("usd_per_chip_hour", "USD/chip-hour"),
        ("throughput_tokens_per_s", "tokens/s"),
        ("throughput_tokens_per_s_per_chip", "tokens/s/chip"),
        ("peak_flops_per_s", "FLOP/s"),
        ("input_wait_share", "1"),
    ],
)
def test_a_name_promises_its_unit(name: str, unit: str) -> None:
    assert expected_unit(name) == unit
    check_unit(name, unit)
    with pytest.raises(RecordError, match="promises"):
        check_unit(name, "furlong")


@pytest.mark.parametrize("name", ["step_time_ms", "memory_gib", "energy_kwh", "wait_percent"])
def test_scaled_units_are_refused(name: str) -> None:
    with pytest.raises(RecordError, match="unscaled"):
        check_unit(name, "s")


@pytest.mark.parametrize(("name", "unit"), [("loss", "s"), ("memory", "bytes"), ("rate", "x/s")])
def test_a_physical_unit_must_show_in_the_name(name: str, unit: str) -> None:
    with pytest.raises(RecordError, match="must end in"):
        check_unit(name, unit)


def test_a_plain_number_has_the_unit_one() -> None:
    check_unit("mean_dice", "1")
    with pytest.raises(RecordError, match="no unit"):
        check_unit("mean_dice", "")


def test_modelled_and_assumed_come_first_in_a_combined_label() -> None:
    assert combine_labels("measured", "list price") == "measured + list price"
    assert combine_labels("measured", "modelled") == "modelled + measured"
    assert combine_labels("measured + list price", "assumed") == "assumed + measured + list price"
    assert combine_labels("measured", "measured") == "measured"
    with pytest.raises(RecordError, match="unknown label 'guessed'"):
        combine_labels("measured", "guessed")


@pytest.mark.parametrize("value", [math.nan, math.inf, "1.0", True])
def test_a_metric_must_be_a_finite_number(value: object) -> None:
    with pytest.raises(RecordError, match="finite number"):
        Metric("loss", value, "1", method="x")


def test_a_missing_value_needs_a_reason() -> None:
    with pytest.raises(RecordError, match="says why"):
        Metric("peak_memory_bytes", None, "bytes")


def test_an_interval_must_be_in_order() -> None:
    with pytest.raises(RecordError, match="ci95"):
        Metric("loss", 1.0, "1", ci95=(2.0, 1.0))


def test_a_metric_name_is_used_once() -> None:
    record = finished()
    with pytest.raises(RecordError, match="already has"):
        record.add_metric("peak_memory_bytes", 1.0, "bytes")


def test_parity_cannot_pass_beyond_its_tolerance() -> None:
    for difference in (2e-3, None, math.nan):
        with pytest.raises(RecordError, match="parity 'pass'"):
            Parity("pass", 1e-3, difference)


def test_losses_that_are_not_finite_become_null_with_a_warning(tmp_path: Path) -> None:
    record = finished()
    record.loss_curve = [10.5, math.nan, math.inf]
    path = record.save(tmp_path)
    assert json.loads(path.read_text())["loss_curve"] == [10.5, None, None]
    assert "NaN" not in path.read_text()
    assert "loss_curve: 2 non-finite numbers written as null" in load(path).warnings


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_only_a_finished_run_is_good(tmp_path: Path, status: str) -> None:
    record = Record(workload="w", device="cpu")
    if status != "running":
        record.finish(status, ValueError("no"))
    assert not load(record.save(tmp_path)).is_good
    assert finished().is_good


def test_an_exception_becomes_the_error(tmp_path: Path) -> None:
    record = Record(workload="w", device="cpu")
    record.finish("failed", MemoryError("out of memory"))
    assert load(record.save(tmp_path)).error == RunError("MemoryError", "out of memory")


def test_a_failed_run_needs_an_error_and_a_good_one_has_none() -> None:
    record = Record(workload="w", device="cpu")
    record.finish("failed")
    with pytest.raises(RecordError, match="error: missing"):
        record.validate()
    record.finish("ok", ValueError("x"))
    with pytest.raises(RecordError, match="error: present"):
        record.validate()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    text = finished().save(tmp_path).read_text().rstrip()
    path = tmp_path / "cut.json"
    for end in range(0, len(text), 37):
        path.write_text(text[:end])
        with pytest.raises(RecordError, match=r"cut\.json: (empty|truncated)"):
            load(path)


def test_every_missing_field_is_named(tmp_path: Path) -> None:
    tree = finished().to_dict()
    for name in tree:
        partial = {key: value for key, value in tree.items() if key != name}
        path = tmp_path / "part.json"
        path.write_text(json.dumps(partial))
        with pytest.raises(RecordError, match=rf"part\.json: {name}: missing"):
            load(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema_version", 99, "schema_version: 99 is unknown"),
        ("schema_version", True, "schema_version"),
        ("status", "done", "status: 'done'"),
        ("chip_count", "1", "chip_count: expected int, found str"),
        ("chip_count", True, "chip_count: expected int, found bool"),
        ("loss_curve", ["x"], r"loss_curve\[0\]: expected"),
        ("phases", {"import": -1.0}, "phase 'import' is negative"),
        ("phases", {"<b>": 1.0}, "no metric name"),
        ("phases", {"import": None}, "phases.import: expected"),
        ("samples", {"step_time_s": {"unit": "s"}}, "samples.step_time_s.values: missing"),
        ("samples", {"step_time_s": {"unit": "J", "values": []}}, "promises the unit 's'"),
        ("metrics", [{"name": "loss"}], r"metrics\[0\].value: missing"),
        ("warnings", [1], r"warnings\[0\]: expected str"),
        ("finished_utc", "yesterday", "finished_utc: 'yesterday'"),
        ("started_utc", "2026-01-01T00:00:00", "started_utc"),
        ("surprise", 1, "surprise: unknown field"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_dict(finished().to_dict() | {field: value})


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
def test_what_is_no_object_is_no_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match="JSON object"):
        load(path)


def test_nan_in_a_file_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"schema_version": NaN}')
    with pytest.raises(RecordError, match="NaN is not strict JSON"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="not UTF-8"):
        load(path)


def test_a_failed_write_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = finished()
    record.save(tmp_path)
    before = (tmp_path / "record.json").read_bytes()

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    record.warn("new")
    with pytest.raises(OSError, match="disk full"):
        record.save(tmp_path)
    assert (tmp_path / "record.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_what_is_no_json_is_named(tmp_path: Path) -> None:
    record = finished()
    record.host = {"lock": object()}
    with pytest.raises(RecordError, match=r"host\.lock"):
        record.save(tmp_path)


def test_the_fingerprint_ignores_order_and_places() -> None:
    first = config_fingerprint({"a": 1, "b": {"c": 2, "d": 3}, "place": "x"}, ["place"])
    assert first == config_fingerprint({"b": {"d": 3, "c": 2}, "a": 1, "place": "y"}, ["place"])
    assert first != config_fingerprint({"a": 2, "b": {"c": 2, "d": 3}})


@pytest.mark.parametrize(
    ("device", "platform", "hardware", "emulated"),
    [
        ("tpu", "tpu", "tpu", False),
        ("tpu", "cpu", "cpu", True),
        ("tpu", "cuda", "cuda", False),
        ("tpu", "native", "unknown", True),
        ("tpu", "unknown", "unknown", True),
        ("cuda", "native", "cuda", False),
        ("cpu", "native", "cpu", False),
    ],
)
def test_the_platform_decides_what_the_times_speak_of(
    device: str, platform: str, hardware: str, emulated: bool
) -> None:
    record = Record(workload="w", device=device, platform=platform)
    assert (record.hardware, record.is_emulated_tpu) == (hardware, emulated)
