"""Wrong input: one clear message on standard error, exit code 2, nothing left behind."""

from __future__ import annotations

import pytest
import torch
from fakes import write_text

from bench import config as configuration
from bench.__main__ import main
from bench.options import UsageError
from bench.plan import make_plan, new_record, new_run_dir
from bench.record import load

BERT = ["workload=bert_large", "device=cpu", "scale=smoke"]


def refused(capsys, *arguments):
    """The one line that the command line answers with."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bench: error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["workload=bert_larg", "device=cpu"], ["bert_larg", "bert_large", "dispatch", "did you"]),
        (["workload=bert_large", "device=tpuu"], ["tpuu", "cpu, cuda, tpu", "'tpu'"]),
        (["workload=bert_large"], ["device=...", "cpu, cuda, tpu"]),
        (["device=cpu"], ["workload=...", "bert_large"]),
        (["workload=", "device=cpu"], ["unknown workload", "bert_large"]),
        ([*BERT, "scale=huge"], ["huge", "full, smoke"]),
        ([*BERT, "price=gold"], ["gold", "none"]),
        ([*BERT, "meter=[time,tim]"], ["tim", "memory, time"]),
        ([*BERT, "meter=memory"], ["must include time"]),
        ([*BERT, "foo=1"], ["foo", "workload", "seed"]),
        ([*BERT, "workload.batchsize=1"], ["batchsize", "sequence_length", "'batch_size'"]),
        ([*BERT, "workload.name=dispatch"], ["workload.name", "batch_size"]),
        ([*BERT, "workload.data.paths=x"], ["paths", "path"]),
        ([*BERT, "workload.data=x"], ["group of keys", "workload.data.path"]),
        ([*BERT, "workload.layers.x=1"], ["workload.layers is a single value"]),
        ([*BERT, "workload.batch_size=0"], ["workload.batch_size", "of at least 1", "0"]),
        ([*BERT, "workload.batch_size=-3"], ["of at least 1"]),
        ([*BERT, "workload.batch_size=2.5"], ["whole number", "2.5"]),
        ([*BERT, "workload.batch_size=two"], ["whole number", "'two'"]),
        ([*BERT, "workload.batch_size=true"], ["whole number"]),
        ([*BERT, "workload.sequence_length=513"], ["of at most 512"]),
        ([*BERT, "workload.dropout=nan"], ["workload.dropout"]),
        ([*BERT, "workload.learning_rate=0"], ["above 0"]),
        ([*BERT, "workload.heads=3"], ["multiple of workload.heads"]),
        ([*BERT, "device.mode=egaer"], ["egaer", "eager, fused, compile, capture"]),
        ([*BERT, "device.mode=capture"], ["not available on cpu", "eager, compile"]),
        ([*BERT, "device.precision=fp8"], ["fp8", "fp32, bf16"]),
        ([*BERT, "run=guess"], ["run", "measure"]),
        ([*BERT, "seed=-1"], ["seed", "at least 0"]),
        ([*BERT, "parity.steps=0"], ["parity.steps"]),
        ([*BERT, "parity.enabled=maybe"], ["true or false"]),
        ([*BERT, "scale.max_steps=2"], ["scale.max_steps=2", "scale.min_steps"]),
        ([*BERT, "price=quote"], ["price.usd_per_chip_hour=..."]),
        ([*BERT, "price.usd_per_chip_hour=-1"], ["usd_per_chip_hour"]),
        ([*BERT, "report.progress=7"], ["report.progress", "true or false"]),
        ([*BERT, "nonsense"], ["nonsense", "key=value"]),
        ([*BERT, "workload.batch_size=[1"], ["cannot read"]),
        ([*BERT, "+new=1"], ["not added or removed"]),
        ([*BERT, "~seed"], ["not added or removed"]),
        (["workload=bert_large,dispatch", "device=cpu"], ["several values"]),
        ([*BERT, "--verbos"], ["--verbos", "--help"]),
    ],
)
def test_wrong_input_gets_one_line_that_lists_what_is_valid(capsys, tmp_path, arguments, parts):
    runs = f"runs_dir={tmp_path}"
    err = refused(capsys, *arguments, *([runs] if "nonsense" not in arguments else []))
    for part in parts:
        assert part in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (b"\x89PNG\r\n\xff\xfe" * 100, "not UTF-8 text"),
        (b"a\0b. c\0d." * 100, "NUL"),
        (b"Just one sentence.", "too small"),
        (b"One. Two. Three. Four.", "too small"),
    ],
)
def test_a_data_file_that_cannot_be_used(capsys, tmp_path, content, part):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    runs = tmp_path / "runs"
    err = refused(
        capsys, *BERT, f"workload.data.path={path}", f"runs_dir={runs}", f"cache_dir={tmp_path}/c"
    )
    assert part in err
    assert not runs.exists() or not list(runs.iterdir())


def test_a_directory_is_no_data_file(capsys, tmp_path):
    err = refused(capsys, *BERT, f"workload.data.path={tmp_path}", f"runs_dir={tmp_path}/runs")
    assert "not a file" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_without_cuda_is_one_line(capsys, tmp_path):
    err = refused(capsys, "workload=bert_large", "device=cuda", f"runs_dir={tmp_path}")
    assert "device=cuda" in err
    assert not list(tmp_path.iterdir())


def test_help_names_the_groups_and_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for part in ("bert_large, dispatch", "cpu, cuda, tpu", "full, smoke", "parity:", "Exit codes"):
        assert part in out
    assert main([]) == 2


def test_help_of_a_group_shows_its_keys(capsys):
    assert main(["workload=bert_large", "--help"]) == 0
    assert "batch_size" in capsys.readouterr().out


def test_cfg_shows_the_configuration(capsys):
    assert main([*BERT, "workload.batch_size=3", "--cfg"]) == 0
    out = capsys.readouterr().out
    assert "batch_size: 3" in out
    assert "layers: 2" in out


def test_an_override_wins_over_the_scale():
    config = configuration.load_config([*BERT, "workload.layers=5"])
    assert config["workload"]["layers"] == 5
    assert config["workload"]["hidden_size"] == 128


def test_a_run_directory_is_never_shared(tmp_path):
    plan = make_plan(configuration.load_config([*BERT, f"runs_dir={tmp_path}/runs"]))
    made = [new_run_dir(plan)[0] for _ in range(3)]
    assert len(set(made)) == 3
    assert "_bert_large_cpu_smoke" in made[0].name


def test_a_given_run_directory_must_not_hold_a_record(tmp_path):
    plan = make_plan(configuration.load_config([*BERT, f"run_dir={tmp_path}"]))
    folder, made = new_run_dir(plan)
    assert (folder, made) == (tmp_path, False)
    record = new_record(plan)
    record.save(folder)
    assert load(folder).status == "running"
    with pytest.raises(UsageError, match="already holds a record"):
        new_run_dir(plan)


def test_a_run_directory_that_is_a_file(tmp_path):
    path = write_text(tmp_path / "file")
    plan = make_plan(configuration.load_config([*BERT, f"run_dir={path}"]))
    with pytest.raises(UsageError, match="it is a file"):
        new_run_dir(plan)


def test_places_do_not_change_the_fingerprint(tmp_path):
    records = [
        new_record(make_plan(configuration.load_config([*BERT, f"runs_dir={tmp_path}/{n}"])))
        for n in range(2)
    ]
    other = new_record(make_plan(configuration.load_config([*BERT, "seed=1"])))
    assert records[0].config_fingerprint == records[1].config_fingerprint
    assert other.config_fingerprint != records[0].config_fingerprint


def test_every_workload_device_and_scale_of_the_configuration_is_valid():
    choices = configuration.groups()
    cells = [(w, "cpu", s) for w in choices["workload"] for s in choices["scale"]]
    cells += [("dispatch", device, "smoke") for device in choices["device"]]
    for workload, device, scale in cells:
        make_plan(
            configuration.load_config(
                [f"workload={workload}", f"device={device}", f"scale={scale}"]
            )
        )
