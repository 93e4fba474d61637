"""The uncertainty of measured figures: intervals, and paired tests of two systems.

Intervals are 95 % percentile bootstrap intervals (Efron 1979): items are resampled with replacement
`RESAMPLES` times, and the interval runs from the 2.5th to the 97.5th percentile of the figure.
Percentiles rather than BCa, because they also exist for the smallest samples and for figures at the
end of their range, such as a recall of 1. Two systems are compared by a paired randomisation test
(Fisher; Smucker et al. 2007). Both are seeded: the same data give the same figures.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float64, Int64

RESAMPLES = 10_000
_SEED = 1
_CELLS_PER_BATCH = 2_000_000  # of a matrix [resamples, items]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between a system and another one on the same items.

    Attributes:
        difference: of the means.
        low: lower end of its 95 % interval, by paired bootstrap.
        high: upper end of that interval.
        p: two-sided p-value of the paired randomisation test; not corrected for the number of
            systems that are compared.
    """

    difference: float
    low: float
    high: float
    p: float


def bootstrap_percentiles(
    items: int, statistic: Callable[[Float64], Float64], resamples: int = RESAMPLES
) -> tuple[Float64, Float64]:
    """Return the 95 % percentile interval of several statistics of the same items.

    A resample in which a statistic is undefined (NaN) does not count for that statistic.

    Args:
        items: number of items, at least one.
        statistic: from Float64[r, items], how often each item occurs in each of r resamples, to
            Float64[M, r].
        resamples: number of resamples.

    Returns:
        The lower and the upper ends, Float64[M] each.
    """
    random = np.random.default_rng(_SEED)
    size = max(1, _CELLS_PER_BATCH // items)
    resampled = []
    for start in range(0, resamples, size):
        rows = random.integers(items, size=(min(size, resamples - start), items))
        resampled.append(statistic(_count_items(rows, items)))
    low, high = np.nanpercentile(np.concatenate(resampled, axis=-1), [2.5, 97.5], axis=-1)
    return low, high


def estimate_means(values: Float64) -> list[Estimate]:
    """Estimate the mean of each column of Float64[items, M]."""
    items = len(values)
    low, high = bootstrap_percentiles(items, lambda counts: (counts @ values).T / items)
    return join_estimates(values.mean(0), low, high)


def join_estimates(values: Float64, low: Float64, high: Float64) -> list[Estimate]:
    """Join figures Float64[M] with the ends of their intervals."""
    triples = zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
    return [Estimate(*triple) for triple in triples]


def compare_paired(values: Float64, reference: Float64) -> Comparison:
    """Compare two systems by their values Float64[items] on the same items.

    The p-value is that of a randomisation test of the mean difference: the two systems are
    exchanged at random, item by item. It is exact where there are at most `RESAMPLES` exchanges.
    """
    differences = values - reference
    (estimate,) = estimate_means(differences[:, None])
    if len(differences) == 1:  # both exchanges differ as much
        return Comparison(estimate.value, estimate.low, estimate.high, 1.0)
    from scipy.stats import permutation_test

    tested = permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, _CELLS_PER_BATCH // len(differences)),
        rng=np.random.default_rng(_SEED),
    )
    return Comparison(estimate.value, estimate.low, estimate.high, float(tested.pvalue))


def _count_items(rows: Int64, items: int) -> Float64:
    """Return how often each item occurs in each row of Int64[r, n], as Float64[r, items]."""
    numbered = rows + np.arange(len(rows))[:, None] * items
    counts = np.bincount(numbered.ravel(), minlength=len(rows) * items)
    return counts.reshape(len(rows), items).astype(np.float64)
