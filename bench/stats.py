"""Statistics of timed steps: pure, seeded, numpy only. No function mends its input.

Symbols: n samples, r resamples. All bootstraps are the percentile bootstrap with a fixed seed, so
the same samples always give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
MIN_SAMPLES_FOR_INTERVAL = 5
_CHUNK_ELEMENTS = 4_000_000  # keeps a bootstrap of many samples below about 100 MB


@dataclass(frozen=True)
class Ratio:
    """A ratio a/b with its 95 % interval; `n` blocks or samples of the smaller side."""

    value: float
    low: float
    high: float
    n: int


def median(values: Sequence[float]) -> float:
    """The median. Raises ValueError on no samples or one that is not finite."""
    return float(np.median(_samples(values)))


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises ValueError as `median`."""
    return float(np.mean(_samples(values)))


def samples_needed(percent: float) -> int:
    """The fewest samples for a percentile: one must be expected beyond it (p99: 100, p95: 20)."""
    if not 0 < percent < 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    tail = min(percent, 100 - percent)
    return math.ceil(round(100 / tail, 6))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The percentile by linear interpolation, or None where the samples are too few for it."""
    samples = _samples(values)
    if samples.size < samples_needed(percent):
        return None
    return float(np.percentile(samples, percent))


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Standard deviation (n - 1) over the mean, or None with fewer than 2 samples or mean 0."""
    samples = _samples(values)
    center = samples.mean()
    if samples.size < 2 or center == 0:
        return None
    return float(samples.std(ddof=1) / abs(center))


def bootstrap_median_ci(
    values: Sequence[float], *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """The interval of the median, or None with fewer than 5 samples: a made-up one would mislead.

    Assumes independent samples; drifting ones need `interleaved_ratio`.
    """
    samples = _samples(values)
    if samples.size < MIN_SAMPLES_FOR_INTERVAL:
        return None
    medians_R = _resampled_medians(samples, resamples, np.random.default_rng(seed))
    return _interval(medians_R, confidence)


def bootstrap_ratio_ci(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ratio | None:
    """median(a) / median(b) with the interval from resampling both sides apart from each other.

    None with fewer than 5 samples on a side. Raises ValueError unless all of b is positive.
    """
    a_N, b_N = _samples(a), _positive(b, "b")
    n = min(a_N.size, b_N.size)
    if n < MIN_SAMPLES_FOR_INTERVAL:
        return None
    rng = np.random.default_rng(seed)
    ratio_R = _resampled_medians(a_N, resamples, rng) / _resampled_medians(b_N, resamples, rng)
    low, high = _interval(ratio_R, confidence)
    return Ratio(float(np.median(a_N) / np.median(b_N)), low, high, n)


def interleaved_ratio(
    a_blocks: Sequence[Sequence[float]],
    b_blocks: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ratio | None:
    """a/b from blocks measured in turn (A B A B ...): the median of the ratios of each pair.

    Both blocks of a pair see the same machine, so slow drift cancels; pairs are the unit that is
    resampled. None with fewer than 5 pairs. Raises ValueError if the sides differ in length.
    """
    if len(a_blocks) != len(b_blocks):
        raise ValueError(f"{len(a_blocks)} blocks of a but {len(b_blocks)} of b: not interleaved")
    if len(a_blocks) < MIN_SAMPLES_FOR_INTERVAL:
        return None
    ratio_N = np.array(
        [median(a) / np.median(_positive(b, "b")) for a, b in zip(a_blocks, b_blocks, strict=True)]
    )
    ratio_R = _resampled_medians(ratio_N, resamples, np.random.default_rng(seed))
    low, high = _interval(ratio_R, confidence)
    return Ratio(float(np.median(ratio_N)), low, high, len(ratio_N))


def rate(
    amount: float, duration_s: float, ci95_s: tuple[float, float] | None = None
) -> tuple[float, tuple[float, float] | None]:
    """amount per second and its interval; the ends change places: the longest time is slowest."""
    if duration_s <= 0 or (ci95_s is not None and ci95_s[0] <= 0):
        raise ValueError(f"a rate needs a positive duration, not {duration_s} {ci95_s or ''}")
    interval = None if ci95_s is None else (amount / ci95_s[1], amount / ci95_s[0])
    return amount / duration_s, interval


def is_settled(values: Sequence[float], *, window: int = 3, tolerance: float = 0.05) -> bool:
    """Is warm-up over: do the medians of the last two windows of samples agree?

    False while there are fewer than 2 * window samples.
    """
    if window < 1:
        raise ValueError(f"window is at least 1, not {window}")
    if len(values) < 2 * window:
        return False
    last = median(values[-window:])
    before = median(values[-2 * window : -window])
    return abs(last - before) <= tolerance * min(abs(last), abs(before))


def halves_ratio(values: Sequence[float]) -> float | None:
    """Median of the second half over that of the first: far from 1 means drift. None below 4."""
    samples = _samples(values)
    if samples.size < 4:
        return None
    half = samples.size // 2
    first = float(np.median(samples[:half]))
    return None if first == 0 else float(np.median(samples[-half:])) / first


def max_relative_difference(values: Sequence[float], reference: Sequence[float]) -> float:
    """max |v - r| / |r|; infinite where a pair is not finite, so that NaN never passes.

    Raises ValueError on different lengths or none at all.
    """
    if len(values) != len(reference) or not len(values):
        raise ValueError(f"{len(values)} values cannot be compared with {len(reference)}")
    v_N, r_N = np.asarray(values, float), np.asarray(reference, float)
    if not (np.isfinite(v_N).all() and np.isfinite(r_N).all()):
        return math.inf
    # A reference of 0 allows only 0: the floor is the smallest normal number.
    return float(np.max(np.abs(v_N - r_N) / np.maximum(np.abs(r_N), np.finfo(float).tiny)))


def _samples(values: Sequence[float]) -> np.ndarray:
    samples = np.asarray(values, dtype=float)
    if samples.ndim != 1 or samples.size == 0:
        raise ValueError(f"expected a flat list of samples, not shape {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError("a sample is not a finite number")
    return samples


def _positive(values: Sequence[float], name: str) -> np.ndarray:
    samples = _samples(values)
    if (samples <= 0).any():
        raise ValueError(f"{name} divides, so all its samples must be positive")
    return samples


def _resampled_medians(samples: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    rows = max(1, _CHUNK_ELEMENTS // samples.size)
    medians = [
        np.median(samples[rng.integers(samples.size, size=(count, samples.size))], axis=1)
        for count in (min(rows, resamples - start) for start in range(0, resamples, rows))
    ]
    return np.concatenate(medians)


def _interval(statistic_R: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(statistic_R, [tail, 100 - tail])
    return float(low), float(high)
