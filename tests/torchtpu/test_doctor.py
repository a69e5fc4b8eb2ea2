"""``python -m torchtpu.doctor``: findings, advice and the exit code."""

import sys
import tomllib

import pytest
from processes import ROOT, run_module

from torchtpu import doctor
from torchtpu.doctor import NOTE, OK, WRONG


def _by_name(rows):
    return {row.name: row for row in rows}


def test_a_device_that_computes_gives_exit_code_0():
    done = run_module("torchtpu.doctor", TORCHTPU_PLATFORM="cpu", TORCHTPU_PLATFROM="cpu")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("The tpu device computes. It is tpu (PJRT platform: cpu")
    for section in ("Software", "PyTorch plug-in", "Hardware", "Environment variables", "Device"):
        assert section in lines
    for found in ("agree with the CPU", "TORCHTPU_PLATFORM asks for it", "compiled in"):
        assert found in done.stdout
    assert "did you mean TORCHTPU_PLATFORM?" in done.stdout


def test_a_mistake_of_the_user_gives_exit_code_1_and_the_reason():
    done = run_module("torchtpu.doctor", XRT_TPU_CONFIG="tpu_worker")
    assert (done.returncode, done.stderr) == (1, "")
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("The tpu device does NOT compute: the device could not be started")
    assert "XRT_TPU_CONFIG" in verdict
    assert "<worker>:<task>;<ordinal>" in verdict
    assert "Traceback" not in done.stdout


def test_a_device_that_hangs_is_a_finding():
    found = doctor.run_probe(timeout_s=0.01)
    assert "did not compute within 0.01 s" in found.error
    assert "--timeout" in found.mend


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os, sys; print('boom', file=sys.stderr); sys.exit(3)", "code 3: boom"),
        ("import os; os.abort()", "signal 6"),
    ],
)
def test_a_device_that_crashes_is_a_finding(monkeypatch, tmp_path, code, expected):
    (tmp_path / "crash.py").write_text(code)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/crash.py"\n')
    python.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(python))
    assert expected in doctor.run_probe(timeout_s=60).error


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, WRONG),
        ("2.10.1", WRONG),
        ("2.11.0", OK),
        ("2.13.0+cpu", OK),
        ("2.15.1", OK),
        ("2.16.0.dev20260101", WRONG),
        ("3.0.0", WRONG),
    ],
)
def test_torch_versions_outside_the_range_are_wrong(version, status):
    row = doctor.torch_row(version)
    assert row.status == status
    assert bool(row.mend) == (status == WRONG)


def test_the_range_of_torch_is_the_one_that_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    low, high = (".".join(map(str, v)) for v in doctor.TORCH_VERSIONS)
    assert f"torch>={low},<{high}" in project["dependencies"]
    assert project["entry-points"][doctor.ENTRY_POINT_GROUP] == {"tpu": "torchtpu:_autoload"}


def test_environment_variables_are_explained_and_checked(monkeypatch):
    monkeypatch.setenv("TORCHTPU_FALLBACK", "sometimes")
    monkeypatch.setenv("TORCHTPU_EAGER_MODE", "debug")
    rows = _by_name(
        doctor.environment_rows(
            {"TORCHTPU_FALLBACK": "sometimes", "TORCHTPU_EAGER_MODE": "debug", "TORCHTPU_X": "1"}
        )
    )
    assert rows["TORCHTPU_FALLBACK"].status == WRONG
    assert "allow, warn, error" in rows["TORCHTPU_FALLBACK"].mend
    assert rows["TORCHTPU_EAGER_MODE"].status == OK
    assert "strict" in rows["TORCHTPU_EAGER_MODE"].value
    assert rows["TORCHTPU_X"].status == NOTE
    assert rows["XRT_TPU_CONFIG"].value.startswith("not set")


def test_autoload_that_is_switched_off_is_noted():
    assert _by_name(doctor.plugin_rows({}))["autoload"].status == OK
    row = _by_name(doctor.plugin_rows({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))["autoload"]
    assert row.status == NOTE
    assert "unset TORCH_DEVICE_BACKEND_AUTOLOAD" in row.mend


def test_other_backends_of_torch_are_noted(monkeypatch):
    points = [doctor.importlib.metadata.EntryPoint("npu", "torch_npu:_autoload", "torch.backends")]
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda group: points)
    rows = _by_name(doctor.plugin_rows({}))
    assert "torch_npu" in rows["another backend"].value
    assert rows["entry point torch.backends"].status == NOTE


def test_a_device_file_without_permission_is_wrong(monkeypatch, tmp_path):
    chip = tmp_path / "accel0"
    chip.touch(mode=0o600)
    monkeypatch.setattr(doctor, "tpu_device_files", lambda: [str(chip)])
    assert _by_name(doctor.hardware_rows())[f"device file {chip}"].status == OK
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    row = _by_name(doctor.hardware_rows())[f"device file {chip}"]
    assert row.status == WRONG
    assert "--privileged" in row.mend


def test_a_tpu_without_libtpu_is_wrong(monkeypatch):
    monkeypatch.setattr(doctor, "tpu_device_files", lambda: ["/dev/accel0"])
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    row = _by_name(doctor.software_rows())["libtpu"]
    assert row.status == WRONG
    assert "torchtpu[tpu]" in row.mend
