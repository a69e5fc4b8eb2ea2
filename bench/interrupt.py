"""Ctrl-C and SIGTERM become an exception, also when a long compilation does not let go."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

EXIT_CODE = 130
# A handler in Python runs only when native code returns, and a compilation can take minutes.
GRACE_S = 10.0


class Interrupted(KeyboardInterrupt):
    """The run was stopped from outside; the message names the signal."""


@contextmanager
def interruptible(give_up: Callable[[str], None], grace_s: float = GRACE_S) -> Iterator[None]:
    """Raise Interrupted in the main thread at SIGINT or SIGTERM.

    If the block has not been left `grace_s` seconds later, `give_up(signal name)` is called on
    another thread, and the process ends with exit code 130. Only for the main thread.
    """
    done = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    seen: list[str] = []

    def handle(number: int, _frame: object) -> None:
        # A second signal must not break into the writing of the record.
        if not seen:
            seen.append(signal.Signals(number).name)
            raise Interrupted(f"stopped by {seen[0]}")

    def watch() -> None:
        data = reader.recv(1)
        if not data or done.wait(grace_s):
            return
        with suppress(Exception):
            give_up(signal.Signals(data[0]).name)
        os._exit(EXIT_CODE)

    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, handle) for number in numbers}
    old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name="bench-interrupt", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(old_fd)
        for number, handler in old.items():
            signal.signal(number, handler)
        writer.close()
        thread.join(timeout=1)
        reader.close()
