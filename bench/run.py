"""Run one workload on one device: warm-up, timed steps, parity -> record. Knows none by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import environment, parity, stats
from bench.meters.time import RecompiledInWindow, Stopwatch, TimeMeter, WarmUp
from bench.plan import Plan
from bench.record import Parity, Record
from bench.workloads.base import ComparisonWorkload, Setting, TrainingWorkload


class NonFiniteLoss(Exception):
    """A loss is infinite or not a number."""


class WrongResult(Exception):
    """A comparison's side computed something else than it should."""


class NoProgress:
    """Shows nothing. A progress display has the same two methods."""

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self) -> None: ...


@dataclass
class Runner:
    """Fills `record`; `save` is called after every phase, so that a killed run leaves most of it.

    clock: seconds that never go back.
    """

    plan: Plan
    record: Record
    save: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.perf_counter
    progress: Any = field(default_factory=NoProgress)
    started_s: float | None = None

    def run(self) -> Record:
        """Everything, in order. Raises what went wrong; the record holds what came before."""
        plan, record, device = self.plan, self.record, self.plan.device
        with self._phase("import", since_s=self.started_s):
            device.start()
            device.check_mode()
            record.platform, record.chip = device.platform, device.chip
            record.ran_on = device.describe()
            cache = environment.cache_dir(plan.run.cache_dir)
            setting = Setting(plan.run.seed, device.is_accelerator, cache)
            workload = plan.make_workload(setting)
            workload.load()
        with self._phase("data"):
            workload.prepare()
        record.config = {
            **plan.config,
            "workload": {"name": plan.workload_name} | workload.resolved(),
        }
        record.corpus_hash, record.facts = workload.corpus_hash, workload.facts()
        for message in workload.warnings:
            record.warn(message)
        fallbacks, compiles = device.fallbacks(), device.compiles()
        try:
            if isinstance(workload, TrainingWorkload):
                self._train(workload)
            elif isinstance(workload, ComparisonWorkload):
                self._compare(workload)
            else:
                raise TypeError(f"{type(workload).__name__} is of no known kind of workload")
        finally:
            self._count(fallbacks, compiles)
        for meter in plan.meters:
            meter.end(record)
        parity.judge(record.parity)
        return record

    # Training

    def _train(self, workload: TrainingWorkload) -> None:
        self.record.work_per_step = dict(workload.work_per_step())
        curve = self._timed_steps(workload)
        self.record.loss_curve = curve
        if not all(math.isfinite(loss) for loss in curve):
            first = next(i for i, loss in enumerate(curve) if not math.isfinite(loss))
            raise NonFiniteLoss(f"the loss of step {first} is {curve[first]}")
        options = self.plan.parity
        if not options.enabled:
            self.record.parity = Parity("not-run", note="parity.enabled=false")
            return
        sides = 1 if self.plan.device.is_reference else 2
        with self._phase("parity", total=sides * options.steps):
            self.plan.reference.start()
            self.record.parity = parity.compare(
                workload, self.plan.device, self.plan.reference, options, self.progress.advance
            )

    def _timed_steps(self, workload: TrainingWorkload) -> list[float]:
        """Warm up and measure; the losses of all steps. Frees the model when it returns."""
        import torch

        device, record, scale = self.plan.device, self.record, self.plan.scale
        watch = Stopwatch(self.clock, device.wait)
        losses: list[Any] = []
        with self._phase("model_load"):
            device.reset_peak_memory()
            model = device.place(workload.build())
            optimizer = workload.optimizer(model)
            # Optimizers write into these very tensors: one list, made before the clock runs.
            parameters = list(model.parameters())
            device.wait(parameters)
            step = device.wrap_step(workload.step, model, optimizer)
            batches = iter(device.loader(workload.batches()))
            torch.manual_seed(self.plan.run.seed)

        smallest = min(parameters, key=lambda p: p.numel())
        compiles = device.compiles()
        with self._phase("compile_cold"):
            loss, cold_s = watch.step(step, next(batches), parameters)
            losses.append(loss)
        record.counters["compiles_in_first_step"] = device.compiles() - compiles
        warm = WarmUp(
            scale.warm_up_window,
            scale.warm_up_tolerance,
            scale.min_warm_up_steps,
            scale.max_warm_up_steps,
        )
        with self._phase("warm_up"):
            while not warm.over:
                loss, step_s = watch.step(step, next(batches), parameters)
                read_s = watch.read_s(lambda kept=loss: (kept.cpu(), smallest.detach().cpu()))
                warm.add(step_s, device.compiles(), read_s)
                losses.append(loss)
                self.progress.advance()
        warm.check_synchronized()
        problem = warm.problem()
        if problem:
            record.warn(problem)
        record.add_samples("warm_up_step_time_s", "s", warm.step_times_s)
        try:
            with self._phase("steady", total=scale.max_steps):
                self._window(watch, step, batches, parameters, losses)
        finally:
            for meter in self.plan.meters:
                meter.report(record)
        steady_s = record.metric("step_time_s").value
        record.add_metric("first_step_s", cold_s, "s", method="the first step, compiling included")
        compiled = record.counters["compiles_in_first_step"]
        record.add_metric(
            "compile_cold_s",
            max(0.0, cold_s - steady_s) if compiled else None,
            "s",
            method=f"first step minus median step, {compiled} executables; caches on disk may have "
            "helped"
            if compiled
            else "the first step compiled nothing",
        )
        return [float(loss) for loss in losses]

    def _window(
        self, watch: Stopwatch, step: Any, batches: Any, parameters: list[Any], losses: list[Any]
    ) -> None:
        """The timed steps. Raises RecompiledInWindow."""
        device, scale = self.plan.device, self.plan.scale
        timer = next(m for m in self.plan.meters if isinstance(m, TimeMeter))
        compiles = device.compiles()
        for meter in self.plan.meters:
            meter.start()
        start_s = self.clock()
        try:
            for n in range(scale.max_steps):
                if n >= scale.min_steps and self.clock() - start_s >= scale.window_s:
                    break
                asked_s = self.clock()
                batch = next(batches)
                waited_s = self.clock() - asked_s
                loss, step_s = watch.step(step, batch, parameters)
                timer.add(step_s, waited_s)
                losses.append(loss)
                self.progress.advance()
                new = device.compiles() - compiles
                if new:
                    raise RecompiledInWindow(
                        f"timed step {n + 1} compiled {new} executable(s): its time is no step "
                        "time. Shapes or constants change from step to step; more warm-up "
                        "(scale.min_warm_up_steps) helps only if they stop doing so"
                    )
        finally:
            for meter in self.plan.meters:
                meter.stop()

    # Comparison

    def _compare(self, workload: ComparisonWorkload) -> None:
        device, record = self.plan.device, self.record
        with self._phase("model_load"):
            job = workload.comparison(device)
        calls, sides = job.calls_per_block, job.sides
        results: dict[str, float] = {}
        with self._phase("compile_cold"):
            for side in sides:
                side.wait(side.block(1))
        with self._phase("warm_up"):
            for side in sides:
                out = side.block(calls)
                side.wait(out)
                results[side.name] = side.read(out)
        times: dict[str, list[float]] = {side.name: [] for side in sides}
        compiles = device.compiles()
        with self._phase("steady", total=job.blocks):
            for n in range(job.blocks):
                # The order changes from block to block, so that neither side always comes first.
                for side in sides if n % 2 == 0 else reversed(sides):
                    start_s = self.clock()
                    out = side.block(calls)
                    side.wait(out)
                    times[side.name].append(self.clock() - start_s)
                    results[side.name] = side.read(out)
                self.progress.advance()
        if device.compiles() != compiles:
            raise RecompiledInWindow("something was compiled inside the timed blocks")
        record.work_per_step = {"calls": calls}
        for name, block_s in times.items():
            record.add_samples(f"{name}_block_s", "s", block_s)
            low_high = stats.bootstrap_median_ci(block_s)
            record.add_metric(
                f"{name}_call_s",
                stats.median(block_s) / calls,
                "s",
                method=f"median of {len(block_s)} blocks of {calls} chained calls",
                ci95=None if low_high is None else (low_high[0] / calls, low_high[1] / calls),
            )
        if len(sides) == 2:
            self._ratio(job, *times.values())
        for note in job.notes:
            record.warn(note)
        record.parity = self._judge_results(results, job)

    def _ratio(self, job: Any, a_s: list[float], b_s: list[float]) -> None:
        ratio = stats.interleaved_ratio([[v] for v in a_s], [[v] for v in b_s])
        names = [side.name for side in job.sides]
        if ratio is None:
            why = f"needs >= {stats.MIN_SAMPLES_FOR_INTERVAL} blocks, has {len(a_s)}"
            self.record.add_metric(job.ratio_name, None, "1", method=why)
            return
        self.record.add_metric(
            job.ratio_name,
            ratio.value,
            "1",
            method=f"{names[0]} over {names[1]}: median ratio of {ratio.n} pairs of blocks measured "
            "in turn, bootstrap over the pairs",
            ci95=(ratio.low, ratio.high),
        )

    def _judge_results(self, results: dict[str, float], job: Any) -> Parity:
        for name, value in results.items():
            if value != job.expected:
                raise WrongResult(
                    f"{name}: {job.calls_per_block} calls gave {value:g}, not {job.expected:g}"
                )
        verdict = "reference" if self.plan.device.is_reference else "pass"
        return Parity(
            verdict,
            tolerance=0.0,
            max_relative_difference=0.0,
            steps=job.calls_per_block,
            note="every side's result is exactly the known one",
        )

    # Common

    def _count(self, fallbacks: dict[str, int], compiles: int) -> None:
        now = self.plan.device.fallbacks()
        new = {k: n - fallbacks.get(k, 0) for k, n in now.items() if n > fallbacks.get(k, 0)}
        self.record.counters["compiles"] = self.plan.device.compiles() - compiles
        self.record.counters["cpu_fallback_ops"] = new
        names = ", ".join(f"{k} x{n}" for k, n in sorted(new.items()))
        self.record.add_metric(
            "cpu_fallback_ops",
            sum(new.values()),
            "1",
            method=f"operators that ran on the CPU instead, in all steps: {names or 'none'}",
        )

    @contextmanager
    def _phase(
        self, name: str, total: int | None = None, since_s: float | None = None
    ) -> Iterator[None]:
        self.progress.phase(name, total)
        start_s = self.clock() if since_s is None else since_s
        try:
            yield
        finally:
            self.record.phases[name] = self.record.phases.get(name, 0.0) + self.clock() - start_s
        self.save()
