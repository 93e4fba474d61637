"""Probabilities that are fitted to the verdicts of users."""

import numpy as np
import pytest

from encoder.arrays import Float64, Int64
from encoder.calibration import match_probabilities
from evaluation.fitting.feedback_calibration import fit_verdicts

QUERIES = 50


def verdicts(relevant: int, others: int, seed: int = 0) -> tuple[Float64, Int64, Int64]:
    """Pairs whose scores have a known probability: 1 / (1 + exp(-2 score)), half of each kind."""
    draw = np.random.default_rng(seed)
    scores = np.concatenate([draw.normal(1, 1, relevant), draw.normal(-1, 1, others)])
    labels = np.repeat([1, 0], [relevant, others])
    return scores, labels, draw.integers(QUERIES, size=len(labels))


@pytest.mark.parametrize("others", [1_000, 10_000])
def test_probabilities_do_not_depend_on_how_many_verdicts_of_a_kind_there_are(others: int) -> None:
    found = fit_verdicts(*verdicts(1_000, others))
    assert found.fitted is not None
    assert (found.relevant, found.not_relevant, found.queries) == (1_000, others, QUERIES)
    points = np.array([-1.0, 0.0, 1.0])
    expected = 1 / (1 + np.exp(-2 * points))
    assert match_probabilities(found.fitted.map, points) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("relevant", "others"), [(19, 500), (500, 19), (0, 0)])
def test_few_verdicts_of_a_kind_give_none(relevant: int, others: int) -> None:
    found = fit_verdicts(*verdicts(relevant, others))
    assert (found.fitted, found.refused) == (None, "it takes 20 of each")


def test_scores_that_say_nothing_give_none() -> None:
    scores, labels, queries = verdicts(300, 300)
    found = fit_verdicts(np.random.default_rng(1).permutation(scores), labels, queries)
    assert found.fitted is None
    assert found.refused is not None


def test_verdicts_of_one_query_give_none() -> None:
    scores, labels, _ = verdicts(100, 100)
    found = fit_verdicts(scores, labels, np.where(labels == 1, 0, np.arange(200)))
    assert (found.fitted, found.refused) == (None, "nearly all verdicts of a kind are of one query")
