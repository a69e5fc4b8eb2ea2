"""Streams and events over PJRT, which has one in-order queue for each device.

Work on a device needs no stream of its own here: a Stream exists so that programs written for CUDA
run. An Event with timing notes when everything submitted before it was done.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time

import torch

from torchtpu.runtime import client

_PRIVATE_USE_1 = int(torch._C._autograd.DeviceType.PrivateUse1)


def synchronize() -> None:
    """Wait until everything submitted so far is done. Errors of that work are raised here."""
    client.block_until_ready(client.live_arrays())


class Stream(torch.Stream):
    """The device's queue. All streams are one: work runs in the order it was submitted."""

    def __new__(cls, device=None, priority: int = 0, **_kwargs):
        # By its ids: PyTorch would ask the C++ device guard to make one from a device.
        return super().__new__(cls, stream_id=0, device_index=0, device_type=_PRIVATE_USE_1)

    def __init__(self, device=None, priority: int = 0, **_kwargs):
        self.priority = priority

    def synchronize(self) -> None:
        synchronize()

    def query(self) -> bool:
        """Whether everything submitted so far is done."""
        return all(a.is_deleted() or a.is_ready() for a in client.live_arrays())

    def wait_event(self, event: Event) -> None:
        """Nothing to do: one in-order queue."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to do: one in-order queue."""

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash("torchtpu.Stream")

    def __enter__(self):
        return self

    def __exit__(self, *_exc) -> None:
        return None


class _Mark:
    """One recording of an event."""

    def __init__(self):
        self.done = threading.Event()
        self.time_s: float | None = None


class _Watcher:
    """One thread that waits for recorded work, in order, and notes the time it was done."""

    def __init__(self):
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="torchtpu-events", daemon=True).start()

    def watch(self, mark: _Mark, arrays: list) -> None:
        self._queue.put((mark, arrays))

    def _run(self) -> None:
        while True:
            mark, arrays = self._queue.get()
            # An error belongs to whoever reads the array; the work is over all the same.
            with contextlib.suppress(RuntimeError):
                client.block_until_ready(arrays)
            del arrays
            mark.time_s = time.perf_counter()
            mark.done.set()
            del mark


_watcher: _Watcher | None = None
_watcher_lock = threading.Lock()


def _get_watcher() -> _Watcher:
    global _watcher
    with _watcher_lock:
        if _watcher is None:
            _watcher = _Watcher()
        return _watcher


class Event:
    """A mark in the device's queue.

    enable_timing: whether elapsed_time may be asked for.
    """

    def __init__(self, device=None, enable_timing: bool = False, **_kwargs):
        self.enable_timing = enable_timing
        self._mark: _Mark | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark all work submitted so far."""
        self._mark = _Mark()
        _get_watcher().watch(self._mark, client.live_arrays())

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to do: one in-order queue."""

    def query(self) -> bool:
        """Whether the marked work is done (True if never recorded)."""
        return self._mark is None or self._mark.done.is_set()

    def synchronize(self) -> None:
        """Wait until the marked work is done."""
        if self._mark is not None:
            self._mark.done.wait()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between this event's work and `end_event`'s, as torch.cuda.Event returns."""
        for event in (self, end_event):
            if not event.enable_timing:
                raise RuntimeError(
                    "Both events must be created with enable_timing=True to read elapsed_time"
                )
            if event._mark is None:
                raise RuntimeError("Both events must be recorded before reading elapsed_time")
            event.synchronize()
        return (end_event._mark.time_s - self._mark.time_s) * 1e3
