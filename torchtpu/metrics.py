"""Counters that a user can look at: compiles, CPU fallbacks."""

from __future__ import annotations

import collections

from torchtpu.runtime.executable_cache import cache

_fallbacks: collections.Counter[str] = collections.Counter()


def count_fallback(name: str) -> int:
    """Note one CPU fallback of this operator; returns how often it fell back so far."""
    _fallbacks[name] += 1
    return _fallbacks[name]


def fallbacks() -> dict[str, int]:
    """How often each operator went to the CPU because it has no lowering: name -> count."""
    return dict(_fallbacks)


def compiles() -> int:
    """How many XLA programs were compiled."""
    return cache.compiles


def compile_time_s() -> float:
    """Seconds spent tracing and compiling, over all programs."""
    return cache.compile_time_s


def reset() -> None:
    """Set all counters back to zero (executables stay)."""
    _fallbacks.clear()
    cache.compiles = 0
    cache.compile_time_s = 0.0


def report() -> str:
    """The counters as text."""
    lines = [
        f"compiles            {compiles()}",
        f"compile time        {compile_time_s():.3f} s",
        f"cached executables  {len(cache.entries)}",
        f"CPU fallbacks       {sum(_fallbacks.values())}",
    ]
    lines += [f"  {name:40s} {count}" for name, count in _fallbacks.most_common()]
    return "\n".join(lines)
