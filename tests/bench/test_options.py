"""Reading options: types, bounds and the wording of errors."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bench.options import UsageError, one_of, option, read_options


@dataclass(frozen=True)
class Inner:
    path: str | None


@dataclass(frozen=True)
class Example:
    size: int = option(at_least=1, at_most=10)
    share: float = option(above=0, at_most=1)
    kind: str = option(choices=("plain", "fancy"))
    limit: int | None
    inner: Inner
    on: bool


GOOD = {
    "size": 3,
    "share": 1,
    "kind": "plain",
    "limit": None,
    "inner": {"path": None},
    "on": True,
}


def test_good_values_are_read():
    read = read_options(Example, GOOD, "x")
    assert read == Example(3, 1.0, "plain", None, Inner(None), True)
    assert isinstance(read.share, float)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("size", 0, "x.size: needs a whole number of at least 1 and of at most 10, not 0"),
        ("size", 11, "of at most 10, not 11"),
        ("size", 1.0, "whole number"),
        ("size", True, "whole number"),
        ("size", None, "not null"),
        ("share", 0, "a number above 0 and of at most 1, not 0"),
        ("share", float("nan"), "not nan"),
        ("share", "1", "not '1'"),
        ("kind", "fanci", r"unknown value 'fanci'; valid: plain, fancy \(did you mean 'fancy'\?\)"),
        ("kind", 3, "one of plain, fancy, not 3"),
        ("limit", "x", "a whole number or null, not 'x'"),
        ("inner", 4, "set x.inner.path"),
        ("inner", {"path": 4}, "x.inner.path: needs text or null, not 4"),
        ("inner", {"paths": "a"}, "x.inner.paths: no such key; valid: path"),
        ("on", 1, "true or false"),
        ("extra", 1, "x.extra: no such key; valid: size, share"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_valid(key, value, message):
    with pytest.raises(UsageError, match=message):
        read_options(Example, GOOD | {key: value}, "x")


def test_a_missing_key_is_named():
    with pytest.raises(UsageError, match=r"x\.limit: missing"):
        read_options(Example, {k: v for k, v in GOOD.items() if k != "limit"}, "x")


def test_the_nearest_name_is_offered_only_if_it_is_near():
    assert one_of("bert", ["bert_large"]).endswith("(did you mean 'bert_large'?)")
    assert one_of("zzz", ["bert_large", "dispatch"]) == "valid: bert_large, dispatch"
    assert one_of("a", []) == "valid: none"
