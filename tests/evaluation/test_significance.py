import math

import numpy as np
import pytest

from encoder.arrays import Float64
from evaluation.significance import bootstrap_percentiles, compare_paired, estimate_means


def drawn_counts(items: int, resamples: int) -> Float64:
    """How often each item occurs in each resample, Float64[resamples, items]."""
    seen: list[Float64] = []

    def statistic(counts: Float64) -> Float64:
        seen.append(counts)
        return counts[:, :1].T

    bootstrap_percentiles(items, statistic, resamples)
    return np.concatenate([counts for counts in seen if len(counts) > 1])


def test_resamples_are_seeded_and_as_large_as_the_sample() -> None:
    counts = drawn_counts(700, 6_000)  # more than one batch
    assert counts.shape == (6_000, 700)
    assert (counts.sum(1) == 700).all()
    assert counts.mean(0) == pytest.approx(np.ones(700), abs=0.08)
    assert (counts == drawn_counts(700, 6_000)).all()


def test_an_undefined_resample_does_not_count() -> None:
    """The mean of the items after the first, undefined where only the first one is drawn."""

    def statistic(counts: Float64) -> Float64:
        others = counts[:, 1:].sum(1)
        found: Float64 = np.full(len(counts), np.nan)
        np.divide(counts[:, 1], others, out=found, where=others > 0)
        return found[None]

    low, high = bootstrap_percentiles(3, statistic, 2_000)
    assert (low.tolist(), high.tolist()) == ([0.0], [1.0])


def test_the_interval_of_a_mean_is_as_wide_as_theory_says() -> None:
    values = np.random.default_rng(3).standard_normal((400, 2)) * [1.0, 5.0]
    narrow, wide = estimate_means(values)
    for column, estimate in enumerate((narrow, wide)):
        deviation = values[:, column].std() / math.sqrt(400)
        assert estimate.value == pytest.approx(values[:, column].mean())
        assert estimate.low == pytest.approx(estimate.value - 1.96 * deviation, abs=0.1 * deviation)
        assert estimate.high == pytest.approx(
            estimate.value + 1.96 * deviation, abs=0.1 * deviation
        )


def test_one_item_has_no_width() -> None:
    (estimate,) = estimate_means(np.array([[0.25]]))
    assert (estimate.low, estimate.high) == (0.25, 0.25)
    assert compare_paired(np.array([0.5]), np.array([0.25])).p == 1.0


def test_p_by_hand() -> None:
    """Of the 16 exchanges of four items that all gain 1, two differ by as much: p is 1/8."""
    compared = compare_paired(np.ones(4), np.zeros(4))
    assert compared.difference == 1.0
    assert compared.p == pytest.approx(1 / 8, abs=0.01)


def test_pairing_sees_what_the_two_intervals_hide() -> None:
    hard = np.random.default_rng(5).random(200)
    gains = np.random.default_rng(6).random(200) * 0.02
    better, (first, other) = (
        compare_paired(hard + gains, hard),
        estimate_means(np.stack([hard + gains, hard], axis=1)),
    )
    assert other.high > first.low
    assert better.low > 0
    assert better.p < 0.001
    worse = compare_paired(hard, hard + gains)
    assert (worse.difference, worse.high < 0) == (pytest.approx(-better.difference), True)
