"""Scores of random pairs: thresholds hold their rate, or are missing if there are too few pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import CorpusError
from index.search.score_distribution import (
    MAX_PAIRS,
    RATES,
    NullDistribution,
    check_rate,
    false_positive_rates,
    measure_distribution,
    pair_scores,
    sample_pairs,
    threshold_for,
)

Vectors = Callable[..., Any]


def measure(vectors: np.ndarray, seed: int = 0) -> NullDistribution:
    pairs = sample_pairs(len(vectors), seed)
    return measure_distribution(pairs, pair_scores(vectors, pairs), len(vectors), seed=seed)


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    """Return 1,600 vectors around 40 centres: more pairs than are sampled."""
    random = np.random.default_rng(3)
    vectors = random.normal(size=(40, 16)).repeat(40, axis=0) + random.normal(size=(1600, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def measured(clusters: np.ndarray) -> NullDistribution:
    return measure(clusters, seed=1)


def test_all_pairs_of_a_small_corpus_are_sampled_once() -> None:
    pairs = sample_pairs(120, seed=0)
    assert len(pairs) == 120 * 119 // 2
    assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)


def test_pairs_of_a_large_corpus_are_of_two_documents_and_seeded() -> None:
    pairs = sample_pairs(5_000, seed=4)
    assert pairs.shape == (MAX_PAIRS, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (pairs.min(), pairs.max()) == (0, 4_999)
    assert (pairs == sample_pairs(5_000, seed=4)).all()
    assert (pairs != sample_pairs(5_000, seed=5)).any()


@pytest.mark.parametrize("count", [0, 1, 99])
def test_too_few_documents_are_refused_with_the_limit(vectors: Vectors, count: int) -> None:
    with pytest.raises(CorpusError, match=f"{count} documents are too few.*: 100 are needed"):
        measure(vectors(count, seed=1))


def test_a_score_that_is_not_finite_is_refused(vectors: Vectors) -> None:
    damaged = vectors(120, seed=1)
    damaged[7] = np.nan
    with pytest.raises(CorpusError, match="not finite"):
        measure(damaged)


def test_thresholds_keep_their_rate_on_fresh_pairs(
    clusters: np.ndarray, measured: NullDistribution
) -> None:
    assert [one.false_positive_rate for one in measured.thresholds] == list(RATES)
    fresh = pair_scores(clusters, sample_pairs(len(clusters), seed=2))
    for threshold in measured.thresholds:
        rate = float((fresh >= threshold.score).mean())
        assert rate == pytest.approx(threshold.false_positive_rate, rel=0.2)
        assert threshold.low <= threshold.score <= threshold.high
        assert threshold.high - threshold.low < 0.1


def test_more_documents_make_a_narrower_interval(
    clusters: np.ndarray, measured: NullDistribution
) -> None:
    few = threshold_for(measure(clusters[::8]), 0.01)
    many = threshold_for(measured, 0.01)
    assert few.high - few.low > 1.5 * (many.high - many.low)


def test_the_rate_of_a_score_is_the_share_that_reaches_it(
    clusters: np.ndarray, measured: NullDistribution
) -> None:
    scores = pair_scores(clusters, sample_pairs(len(clusters), seed=1))
    for share in (0.999, 0.9, 0.5, 0.1, 0.01, 0.001):
        score = np.quantile(scores, 1 - share)
        (found,) = false_positive_rates(measured, np.array([score]))
        assert found == pytest.approx(share, rel=0.05)
    ends = false_positive_rates(measured, np.array([-1.0, 1.0]))
    assert ends[0] == 1.0
    assert 0 < ends[1] <= 2 / MAX_PAIRS


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20))
def test_rates_fall_as_scores_rise(scores: list[float]) -> None:
    table = NullDistribution(10, 45, 0, (-0.5, 0.0, 0.7), (1.0, 0.4, 0.001), ())
    assert (np.diff(false_positive_rates(table, np.sort(np.array(scores)))) <= 0).all()


def test_a_small_corpus_has_no_threshold_of_a_small_rate(vectors: Vectors) -> None:
    small = measure(vectors(100, seed=1))  # 4,950 pairs
    assert [one.false_positive_rate for one in small.thresholds] == [0.1, 0.03, 0.01]
    assert threshold_for(small, 0.01).score > 0
    with pytest.raises(CorpusError, match=r"0\.003: 4950 pairs of 100 documents are too few"):
        threshold_for(small, 0.003)


def test_equal_documents_have_no_threshold(vectors: Vectors) -> None:
    equal = measure(vectors(1, seed=1).repeat(150, axis=0))
    assert equal.thresholds == ()
    assert false_positive_rates(equal, np.array([1.0])).tolist() == [1.0]


@pytest.mark.parametrize("rate", [0.0, 0.02, 1.0, -0.1, float("nan")])
def test_a_rate_without_a_threshold_is_refused(rate: float) -> None:
    with pytest.raises(CorpusError, match=r"must be one of 0\.1, 0\.03, 0\.01, 0\.003, 0\.001"):
        check_rate(rate)
