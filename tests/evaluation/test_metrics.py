import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32, Float64
from evaluation import metrics
from evaluation.significance import bootstrap_percentiles, compare_paired, estimate_means
from evaluation.systems import DEPTH, Ranked, rank, vector_system
from index.errors import CorpusError
from tests.kit.index_fixtures import unit_vectors


def rank_exactly(
    ids: Sequence[str], vectors: Float32, query_ids: Sequence[str], queries: Float32
) -> Ranked:
    every = np.concatenate([vectors, queries])
    rows = np.arange(len(vectors), len(every), dtype=np.int64)
    return rank(vector_system("vectors", "", every, len(vectors)), ids, query_ids, rows)


def test_ranks_by_cosine_and_leaves_the_query_out() -> None:
    vectors = unit_vectors(300, seed=0)
    ids = [f"d{n}" for n in range(300)]
    run = rank_exactly(ids, vectors, ["d3", "other"], vectors[[3, 5]])
    cosines = vectors @ vectors[3]
    expected = [n for n in np.argsort(-cosines).tolist() if n != 3][:DEPTH]
    assert list(run["d3"]) == [f"d{n}" for n in expected]
    assert np.allclose(list(run["d3"].values()), cosines[expected], atol=1e-6)
    assert next(iter(run["other"])) == "d5"  # a query that is no document of the corpus keeps all


def test_measures_by_hand() -> None:
    """Run b, c, d of query a; c has grade 2, d has 1, e is relevant and not ranked."""
    angles = np.array([0.0, 0.1, 0.2, 0.3])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    run = rank_exactly(["a", "b", "c", "d"], vectors, ["a"], vectors[:1])
    values = metrics.evaluate_run(run, {"a": {"c": 2, "d": 1, "e": 1}})
    gain = 2 / math.log2(3) + 1 / math.log2(4)
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert values["nDCG@10"] == pytest.approx(gain / ideal)
    assert values["MAP@100"] == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert values["recall@10"] == pytest.approx(2 / 3)
    assert values["recall@100"] == pytest.approx(2 / 3)


def test_queries_without_judgement_do_not_count() -> None:
    vectors = unit_vectors(20, seed=0)
    ids = [f"d{n}" for n in range(20)]
    both = rank_exactly(ids, vectors, ["d0", "d7"], vectors[[0, 7]])
    alone = rank_exactly(ids, vectors, ["d0"], vectors[[0]])
    qrels = {"d0": {"d1": 1}}
    assert len(alone["d0"]) == 19  # fewer than the depth
    assert metrics.evaluate_run(both, qrels) == metrics.evaluate_run(alone, qrels)
    with pytest.raises(CorpusError, match="no query has a judgement"):
        metrics.evaluate_run(both, {"x": {"y": 1}})


LABELS = np.array([False, False, True, False, True, True])
SCORES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=np.float32)


def test_pair_measures_by_hand() -> None:
    values = metrics.measure_pairs(SCORES, LABELS, 0.35)
    assert values == pytest.approx(
        {"accuracy": 4 / 6, "precision": 2 / 3, "recall": 2 / 3, "F1": 2 / 3, "AUC": 8 / 9}
    )
    at_threshold = metrics.measure_pairs(np.array([0.5], dtype=np.float32), np.array([True]), 0.5)
    assert at_threshold["accuracy"] == 1.0
    nothing = metrics.measure_pairs(SCORES, np.ones(6, dtype=np.bool_), 0.9)  # found, and one label
    assert nothing == {"accuracy": 0.0, "precision": 0.0, "recall": 0.0, "F1": 0.0}
    few = metrics.estimate_pairs_of_seeds([(SCORES[:2], 0.15)], np.array([False, True]))["AUC"]
    assert (few.value, few.low, few.high) == (1.0, 1.0, 1.0)  # resamples may have one label
    tied = metrics.estimate_pairs_of_seeds([(np.full_like(SCORES, 0.5), 0.5)], LABELS)["AUC"]
    assert (tied.value, tied.low, tied.high) == (0.5, 0.5, 0.5)


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=40))
def test_no_other_threshold_is_more_accurate(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([score / 8 for score, _ in pairs], dtype=np.float32)
    labels = np.array([label for _, label in pairs])

    def accuracy(threshold: float) -> float:
        return float(((scores >= threshold) == labels).mean())

    best = max(accuracy(threshold) for threshold in (np.arange(-1, 10) / 8 + 1 / 16).tolist())
    assert accuracy(metrics.choose_threshold(scores, labels)) == best


def test_the_threshold_lies_between_scores() -> None:
    assert metrics.choose_threshold(
        np.array([0.2, 0.4], dtype=np.float32), np.array([0, 1]) == 1
    ) == (pytest.approx(0.3))


def test_intervals_lie_around_the_measured_values() -> None:
    chance = np.random.default_rng(1)
    labels = chance.random(500) < 0.5
    scores = np.round(labels + chance.standard_normal(500), 1).astype(np.float32)  # with ties
    values = metrics.measure_pairs(scores, labels, 0.5)
    estimates = metrics.estimate_pairs_of_seeds([(scores, 0.5)], labels)
    assert {name: estimate.value for name, estimate in estimates.items()} == values
    for estimate in estimates.values():
        assert 0.02 < estimate.value - estimate.low < 0.08
        assert 0.02 < estimate.high - estimate.value < 0.08


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
