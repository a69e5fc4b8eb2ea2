"""Numbers for people: the only place of the reports where units are scaled."""

from __future__ import annotations

import math

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_STEPS = (
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
    (1.0, "bytes"),
)
NOTHING = "\N{EN DASH}"
UNAVAILABLE = "n/a"  # a metric without a value; its method says why


def number(value: float, digits: int = 3) -> str:
    """`digits` significant digits, thousands separated, no exponent between 1e-4 and 1e9."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """(factor, shown unit) such that value / factor reads well: 0.002 "s" -> (0.001, "ms")."""
    if unit.startswith("USD/"):
        per = unit.removeprefix("USD/").replace("-", " ")
        # Nobody compares $0.0000103 with $0.0000137; and "per sequences" needs a count.
        counts = [(1.0, ""), (1e-3, "1,000 "), (1e-6, "million "), (1e-9, "billion ")]
        plural = per.endswith("s")
        for factor, count in counts[plural:]:
            if abs(value) >= factor / 10 or factor == counts[-1][0]:
                return factor, f"per {count}{per}{'' if plural or not count else 's'}"
    steps = {"s": _TIME_STEPS, "bytes": _BYTE_STEPS}.get(unit)
    if steps is None:
        return 1.0, "" if unit == "1" else unit
    return next((step for step in steps if abs(value) >= step[0]), steps[-1])


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit: "4.42 s", "5.50 GiB", "$10.3 per million steps", "12,300 tokens/s"."""
    if value is None:
        return UNAVAILABLE
    factor, shown = scale_of(value, unit)
    if unit.split("/")[0] == "USD":
        return f"${number(value / factor)} {shown.removeprefix('USD')}".rstrip()
    return f"{number(value / factor)} {shown}".rstrip()


def interval(ci95: tuple[float, float] | None, value: float | None, unit: str) -> str:
    """The interval in the unit that `quantity(value, unit)` shows, without repeating the unit."""
    if ci95 is None or value is None:
        return ""
    factor, _ = scale_of(value, unit)
    low, high = (end / factor for end in ci95)
    return f"{number(low)} to {number(high)}"


def ratio(value: float, low: float, high: float) -> str:
    """ "1.93x (1.88 to 1.97)"."""
    return f"{number(value)}x ({number(low)} to {number(high)})"


def words(name: str) -> str:
    """A name from a record as words: "compile_cold" -> "compile cold"."""
    return name.replace("_", " ")
