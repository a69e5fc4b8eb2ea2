"""The command line as a process: a good run, a failed one and a stopped one each leave a record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import write_text

from bench.__main__ import main
from bench.record import load
from bench.workloads.bert_large import BertLarge

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "workload=bert_large",
    "device=cpu",
    "scale=smoke",
    "workload.hidden_size=32",
    "workload.layers=1",
    "workload.vocab_size=1000",
    "scale.window_s=0",
    "scale.min_steps=5",
    "scale.max_warm_up_steps=4",
]


@pytest.fixture
def command(tmp_path):
    text = write_text(tmp_path / "text.txt")
    places = [
        f"workload.data.path={text}",
        f"run_dir={tmp_path}/run",
        f"cache_dir={tmp_path}/cache",
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }

    def start(*overrides):
        return subprocess.Popen(
            [sys.executable, "-m", "bench", *SMALL, *places, *overrides],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_a_good_run(command, tmp_path):
    process = command()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err == ""
    assert "cpu (native PyTorch" in out
    assert out.splitlines()[-1] == f"record: {tmp_path}/run/record.json"
    record = load(tmp_path / "run")
    assert record.status == "ok"
    assert record.parity.verdict == "reference"
    assert len(record.samples["step_time_s"].values) == 5
    assert len(record.loss_curve) == 5 + 1 + len(record.samples["warm_up_step_time_s"].values)
    assert record.metric("host_peak_memory_bytes").value > 1e8
    assert record.metric("peak_memory_bytes").value is None
    assert record.metric("throughput_tokens_per_s").ci95 is not None
    assert record.config["workload"]["batch_size"] == 2
    assert record.platform == "native"
    phases = ["import", "data", "model_load", "compile_cold", "warm_up", "steady", "parity"]
    assert list(record.phases) == phases
    # Nothing else is left in the directory where it was started.
    assert {p.name for p in tmp_path.iterdir()} == {"text.txt", "run", "cache"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"record.json"}


def test_a_failed_run_leaves_a_record_with_the_error(tmp_path, monkeypatch, capsys):
    def build(self):
        raise RuntimeError("no memory for it")

    monkeypatch.setattr(BertLarge, "build", build)
    text = write_text(tmp_path / "text.txt")
    places = [f"workload.data.path={text}", f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}"]
    assert main([*SMALL, *places]) == 1
    assert "bench: failed: RuntimeError: no memory for it" in capsys.readouterr().err
    record = load(tmp_path / "run")
    assert record.status == "failed"
    assert record.error.type == "RuntimeError"
    assert "import" in record.phases


def test_a_stopped_run_leaves_a_record(command, tmp_path):
    process = command("scale.window_s=1000", "scale.max_steps=1000000")
    record_file = tmp_path / "run" / "record.json"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        # The phases appear one by one as they end; the record is whole at every moment.
        if record_file.exists() and "warm_up" in load(record_file).phases:
            break
        time.sleep(0.1)
    assert load(record_file).status == "running"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    record = load(record_file)
    assert record.status == "interrupted"
    assert "SIGINT" in record.error.message
    assert "Traceback" not in err
    assert f"record: {record_file}" in out


STUCK = """
import sys, time
from bench import interrupt
from bench.record import Record
record = Record(workload="w", device="cpu")
def give_up(name):
    record.finish("interrupted", RuntimeError(f"stopped by {name}"))
    record.save(sys.argv[1])
with interrupt.interruptible(give_up, grace_s=0.5):
    ready = "ready"
    while True:  # as deaf as native code
        try:
            print(ready, end="", flush=True)
            ready = ""
            time.sleep(100)
        except BaseException:
            pass
"""


def test_a_run_that_does_not_react_is_ended_with_a_record(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.read(5) == "ready"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    record = load(tmp_path)
    assert record.status == "interrupted"
    assert "SIGTERM" in record.error.message
