"""The answers that a report opens with: what was measured, who is ahead, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import stats
from bench.cost import CostError, cost_per_step, cost_per_unit
from bench.record import MEASURED, Metric, Record
from bench.reports import formats
from bench.reports.frames import (
    Run,
    hardware_text,
    price_of,
    sections,
    step_samples,
    throughput,
)

NO_TPU = "No TPU measured"


@dataclass(frozen=True)
class Answer:
    """One card: a question, its answer in a few words, and one line on how it is known.

    tone: "good", "bad", "warn" or "plain"
    """

    question: str
    answer: str
    detail: str
    tone: str = "plain"


@dataclass(frozen=True)
class Headline:
    title: str
    sentence: str


@dataclass(frozen=True)
class Lead:
    """The fastest hardware of a section against the next one."""

    first: Run
    second: Run
    ratio: stats.Ratio | None

    @property
    def is_sure(self) -> bool:
        return self.ratio is not None and self.ratio.low > 1


def is_rankable(record: Record) -> bool:
    """Only a finished, measured run on the real hardware whose losses did not fail parity."""
    rate = throughput(record)
    return (
        record.is_good
        and record.run == "measure"
        and record.hardware in ("tpu", "cuda", "cpu")
        and not record.is_emulated_tpu
        and record.parity.verdict != "fail"
        and rate is not None
        and rate.label == MEASURED
    )


def is_tpu_run(record: Record) -> bool:
    """A finished, measured run on a TPU."""
    return record.is_good and record.run == "measure" and record.hardware == "tpu"


def ranking(runs: Sequence[Run]) -> list[Run]:
    """The rankable runs of one section, best throughput first, one per hardware."""
    best: dict[str, Run] = {}
    candidates = [run for run in runs if is_rankable(run.record)]
    units = {throughput(run.record).name for run in candidates}
    if len(units) > 1:  # sequences/s and tokens/s have no common order
        return []
    for run in sorted(candidates, key=lambda r: -throughput(r.record).value):
        best.setdefault(hardware_text(run.record), run)
    return list(best.values())


def lead(runs: Sequence[Run]) -> Lead | None:
    """Who is ahead in a section, or None where there is nothing to compare."""
    ranked = ranking(runs)
    if len(ranked) < 2:
        return None
    return Lead(ranked[0], ranked[1], speed_ratio(ranked[0].record, ranked[1].record))


def speed_ratio(fast: Record, slow: Record) -> stats.Ratio | None:
    """Throughput of `fast` over that of `slow`, from the raw step times; None with too few."""
    a, b = step_samples(fast), step_samples(slow)
    unit = next((u for u in fast.work_per_step if u in slow.work_per_step), None)
    if not a or not b or min(a) <= 0 or unit is None or not slow.work_per_step[unit]:
        return None
    found = stats.bootstrap_ratio_ci(b, a)
    if found is None:
        return None
    work = fast.work_per_step[unit] / slow.work_per_step[unit]
    return stats.Ratio(found.value * work, found.low * work, found.high * work, found.n)


def headline(runs: Sequence[Run]) -> Headline:
    """The first line of the report and the sentence below it."""
    if not any(is_tpu_run(run.record) for run in runs):
        return Headline(NO_TPU, _why_no_tpu(runs))
    leads = {key: found for key, group in sections(runs).items() if (found := lead(group))}
    if not leads:
        chip = next(hardware_text(r.record) for r in runs if is_tpu_run(r.record))
        return Headline(
            f"{chip} measured",
            "There is no second hardware in these runs to compare it with.",
        )
    by_winner: dict[str, list[str]] = {}
    for (workload, _, precision), found in leads.items():
        who = hardware_text(found.first.record) if found.is_sure else "no clear winner"
        by_winner.setdefault(who, []).append(f"{workload} ({precision})")
    who, where = max(by_winner.items(), key=lambda item: len(item[1]))
    if who == "no clear winner":
        title = "No clear winner"
    elif len(where) == len(leads):
        title = f"{who} is fastest"
    else:
        title = f"{who} is fastest in {len(where)} of {len(leads)} comparisons"
    lines = [
        f"{hardware_text(found.first.record)} is {_ratio_text(found)} "
        f"{hardware_text(found.second.record)} on {workload} ({precision}; "
        f"{_parity_of_pair(found)})."
        for (workload, _, precision), found in leads.items()
    ]
    for (workload, _, precision), group in sections(runs).items():
        found = bills(group)
        if len(found) > 1:
            first, second = (formats.quantity(b.metric.value, b.metric.unit) for b in found[:2])
            lines.append(
                f"{found[0].run.name} is cheapest on {workload} ({precision}): {first} against "
                f"{second} ({found[0].metric.label})."
            )
    return Headline(title, " ".join(lines[:4]))


def _why_no_tpu(runs: Sequence[Run]) -> str:
    emulated = sorted(
        {r.record.hardware for r in runs if r.record.is_emulated_tpu and r.record.is_good}
    )
    modelled = any(r.record.run != "measure" and r.record.device == "tpu" for r in runs)
    if emulated:
        return (
            f"The tpu device ran on the PJRT platform {' and '.join(emulated)}, because no TPU was "
            "found. Its times and memory say nothing about a TPU, so it gets no price and no "
            "place in a ranking. What these runs do show: whether the tpu device computes the "
            "same losses as PyTorch on the CPU, and what the software costs on this machine."
        )
    if modelled:
        return "The figures for a TPU are modelled: no TPU took part."
    return "None of these runs finished on a TPU, so they say nothing about one."


def _ratio_text(found: Lead) -> str:
    if found.ratio is None:
        return "ahead of (too few steps for an interval)"
    return f"{formats.ratio(found.ratio.value, found.ratio.low, found.ratio.high)} as fast as"


def answers(runs: Sequence[Run]) -> list[Answer]:
    """The cards of one section."""
    return [
        card
        for card in (
            _parity(runs),
            _fallback(runs),
            _fastest(runs),
            *_ratios(runs),
            _overhead(runs),
            _cost(runs),
            _warnings(runs),
        )
        if card is not None
    ]


def _parity(runs: Sequence[Run]) -> Answer:
    question = "Same results as the CPU?"
    # A failed verdict counts from a failed run too; a pass only from a run that ended well.
    failed = [r for r in runs if r.record.parity.verdict == "fail"]
    passed = [r for r in runs if r.record.parity.verdict == "pass" and r.record.is_good]
    if all(r.record.parity.verdict == "reference" for r in runs):
        return Answer(question, "Reference only", "these runs are the CPU itself")
    if not failed and not passed:
        return Answer(question, "Not checked", "no run made a parity pass", "warn")
    worst = max(
        failed or passed, key=lambda r: r.record.parity.max_relative_difference or float("inf")
    )
    parity = worst.record.parity
    difference = parity.max_relative_difference
    shown = "not finite" if difference is None else formats.number(difference, 2)
    detail = (
        f"{worst.name}: largest relative difference {shown} over {parity.steps} steps, "
        f"allowed {parity.tolerance:g}"
    )
    return Answer(question, "No" if failed else "Yes", detail, "bad" if failed else "good")


def fallback_ops(record: Record) -> dict[str, int] | None:
    """Operators that ran on the CPU instead, by name; None where the record does not count them."""
    found = record.counters.get("cpu_fallback_ops")
    return found if isinstance(found, dict) else None


def _fallback(runs: Sequence[Run]) -> Answer | None:
    # Native PyTorch has nothing to fall back from.
    there = [run.record for run in runs if run.record.platform != "native"]
    counted = [ops for record in there if (ops := fallback_ops(record)) is not None]
    if not counted:
        return None
    names = sorted({name for ops in counted for name in ops})
    if not names:
        return Answer("CPU fallback", "None", "every operator ran on its device", "good")
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    plural = "s" if len(names) > 1 else ""
    return Answer("CPU fallback", f"{len(names)} operator{plural}", listed, "warn")


def _fastest(runs: Sequence[Run]) -> Answer | None:
    found = lead(runs)
    if found is None:
        return None
    question = "Fastest"
    detail = f"{_ratio_text(found)} {found.second.name}; {_parity_of_pair(found)}"
    if not found.is_sure:
        return Answer(question, "No clear winner", f"{found.first.name}: {detail}", "warn")
    return Answer(question, hardware_text(found.first.record), detail, "plain")


def _parity_of_pair(found: Lead) -> str:
    verdicts = {found.first.record.parity.verdict, found.second.record.parity.verdict}
    return "parity not checked" if "not-run" in verdicts else "parity holds"


def _overhead(runs: Sequence[Run]) -> Answer | None:
    """The tpu device on a CPU against native PyTorch there: software only, never a TPU's speed."""
    for emulated in (r for r in runs if r.record.is_emulated_tpu and r.record.is_good):
        for native in (r for r in runs if r.record.platform == "native" and r.record.is_good):
            a, b = emulated.record, native.record
            if b.hardware != a.hardware or a.work_per_step != b.work_per_step or a.host != b.host:
                continue
            if a.parity.verdict == "fail":
                continue
            # Time over time: above 1 means that the tpu device's software is slower here.
            found = speed_ratio(b, a)
            if found is not None:
                detail = (
                    f"{emulated.name} against native {native.name}, same machine; "
                    f"parity {a.parity.verdict}. Software only: not a TPU figure"
                )
                text = f"{formats.number(found.value)}x the time"
                span = f"{formats.number(found.low)} to {formats.number(found.high)}; "
                return Answer("tpu software on this CPU", text, span + detail)
    return None


def _warnings(runs: Sequence[Run]) -> Answer | None:
    found = [f"{run.name}: {text}" for run in runs for text in run.record.warnings]
    if not found:
        return None
    return Answer("Warnings", str(len(found)), f"the first: {found[0]}", "warn")


def _ratios(runs: Sequence[Run]) -> list[Answer]:
    """A comparison workload's own answer: its ratio of two sides, measured in turn."""
    return [
        Answer(
            formats.words(metric.name),
            f"{formats.number(metric.value)}x",
            f"{run.name}; {formats.interval(metric.ci95, metric.value, '1')}; {metric.method}",
        )
        for run in runs
        for metric in run.record.metrics
        if run.record.is_good and metric.name.endswith("_ratio") and metric.ci95
    ][:3]


@dataclass(frozen=True)
class Bill:
    """What a run costs; `unit` is what the bills of a section have in common."""

    run: Run
    metric: Metric
    unit: str


def bills(runs: Sequence[Run]) -> list[Bill]:
    """Costs of one section that can be compared, cheapest first: per unit of work, else per step.

    Only rankable runs: no price for what must not be ranked.
    """
    ranked = [run for run in runs if is_rankable(run.record)]
    priced = []
    for run in ranked:
        try:
            priced.append((run, cost_per_step(run.record, price_of(run.record))))
        except CostError:
            continue
    shared = [u for r, _ in priced[:1] for u in r.record.work_per_step]
    unit = next((u for u in shared if all(r.record.work_per_step.get(u) for r, _ in priced)), None)
    if unit is None:
        # Steps that do different work have no common price.
        return [Bill(run, metric, "steps") for run, metric in priced] if len(priced) == 1 else []
    made = [Bill(r, cost_per_unit(r.record, price_of(r.record), unit), unit) for r, _ in priced]
    return sorted(made, key=lambda bill: bill.metric.value)


def _cost(runs: Sequence[Run]) -> Answer:
    found = bills(runs)
    if not found:
        emulated = any(run.record.is_emulated_tpu for run in runs)
        detail = "no TPU took part; " if emulated else ""
        return Answer("Cost", "No price", f"{detail}no price was given for this hardware")
    bill = found[0]
    text = formats.quantity(bill.metric.value, bill.metric.unit)
    how = f"{bill.metric.label}; {price_of(bill.run.record).summary()}"
    if len(found) == 1:
        return Answer("Cost", text, f"{bill.run.name}; {how}")
    second = found[1]
    more = formats.quantity(second.metric.value, second.metric.unit)
    detail = f"{text}, next {second.run.name} at {more}; {how}"
    return Answer("Cheapest", hardware_text(bill.run.record), detail)
