"""The first line of the report: never more than was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import Parity, Record, RunError
from bench.reports import verdicts
from bench.reports.frames import Run

V5E = {"accelerator": "v5e", "chips": ["TPU v5 lite"], "usd_per_chip_hour": 1.2}
H100 = {"accelerator": "h100", "chips": ["NVIDIA H100"], "usd_per_chip_hour": 6.88}


def runs_of(*records: Record) -> list[Run]:
    return [Run(f"run {i}", Path(f"{i}.json"), record) for i, record in enumerate(records)]


@pytest.fixture
def tpu(record_of):
    def make(**changes):
        values = {"platform": "tpu", "chip": "TPU v5 lite", "price": V5E, "step_s": 0.03}
        return record_of("tpu", **(values | changes))

    return make


@pytest.fixture
def gpu(record_of):
    def make(**changes):
        values = {
            "chip": "NVIDIA H100",
            "price": H100,
            "step_s": 0.02,
            "parity": Parity("pass", 1e-3, 1e-5, 3),
        }
        return record_of("cuda", **(values | changes))

    return make


def card(runs: list[Run], question: str) -> verdicts.Answer | None:
    return next((a for a in verdicts.answers(runs) if a.question == question), None)


def test_without_a_tpu_the_headline_says_so(record_of) -> None:
    found = verdicts.headline(runs_of(record_of("tpu", step_s=0.001), record_of("cpu")))
    assert found.title == "No TPU measured"
    assert "PJRT platform cpu" in found.sentence
    assert "say nothing about a TPU" in found.sentence


def test_runs_that_asked_for_no_tpu_get_the_same_headline(record_of, gpu) -> None:
    found = verdicts.headline(runs_of(record_of("cpu"), gpu()))
    assert found.title == "No TPU measured"


def test_a_failed_or_modelled_tpu_run_is_not_a_measured_tpu(tpu, record_of) -> None:
    failed = tpu(status="failed", error=RunError("ValueError", "x"))
    modelled = tpu(run="estimate")
    for record in (failed, modelled):
        assert verdicts.headline(runs_of(record, record_of("cpu"))).title == "No TPU measured"
        assert verdicts.ranking(runs_of(record)) == []


def test_an_emulated_tpu_is_never_ranked_or_priced(record_of, gpu) -> None:
    fast = record_of("tpu", step_s=1e-6, price=V5E)
    runs = runs_of(fast, gpu(), record_of("cpu"))
    assert [r.record.device for r in verdicts.ranking(runs)] == ["cuda", "cpu"]
    assert [bill.run.record.device for bill in verdicts.bills(runs)] == ["cuda"]
    assert card(runs_of(fast), "Cost").answer == "No price"


def test_the_tpu_device_on_a_gpu_ranks_as_that_gpu(record_of) -> None:
    record = record_of("tpu", platform="cuda", chip="NVIDIA H100", step_s=0.02, price=H100)
    runs = runs_of(record, record_of("cpu"))
    assert card(runs, "Fastest").answer == "NVIDIA H100"
    assert verdicts.headline(runs).title == "No TPU measured"


def test_the_fastest_is_named_with_its_interval_and_parity(tpu, gpu) -> None:
    runs = runs_of(tpu(), gpu())
    found = verdicts.lead(runs)
    assert found.first.record.device == "cuda"
    assert found.is_sure
    assert found.ratio.value == pytest.approx(1.5, rel=0.01)
    assert found.ratio.low < 1.5 < found.ratio.high
    top = verdicts.headline(runs)
    assert top.title == "NVIDIA H100 is fastest"
    assert "parity holds" in top.sentence


def test_the_ratio_counts_work_not_steps(tpu, gpu) -> None:
    # Twice the sequences in 1.5 times the time: the TPU is ahead by 4/3.
    record = tpu(work_per_step={"sequences": 4})
    record.metrics = [m for m in record.metrics if not m.name.startswith("throughput")]
    record.add_metric("throughput_sequences_per_s", 4 / 0.03, "sequences/s")
    found = verdicts.lead(runs_of(record, gpu()))
    assert found.first.record.device == "tpu"
    assert found.ratio.value == pytest.approx(4 / 3, rel=0.01)


def test_overlapping_runs_have_no_winner(tpu, gpu) -> None:
    runs = runs_of(tpu(step_s=0.0200), gpu(step_s=0.0201))
    assert card(runs, "Fastest").answer == "No clear winner"
    assert verdicts.headline(runs).title == "No clear winner"


def test_a_run_that_failed_parity_cannot_win(tpu, gpu, record_of) -> None:
    wrong = tpu(step_s=0.001, parity=Parity("fail", 1e-3, 0.01, 3))
    runs = runs_of(wrong, gpu(), record_of("cpu"))
    assert card(runs, "Fastest").answer == "NVIDIA H100"
    answer = card(runs, "Same results as the CPU?")
    assert (answer.answer, answer.tone) == ("No", "bad")
    assert "0.010 over 3 steps, allowed 0.001" in answer.detail


def test_parity_unchecked_is_said(gpu, record_of) -> None:
    runs = runs_of(gpu(parity=Parity()), record_of("cpu"))
    assert card(runs, "Same results as the CPU?").answer == "Not checked"
    assert "parity not checked" in card(runs, "Fastest").detail


def test_the_cheapest_is_per_unit_of_work(tpu, gpu) -> None:
    # 0.03 s x 1.2 against 0.02 s x 6.88, two sequences a step each.
    runs = runs_of(tpu(), gpu())
    answer = card(runs, "Cheapest")
    assert answer.answer == "TPU v5 lite"
    assert "$5.00 per million sequences" in answer.detail
    assert "measured + list price" in answer.detail
    assert "TPU v5 lite is cheapest" in verdicts.headline(runs).sentence.replace(
        "run 0", answer.answer
    )


def test_software_overhead_is_called_no_tpu_figure(record_of) -> None:
    runs = runs_of(record_of("tpu", step_s=4.84), record_of("cpu", step_s=4.4))
    answer = card(runs, "tpu software on this CPU")
    assert answer.answer == "1.10x the time"
    assert "not a TPU figure" in answer.detail
    other = record_of("cpu", host={"name": "elsewhere"})
    assert card(runs_of(record_of("tpu"), other), "tpu software on this CPU") is None


def test_fallback_operators_are_counted_and_named(record_of) -> None:
    counters = {"cpu_fallback_ops": {"aten::nonzero": 3, "aten::unique": 1}}
    answer = card(runs_of(record_of("tpu", counters=counters)), "CPU fallback")
    assert (answer.answer, answer.detail) == ("2 operators", "aten::nonzero, aten::unique")


def test_a_comparison_workload_answers_with_its_ratio(record_of) -> None:
    record = record_of("tpu", workload="dispatch")
    record.metrics.clear()
    record.add_metric("dispatch_overhead_ratio", 1.8, "1", method="20 blocks", ci95=(1.7, 1.9))
    answer = card(runs_of(record), "dispatch overhead ratio")
    assert answer.answer == "1.80x"
    assert "1.70 to 1.90; 20 blocks" in answer.detail


def test_runs_of_the_reference_alone_claim_nothing(record_of) -> None:
    runs = runs_of(record_of("cpu"))
    assert card(runs, "Same results as the CPU?").answer == "Reference only"
    assert card(runs, "CPU fallback") is None


def test_warnings_are_counted_beside_the_answers(record_of) -> None:
    record = record_of("cpu")
    record.warn("spread of 80 %")
    record.warn("drift")
    answer = card(runs_of(record), "Warnings")
    assert (answer.answer, answer.detail) == ("2", "the first: run 0: spread of 80 %")
    assert card(runs_of(record_of("cpu")), "Warnings") is None
