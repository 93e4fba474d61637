import math

import numpy as np
import pytest

from evaluation.significance import compare_paired, estimate_means, resampled_counts


def test_draws_are_seeded_whole_and_even() -> None:
    counts = np.concatenate(list(resampled_counts(700, 6_000)))  # more than one part
    assert counts.shape == (6_000, 700)
    assert (counts.sum(1) == 700).all()
    assert counts.mean(0) == pytest.approx(np.ones(700), abs=0.08)
    again = np.concatenate(list(resampled_counts(700, 6_000)))
    assert (counts == again).all()


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


def test_p_by_hand() -> None:
    """Of the 16 exchanges of four items that all gain 1, two differ by as much: p is 1/8."""
    compared = compare_paired(np.ones(4), np.zeros(4))
    assert compared.difference == 1.0
    assert compared.p == pytest.approx(1 / 8, abs=0.01)


def test_pairing_sees_what_the_two_intervals_hide() -> None:
    hard = np.random.default_rng(5).random(200)
    gains = np.random.default_rng(6).random(200) * 0.02
    better, (one, other) = (
        compare_paired(hard + gains, hard),
        estimate_means(np.stack([hard + gains, hard], axis=1)),
    )
    assert other.high > one.low
    assert better.low > 0
    assert better.p < 0.001


def test_equal_systems_do_not_differ() -> None:
    values = np.random.default_rng(7).random(50)
    compared = compare_paired(values, values)
    assert (compared.difference, compared.low, compared.high, compared.p) == (0, 0, 0, 1)


def test_the_sign_is_that_of_the_first() -> None:
    worse = compare_paired(np.zeros(30), np.linspace(0, 1, 30))
    assert worse.difference == pytest.approx(-0.5)
    assert worse.high < 0
