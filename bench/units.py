"""Units in names, and labels of origin: no number of this package goes without either."""

from __future__ import annotations

import re

MEASURED = "measured"
MODELLED = "modelled"
PUBLISHED = "published"
LIST_PRICE = "list price"
ASSUMED = "assumed"
# In order of weight: the first label of a combination is the one that a reader must see.
LABELS = (ASSUMED, MODELLED, MEASURED, PUBLISHED, LIST_PRICE)


class RecordError(ValueError):
    """A record, or a part of one, breaks the schema. The message names the field and the file."""


# --- units -------------------------------------------------------------------------------------

UNIT_OF_SUFFIX = {
    "s": "s",
    "bytes": "bytes",
    "j": "J",
    "w": "W",
    "hz": "Hz",
    "usd": "USD",
    "flops": "FLOP",
    "ratio": "1",
    "share": "1",
    "count": "1",
}
_SCALED_SUFFIXES = {
    **dict.fromkeys(("ms", "us", "ns", "min", "h", "hours"), "s"),
    **dict.fromkeys(("kb", "mb", "gb", "kib", "mib", "gib"), "bytes"),
    **dict.fromkeys(("mj", "kj", "wh", "kwh"), "j"),
    **dict.fromkeys(("mw", "kw"), "w"),
    **dict.fromkeys(("percent", "pct"), "ratio"),
}


def expected_unit(name: str) -> str | None:
    """The unit that a quantity's name promises, or None where the name promises nothing.

    `step_time_s` -> "s"; `throughput_tokens_per_s` -> "tokens/s"; `cost_usd_per_chip_hour` ->
    "USD/chip-hour". Raises RecordError for a scaled unit such as `_ms`: records hold SI units.
    """
    numerator, *denominators = name.split("_per_")
    numerator = numerator.rsplit("_", 1)[-1]
    if numerator in _SCALED_SUFFIXES and "_" in name:
        raise RecordError(
            f"{name!r}: records hold unscaled units; end the name in "
            f"'_{_SCALED_SUFFIXES[numerator]}' and convert in the report"
        )
    if denominators:
        below = [part.replace("_", "-") for part in denominators]
        return "/".join([UNIT_OF_SUFFIX.get(numerator, numerator), *below])
    return UNIT_OF_SUFFIX.get(numerator) if "_" in name else None


def check_unit(name: str, unit: str) -> None:
    """Raise RecordError unless the unit and the name's suffix agree, in both directions."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise RecordError(f"{name!r} is no metric name: use lower case, digits and underscores")
    if not isinstance(unit, str) or not unit:
        raise RecordError(f"{name!r} has no unit; a plain number has the unit '1'")
    expected = expected_unit(name)
    if expected is not None and unit != expected:
        raise RecordError(f"{name!r} promises the unit {expected!r} but carries {unit!r}")
    if expected is None:
        suffix = next((s for s, u in UNIT_OF_SUFFIX.items() if u == unit != "1"), None)
        if suffix or "/" in unit:
            hint = f"_{suffix}" if suffix else f"_{unit.lower().replace('/', '_per_')}"
            raise RecordError(f"{name!r} is in {unit!r}; its name must end in '{hint}'")


# --- labels ------------------------------------------------------------------------------------


def combine_labels(*labels: str) -> str:
    """The label of a number derived from others: all their labels, `assumed` and `modelled` first.

    combine_labels("measured", "list price") == "measured + list price"
    combine_labels("measured", "modelled") == "modelled + measured"
    """
    parts = {part for label in labels for part in split_label(label)}
    if not parts:
        raise RecordError("a derived number needs the label of at least one input")
    return " + ".join(label for label in LABELS if label in parts)


def split_label(label: str) -> tuple[str, ...]:
    """The parts of a plain or combined label; raises RecordError for an unknown one."""
    parts = tuple(str(label).split(" + "))
    for part in parts:
        if part not in LABELS:
            raise RecordError(f"unknown label {part!r}; valid: {', '.join(LABELS)}")
    return parts
