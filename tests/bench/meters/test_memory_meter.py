"""Peak memory: read, or absent with a reason."""

from __future__ import annotations

from bench.devices.base import Reading
from bench.meters.memory import MemoryMeter, MemoryOptions, host_peak_memory_bytes
from bench.record import Record


def test_the_host_peak_is_the_high_water_mark(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t 10 kB\n")
    assert host_peak_memory_bytes(status) == (2048 * 1024, f"VmHWM of {status}")


def test_without_proc_the_resource_usage_serves(tmp_path):
    value, method = host_peak_memory_bytes(tmp_path / "nothing")
    assert value > 2**20
    assert method == "getrusage ru_maxrss"


def test_a_device_without_a_sensor_gives_a_reason_and_no_number():
    class Blind:
        def peak_memory_bytes(self):
            return Reading(None, "no sensor")

    meter = MemoryMeter(MemoryOptions(), Blind())
    meter.start()
    meter.stop()
    record = Record(workload="w", device="cpu")
    meter.report(record)
    assert record.metric("peak_memory_bytes").value is None
    assert record.metric("peak_memory_bytes").method == "no sensor"
    assert record.metric("host_peak_memory_bytes").value > 0
    meter.end(record)
    whole = record.metric("host_peak_memory_run_bytes").value
    assert whole >= record.metric("host_peak_memory_bytes").value
