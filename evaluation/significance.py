"""How sure a measured figure is: bootstrap intervals, and paired tests of two systems."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float64

RESAMPLES = 10_000
_SEED = 1
_CELLS_A_TIME = 2_000_000  # of a matrix [resamples, items]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % bootstrap interval (percentiles)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """By how much a system is better than another one on the same items.

    Attributes:
        difference: of the means.
        low: of its 95 % interval, by paired bootstrap.
        high: of that interval.
        p: share of random exchanges of the two, item by item, that differ as much or more
            (two-sided; not corrected for how many systems are compared).
    """

    difference: float
    low: float
    high: float
    p: float


def resampled_counts(items: int, resamples: int = RESAMPLES) -> Iterator[Float64]:
    """Draw items with replacement, again and again; the same number gives the same draws.

    Yields:
        Float64[r, items], how often each item was drawn; r adds up to `resamples`.
    """
    chance = np.random.default_rng(_SEED)
    for rows in _parts(items, resamples):
        drawn = chance.integers(0, items, (rows, items))
        drawn += np.arange(rows)[:, None] * items
        counts = np.bincount(drawn.ravel(), minlength=rows * items).reshape(rows, items)
        yield counts.astype(np.float64)


def estimate_means(values: Float64, resamples: int = RESAMPLES) -> list[Estimate]:
    """Estimate the mean of each column of Float64[items, M], items drawn with replacement."""
    items = len(values)
    drawn = [counts @ values / items for counts in resampled_counts(items, resamples)]
    return estimates(values.mean(0), np.concatenate(drawn))


def estimates(values: Float64, resampled: Float64) -> list[Estimate]:
    """Join figures Float64[M] with what they were in each resample, Float64[resamples, M].

    Resamples in which a figure does not exist (not a number) do not count for it.
    """
    low, high = np.nanpercentile(resampled, [2.5, 97.5], axis=0)
    triples = zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
    return [Estimate(*triple) for triple in triples]


def compare_paired(values: Float64, reference: Float64, resamples: int = RESAMPLES) -> Comparison:
    """Compare two systems by their values Float64[items] on the same items."""
    differences = values - reference
    (estimate,) = estimate_means(differences[:, None], resamples)
    chance = np.random.default_rng(_SEED)
    reached = abs(differences.sum()) * (1 - 1e-9)  # sums in another order differ by rounding
    as_large = 0
    for rows in _parts(len(differences), resamples):
        signs = chance.integers(0, 2, (rows, len(differences)), dtype=np.int8) * 2.0 - 1.0
        as_large += int((np.abs(signs @ differences) >= reached).sum())
    # What was measured is one of the exchanges, so that p is never nought.
    p = (as_large + 1) / (resamples + 1)
    return Comparison(estimate.value, estimate.low, estimate.high, p)


def _parts(items: int, resamples: int) -> Iterator[int]:
    rows = max(1, _CELLS_A_TIME // items)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)
