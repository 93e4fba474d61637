import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics import choose_threshold, estimate_pairs_of_seeds, measure_pairs

LABELS = np.array([False, False, True, False, True, True])
SCORES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=np.float32)


def test_measures_by_hand() -> None:
    values = measure_pairs(SCORES, LABELS, 0.35)
    assert values == pytest.approx(
        {"accuracy": 4 / 6, "precision": 2 / 3, "recall": 2 / 3, "F1": 2 / 3, "AUC": 8 / 9}
    )


def test_a_score_at_the_threshold_is_similar() -> None:
    score = np.array([0.5], dtype=np.float32)
    assert measure_pairs(score, np.array([True]), 0.5)["accuracy"] == 1.0


def test_nothing_found_and_one_label() -> None:
    values = measure_pairs(SCORES, np.ones(6, dtype=np.bool_), 0.9)
    assert values == {"accuracy": 0.0, "precision": 0.0, "recall": 0.0, "F1": 0.0}


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=40))
def test_no_other_threshold_is_more_accurate(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([score / 8 for score, _ in pairs], dtype=np.float32)
    labels = np.array([label for _, label in pairs])

    def accuracy(threshold: float) -> float:
        return float(((scores >= threshold) == labels).mean())

    best = max(accuracy(threshold) for threshold in (np.arange(-1, 10) / 8 + 1 / 16).tolist())
    assert accuracy(choose_threshold(scores, labels)) == best


def test_the_threshold_lies_between_scores() -> None:
    assert choose_threshold(np.array([0.2, 0.4], dtype=np.float32), np.array([0, 1]) == 1) == (
        pytest.approx(0.3)
    )


def test_estimates_have_the_measured_values_and_intervals_around_them() -> None:
    chance = np.random.default_rng(1)
    labels = chance.random(500) < 0.5
    scores = np.round(labels + chance.standard_normal(500), 1).astype(np.float32)  # with ties
    values = measure_pairs(scores, labels, 0.5)
    estimates = estimate_pairs_of_seeds([(scores, 0.5)], labels)
    assert {name: one.value for name, one in estimates.items()} == values
    for one in estimates.values():
        assert 0.02 < one.value - one.low < 0.08
        assert 0.02 < one.high - one.value < 0.08


def test_resampled_auc_is_that_of_the_drawn_pairs() -> None:
    from sklearn.metrics import roc_auc_score  # not at the start: each worker collects all tests

    from evaluation.metrics import _auc

    chance = np.random.default_rng(2)
    labels = chance.random(30) < 0.5
    scores = np.round(labels + chance.standard_normal(30), 1).astype(np.float32)
    counts = chance.multinomial(30, np.full(30, 1 / 30), 20).astype(np.float64)
    expected = [roc_auc_score(labels, scores, sample_weight=row) for row in counts]
    assert _auc(counts, scores, labels) == pytest.approx(np.array(expected))


def test_few_pairs_whose_resamples_may_have_one_label() -> None:
    estimate = estimate_pairs_of_seeds([(SCORES[:2], 0.15)], np.array([False, True]))["AUC"]
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0)
