"""Numbers as people read them."""

from __future__ import annotations

import pytest

from bench.reports import formats


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.4217, "s", "4.42 s"),
        (152.3, "s", "152 s"),
        (0.0123, "s", "12.3 ms"),
        (1.23e-5, "s", "12.3 µs"),
        (0.0, "s", "0 ns"),
        (5.5 * 2**30, "bytes", "5.50 GiB"),
        (100, "bytes", "100 bytes"),
        (12345.6, "tokens/s", "12,346 tokens/s"),
        (0.454, "sequences/s", "0.454 sequences/s"),
        (0.25, "1", "0.250"),
        (12.5, "USD", "$12.5"),
        (1.5, "USD/step", "$1.50 per step"),
        (0.0415, "USD/step", "$41.5 per 1,000 steps"),
        (1.03e-5, "USD/step", "$10.3 per million steps"),
        (5.17e-6, "USD/sequences", "$5.17 per million sequences"),
        (0.5, "USD/sequences", "$500 per 1,000 sequences"),
        (None, "bytes", "n/a"),
    ],
)
def test_a_quantity_is_scaled_once_for_people(value: float | None, unit: str, text: str) -> None:
    assert formats.quantity(value, unit) == text


def test_an_interval_takes_the_scale_of_its_value() -> None:
    assert formats.interval((0.9e-3, 1.2e-3), 1.0e-3, "s") == "0.900 to 1.20"
    assert formats.interval((0.09, 1.2), 1.0, "s") == "0.0900 to 1.20"
    assert formats.interval(None, 1.0, "s") == ""


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-2.5, "-2.50"), (1e-5, "1.00e-05"), (1e12, "1.00e+12")]
)
def test_extreme_numbers_stay_short(value: float, text: str) -> None:
    assert formats.number(value) == text
