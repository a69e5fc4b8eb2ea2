"""What a run prints."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.record import Parity, Record
from bench.terminal import scaled, summary


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "n/a"),
        (1.5, "s", "1.5 s"),
        (0.00123, "s", "1.23 ms"),
        (12.3e-6, "s", "12.3 us"),
        (3e-9, "s", "0.003 us"),
        (5 * 2**30, "bytes", "5 GiB"),
        (0, "bytes", "0 B"),
        (2.0, "1", "2"),
        (68.379, "tokens/s", "68.38 tokens/s"),
    ],
)
def test_numbers_for_people(value, unit, text):
    assert scaled(value, unit) == text


def test_the_summary_says_what_ran_on_what_and_where_the_record_is():
    sentence = "tpu (PJRT platform: cpu, no TPU found: these times say nothing about a TPU)"
    record = Record(workload="w", device="tpu", platform="cpu", ran_on=sentence)
    record.add_metric("step_time_s", 0.5, "s", ci95=(0.4, 0.6))
    record.add_metric("peak_memory_bytes", None, "bytes", method="no sensor")
    record.parity = Parity("pass", 1e-3, 1e-6, 3, "dropout 0")
    record.counters["cpu_fallback_ops"] = {"aten::foo": 3}
    record.warn("[bold]careful[/bold]")
    record.finish("ok")
    file = io.StringIO()
    summary(record, "runs/x/record.json", Console(file=file, width=80))
    text = file.getvalue()
    assert sentence in text.splitlines()[0]
    assert "500 ms" in text
    assert "400 .. 600" in text
    assert "peak_memory_bytes" not in text
    assert "parity: pass (largest relative difference 1e-06, tolerance 0.001); dropout 0" in text
    assert "ran on the CPU instead: aten::foo x3" in text
    assert "warning: [bold]careful[/bold]" in text
    assert text.splitlines()[-1] == "record: runs/x/record.json"
