"""The one cache of what calls lead to, and the counters of compiling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable


class ExecutableCache:
    """Key of a call -> what an engine keeps for it, its executable included.

    `entries` is a plain dictionary, read without a lock on the fast path.
    """

    def __init__(self):
        self.entries: dict[Hashable, object] = {}
        self._short_tables: list[dict] = []
        self.compiles = 0
        self.compile_time_s = 0.0
        self._lock = threading.Lock()

    def compile(self, build: Callable[[], object]) -> object:
        """Run `build`, which compiles, and count it."""
        start = time.perf_counter()
        executable = build()
        with self._lock:
            self.compiles += 1
            self.compile_time_s += time.perf_counter() - start
        return executable

    def new_short_table(self) -> dict:
        """A further, smaller table that an engine keeps of what is in `entries`; cleared with it."""
        table: dict = {}
        self._short_tables.append(table)
        return table

    def clear(self) -> None:
        """Forget every executable; counters go on."""
        self.entries.clear()
        self.clear_short_tables()

    def clear_short_tables(self) -> None:
        """Forget what engines keep beside `entries`; they fill it again."""
        for table in self._short_tables:
            table.clear()


cache = ExecutableCache()
