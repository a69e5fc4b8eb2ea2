"""Peak memory: the process's resident set on the host, and the device's own."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.meters.base import Meter
from bench.record import Record


@dataclass(frozen=True)
class MemoryOptions:
    """Nothing to set."""


def host_peak_memory_bytes(status: Path = Path("/proc/self/status")) -> tuple[int, str]:
    """(bytes, method): the largest resident set of this process so far."""
    try:
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024, f"VmHWM of {status}"
    except (OSError, ValueError, IndexError):
        pass
    # Second choice: on Linux it can be inherited from the program that started this one.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "getrusage ru_maxrss"


class MemoryMeter(Meter):
    """Peaks from the start of the process (host) or of the run (device) to the window's end."""

    Options = MemoryOptions

    def start(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._host = host_peak_memory_bytes()
        self._device = self.device.peak_memory_bytes()

    def report(self, record: Record) -> None:
        value, method = self._host
        record.add_metric(
            "host_peak_memory_bytes",
            value,
            "bytes",
            method=f"{method}, process {os.path.basename(sys.executable)} up to the last timed step",
        )
        reading = self._device
        record.add_metric("peak_memory_bytes", reading.value, "bytes", method=reading.method)

    def end(self, record: Record) -> None:
        value, method = host_peak_memory_bytes()
        record.add_metric(
            "host_peak_memory_run_bytes",
            value,
            "bytes",
            method=f"{method}, the whole run with its parity pass",
        )
