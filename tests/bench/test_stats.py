"""Statistics against answers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench import stats


def test_median_and_mean() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert stats.mean([1.0, 2.0, 6.0]) == 3.0


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf], [[1.0], [2.0]]])
def test_samples_must_be_a_flat_list_of_finite_numbers(values: list) -> None:
    with pytest.raises(ValueError, match="sample"):
        stats.median(values)


@pytest.mark.parametrize(
    ("percent", "needed"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000), (10, 10)]
)
def test_a_percentile_needs_one_sample_beyond_it(percent: float, needed: int) -> None:
    assert stats.samples_needed(percent) == needed
    values = list(map(float, range(needed)))
    assert stats.percentile(values, percent) is not None
    assert stats.percentile(values[:-1], percent) is None


def test_a_percentile_interpolates() -> None:
    # 101 samples 0..100: the p-th percentile is p.
    values = [float(v) for v in range(101)]
    assert stats.percentile(values, 99) == pytest.approx(99.0)
    # 10 samples 1..10: position 0.9 * 9 = 8.1 -> 9 + 0.1.
    assert stats.percentile([float(v) for v in range(1, 11)], 90) == pytest.approx(9.1)


@pytest.mark.parametrize("percent", [0, 100, -1, 101])
def test_a_percentile_lies_inside(percent: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        stats.percentile([1.0] * 200, percent)


def test_coefficient_of_variation() -> None:
    # Mean 2, squared deviations 1 + 0 + 1 over n - 1 = 2: deviation 1.
    assert stats.coefficient_of_variation([1.0, 2.0, 3.0]) == pytest.approx(0.5)
    assert stats.coefficient_of_variation([5.0]) is None
    assert stats.coefficient_of_variation([-1.0, 1.0]) is None


def test_the_bootstrap_of_equal_samples_is_a_point() -> None:
    assert stats.bootstrap_median_ci([2.0] * 8) == (2.0, 2.0)
    assert stats.bootstrap_ratio_ci([4.0] * 6, [2.0] * 9) == stats.Ratio(2.0, 2.0, 2.0, 6)


def test_too_few_samples_give_no_interval() -> None:
    assert stats.bootstrap_median_ci([1.0, 2.0, 3.0, 4.0]) is None
    assert stats.bootstrap_ratio_ci([1.0] * 4, [1.0] * 50) is None
    assert stats.interleaved_ratio([[1.0]] * 4, [[1.0]] * 4) is None


def test_the_bootstrap_is_the_same_each_time() -> None:
    values = np.random.default_rng(1).lognormal(size=40)
    assert stats.bootstrap_median_ci(values) == stats.bootstrap_median_ci(values)
    assert stats.bootstrap_median_ci(values) != stats.bootstrap_median_ci(values, seed=1)


def test_the_bootstrap_agrees_with_the_exact_distribution() -> None:
    # The median of 5 resampled from 1..5 is <= 1 with P(at least 3 of 5 draws are 1) = 0.058, so
    # the 2.5 % point is 1, and by symmetry the 97.5 % point is 5; at 80 % they are 2 and 4.
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert stats.bootstrap_median_ci(values) == (1.0, 5.0)
    assert stats.bootstrap_median_ci(values, confidence=0.8) == (2.0, 4.0)


def test_chunks_do_not_change_the_kind_of_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(10.0, 1.0, size=300)
    whole = stats.bootstrap_median_ci(values)
    monkeypatch.setattr(stats, "_CHUNK_ELEMENTS", 300 * 7)
    assert stats.bootstrap_median_ci(values) == pytest.approx(whole, rel=0.01)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        low, high = stats.bootstrap_median_ci(rng.exponential(size=40), resamples=400)
        held += low <= math.log(2) <= high
    assert 180 <= held <= 199


def test_a_ratio_needs_positive_divisors() -> None:
    with pytest.raises(ValueError, match="positive"):
        stats.bootstrap_ratio_ci([1.0] * 5, [1.0] * 4 + [0.0])


def test_interleaving_cancels_drift() -> None:
    # The machine slows down fivefold over the blocks; a is 1.5 b in each pair.
    drift = np.linspace(1.0, 5.0, 10)
    a = [[1.5 * d, 1.5 * d] for d in drift]
    b = [[d, d] for d in drift]
    found = stats.interleaved_ratio(a, b)
    assert (found.value, found.low, found.high, found.n) == pytest.approx((1.5, 1.5, 1.5, 10))
    apart = stats.bootstrap_ratio_ci([x for s in a for x in s], [x for s in b for x in s])
    assert apart.low < 1.2
    assert apart.high > 1.8


def test_interleaved_blocks_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="not interleaved"):
        stats.interleaved_ratio([[1.0]] * 6, [[1.0]] * 5)


def test_a_rate_swaps_the_ends_of_the_interval() -> None:
    assert stats.rate(256, 2.0, (1.6, 4.0)) == (128.0, (64.0, 160.0))
    assert stats.rate(10, 4.0) == (2.5, None)
    with pytest.raises(ValueError, match="positive duration"):
        stats.rate(1, 0.0)


def test_warm_up_is_over_when_two_windows_agree() -> None:
    assert not stats.is_settled([9.0, 1.0, 1.0, 1.0, 1.0])  # five of six
    assert stats.is_settled([9.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # medians 1 and 1
    assert not stats.is_settled([3.0, 3.0, 3.0, 2.0, 2.0, 2.0])
    assert stats.is_settled([1.04, 1.04, 1.0, 1.0], window=2)  # 4 % apart
    assert not stats.is_settled([1.06, 1.06, 1.0, 1.0], window=2)  # 6 % apart
    with pytest.raises(ValueError, match="window"):
        stats.is_settled([1.0], window=0)


def test_halves_show_drift() -> None:
    assert stats.halves_ratio([1.0, 1.0, 2.0, 2.0]) == 2.0
    assert stats.halves_ratio([1.0, 1.0, 7.0, 2.0, 2.0]) == 2.0  # the middle one is left out
    assert stats.halves_ratio([1.0, 1.0, 1.0]) is None


def test_max_relative_difference() -> None:
    assert stats.max_relative_difference([1.0, 2.02], [1.0, 2.0]) == pytest.approx(0.01)
    assert stats.max_relative_difference([0.0], [0.0]) == 0.0
    assert stats.max_relative_difference([1e-3], [0.0]) > 1e300
    assert stats.max_relative_difference([math.nan], [1.0]) == math.inf
    assert stats.max_relative_difference([1.0], [math.nan]) == math.inf
    for values in ([], [1.0, 2.0]):
        with pytest.raises(ValueError, match="compared"):
            stats.max_relative_difference(values, [1.0] if values else [])
