"""Options of a configuration group as a dataclass: types and bounds checked, errors for people.

The YAML file of a group holds the values; the dataclass says which keys there are and what a value
may be. Knows no group by name.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class UsageError(Exception):
    """The input is wrong or asks for what this machine lacks: one message, exit code 2."""


@dataclass(frozen=True)
class Bounds:
    """What a value may be: `at_least` and `at_most` are inclusive, `above` is not."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    choices: tuple[Any, ...] = ()


def option(
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: Iterable[Any] = (),
) -> Any:
    """A dataclass field with bounds."""
    return field(metadata={"bounds": Bounds(at_least, above, at_most, tuple(choices))})


def one_of(name: str, valid: Iterable[str]) -> str:
    """'valid: a, b' and, where one is close to `name`, a question that names it."""
    names = [str(v) for v in valid]
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    close = close or [v for v in names if len(str(name)) > 2 and v.startswith(str(name))]
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"valid: {', '.join(names) or 'none'}{hint}"


def read_options(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass `kind` from `values`; `where` is the keys' prefix in errors.

    Raises UsageError for an unknown or missing key, a wrong type or a value out of bounds.
    """
    known = {f.name: f for f in fields(kind)}
    hints = get_type_hints(kind)
    for key in values:
        if key not in known:
            raise UsageError(f"{where}.{key}: no such key; {one_of(key, known)}")
    read = {}
    for key, item in known.items():
        if key not in values:
            if item.default is MISSING and item.default_factory is MISSING:
                raise UsageError(f"{where}.{key}: missing from the configuration")
            continue
        bounds = item.metadata.get("bounds", Bounds())
        read[key] = _read(hints[key], values[key], f"{where}.{key}", bounds)
    return kind(**read)


def _read(kind: Any, value: Any, where: str, bounds: Bounds) -> Any:
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if value is None:
        if type(None) in options:
            return None
        raise UsageError(f"{where}: needs {_describe(options, bounds)}, not null")
    if len(options) == 1 and is_dataclass(kind):
        if not isinstance(value, Mapping):
            keys = ", ".join(f"{where}.{f.name}" for f in fields(kind))
            raise UsageError(f"{where}: is a group of keys, not {value!r}; set {keys}")
        return read_options(kind, value, where)
    for option_type in options:
        if _is(value, option_type):
            value = float(value) if option_type is float else value
            if not _within(value, bounds):
                break
            return value
    if bounds.choices and isinstance(value, str):
        raise UsageError(f"{where}: unknown value {value!r}; {one_of(value, bounds.choices)}")
    raise UsageError(f"{where}: needs {_describe(options, bounds)}, not {value!r}")


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is type(None):
        return value is None
    return isinstance(value, kind)


def _within(value: Any, bounds: Bounds) -> bool:
    if bounds.choices:
        return value in bounds.choices
    if isinstance(value, float) and value - value != 0:  # NaN or infinite
        return False
    return not (
        (bounds.at_least is not None and value < bounds.at_least)
        or (bounds.above is not None and value <= bounds.above)
        or (bounds.at_most is not None and value > bounds.at_most)
    )


_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
}


def _describe(options: tuple[Any, ...], bounds: Bounds) -> str:
    if bounds.choices:
        return "one of " + ", ".join(str(c) for c in bounds.choices)
    text = " or ".join(_NAMES.get(o, getattr(o, "__name__", str(o))) for o in options)
    limits = [
        f"{word} {limit:g}"
        for word, limit in (
            ("of at least", bounds.at_least),
            ("above", bounds.above),
            ("of at most", bounds.at_most),
        )
        if limit is not None
    ]
    return f"{text} {' and '.join(limits)}" if limits else text
