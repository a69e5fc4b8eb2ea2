"""What a meter is: it watches a window of timed steps and adds what it saw to the record.

Meters print nothing, and know neither the workload nor the kind of device. A sensor that is not
there gives a metric without a value and the reason, never 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from bench.record import Record


class Meter(ABC):
    """One meter for one run. `device` is the device object: its peak memory, its name."""

    Options: ClassVar[type]

    def __init__(self, options: Any, device: Any) -> None:
        self.options = options
        self.device = device

    def start(self) -> None:  # noqa: B027 (a hook)
        """Right before the first timed step."""

    def stop(self) -> None:  # noqa: B027 (a hook)
        """Right after the last timed step, before anything else is built."""

    def end(self, record: Record) -> None:  # noqa: B027 (a hook)
        """When all is done, parity included: add what only the whole run can tell."""

    @abstractmethod
    def report(self, record: Record) -> None:
        """Add samples, metrics and warnings to the record."""
