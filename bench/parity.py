"""Parity: does the device compute what native PyTorch on the CPU computes? Untimed.

Both run the same workload without noise (dropout 0), in float32, from the same weights (made on
the CPU from the seed) and the same batches. Only one model exists at a time: the reference keeps
its losses only.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bench import environment, stats
from bench.options import option
from bench.record import Parity
from bench.workloads.base import TrainingWorkload

# Beyond the workload's own estimate: fragmentation and temporaries of a device in host memory.
_HEADROOM = 1.4


class ParityError(Exception):
    """The device's losses differ from the reference's by more than the tolerance."""


@dataclass(frozen=True)
class ParityOptions:
    """See conf/config.yaml."""

    enabled: bool
    steps: int = option(at_least=1)
    tolerance: float = option(above=0)


def losses(
    workload: TrainingWorkload, device: Any, steps: int, tick: Callable[[], None] = lambda: None
) -> list[float]:
    """The losses of the first steps in float32, read at the end."""
    device = device.with_precision("fp32")
    model = device.place(workload.build())
    optimizer = workload.optimizer(model)
    step = device.wrap_step(workload.step, model, optimizer)
    batches = device.loader(workload.batches())
    found = []
    for _, batch in zip(range(steps), batches, strict=False):
        found.append(step(batch))
        device.wait([found[-1], *model.parameters()])
        tick()
    return [float(loss) for loss in found]


def compare(
    workload: TrainingWorkload,
    device: Any,
    reference: Any,
    options: ParityOptions,
    tick: Callable[[], None] = lambda: None,
) -> Parity:
    """Run the reference, then the device, and judge. The reference itself has no verdict."""
    free_memory(device)
    variant, note = choose_variant(workload, environment.available_memory_bytes())
    expected = losses(variant, reference, options.steps, tick)
    free_memory(reference)
    if device.is_reference:
        return Parity("reference", steps=options.steps, note=note, reference_losses=expected)
    actual = losses(variant, device, options.steps, tick)
    free_memory(device)
    difference = stats.max_relative_difference(actual, expected)
    return Parity(
        verdict="pass" if difference <= options.tolerance else "fail",
        tolerance=options.tolerance,
        # An infinite difference (a NaN on one side) is no number for the record.
        max_relative_difference=difference if difference < float("inf") else None,
        steps=options.steps,
        note=note,
        reference_losses=expected,
        device_losses=actual,
    )


def choose_variant(
    workload: TrainingWorkload, available_bytes: int | None
) -> tuple[TrainingWorkload, str]:
    """(variant, what differs from the timed run): the whole model where memory allows it."""
    variant, note = workload.parity_variant(reduced=False)
    needed = _HEADROOM * variant.estimated_memory_bytes()
    if available_bytes is None or needed <= available_bytes:
        return variant, note
    variant, note = workload.parity_variant(reduced=True)
    return variant, (
        f"{note} (the whole model needs about {needed / 2**30:.1f} GiB, "
        f"{available_bytes / 2**30:.1f} GiB are free)"
    )


def judge(parity: Parity) -> None:
    """Raise ParityError if the verdict is "fail"."""
    if parity.verdict == "fail":
        difference = parity.max_relative_difference
        shown = "not a number" if difference is None else f"{difference:.3g}"
        raise ParityError(
            f"losses differ from native PyTorch on the CPU by {shown} (relative), more than "
            f"{parity.tolerance:g}, over {parity.steps} steps"
        )


def free_memory(device: Any) -> None:
    """Return what is no longer used to the system, so that the next model has room."""
    gc.collect()
    device.release()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
