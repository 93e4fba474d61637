"""Fitting maps: the truth is found again, and what cannot be fitted is named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from encoder.calibration import FittedOn, match_probabilities
from evaluation.fitting import calibration
from index.errors import CorpusError
from index.search.corpus_calibration import NullDistribution

TABLE = NullDistribution(100, 4950, (-1.0, 0.0, 0.5, 1.0), (1.0, 0.5, 0.001, 1e-5))


def sample(count: int = 4_000, *, slope: float = 3.0, seed: int = 0) -> calibration.Sample:
    """Draw labels whose probability is logistic in the input."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=count)
    labels = (random.random(count) < 1 / (1 + np.exp(1 - slope * inputs))).astype(np.int64)
    return calibration.Sample(inputs, labels, np.ones(count), random.permutation(count) % 5)


def pairs(name: str = "papers", **changed: Any) -> calibration.ScoredPairs:
    drawn = sample(400, seed=len(name))
    on, scores, queries = FittedOn(name, 400, 200, "0"), np.tanh(drawn.inputs), np.arange(400) // 4
    return replace(calibration.ScoredPairs(on, scores, drawn.labels, queries, TABLE), **changed)


def of_tail(number: int, strength: float) -> calibration.ScoredPairs:
    """Return pairs of a corpus of a tail: labels are logistic in the standard score."""
    tail, random = 0.5 / 2**number, np.random.default_rng(number)
    standard = random.normal(size=4_000)
    chance = 1 / (1 + np.exp(-(4.0 + strength * np.log(tail)) * standard))
    scores = np.sinh(standard) * tail / 10
    table = replace(TABLE, scores=(-1.0, 0.0, tail, 1.0))
    labels = (random.random(4_000) < chance).astype(np.int64)
    return pairs(f"c{number}", scores=scores, labels=labels, queries=labels, random_pairs=table)


def test_weights_count_as_pairs() -> None:
    drawn = sample(300)
    twice = np.repeat(np.arange(300), np.where(drawn.labels == 1, 2, 1))
    names = ("inputs", "labels", "weights", "folds")
    doubled = calibration.Sample(*(getattr(drawn, name)[twice] for name in names))
    weighted = replace(drawn, weights=np.where(drawn.labels == 1, 2.0, 1.0))
    points = np.linspace(-1, 1, 9)
    maps = map(calibration.fit_platt, (weighted, doubled))
    first, second = (match_probabilities(each, points) for each in maps)
    assert first == pytest.approx(second, abs=0.02)


def test_separable_pairs_stay_finite() -> None:
    inputs = np.linspace(-1, 1, 100)
    separable = calibration.Sample(
        inputs, (inputs > 0).astype(np.int64), np.ones(100), np.arange(100) % 5
    )
    found = match_probabilities(calibration.fit_map(separable).map, np.array([-9.0, 9.0]))
    assert found.tolist() == pytest.approx([0, 1], abs=0.03)


def test_a_corpus_is_left_out_whole() -> None:
    """Two corpora of other levels and spreads: their standard scores agree."""
    whole = pairs()
    table = replace(TABLE, scores=(0.6, 0.8, 0.9, 1.0))
    shifted = pairs("laws", scores=pairs("laws").scores * 0.2 + 0.8, random_pairs=table)
    fitted = calibration.fit_kind([whole, shifted])
    misled = calibration.fit_kind([whole, replace(shifted, random_pairs=TABLE)])
    assert fitted.error.equal_mass < 0.1 < 0.2 < misled.error.equal_mass
    assert fitted.error.log_loss < misled.error.log_loss
    assert fitted.by_corpus.keys() == {"papers", "laws"}
    assert max(fitted.by_corpus.values()) < 0.1 < max(misled.by_corpus.values())
    assert fitted.fitted_on == (whole.fitted_on, shifted.fitted_on)
    assert fitted.map.slope_by_tail == fitted.map.intercept_by_tail == 0  # of two tails


def test_the_map_depends_on_the_tail() -> None:
    corpora = [of_tail(number, 0.8) for number in range(6)]
    fitted = calibration.fit_kind(corpora)
    assert fitted.map.slope == pytest.approx(4.0, abs=0.3)
    assert fitted.map.slope_by_tail == pytest.approx(0.8, abs=0.15)
    assert (fitted.map.shortest, fitted.map.longest) == pytest.approx(np.log([0.5 / 32, 0.5]))
    inner = [fitted.by_corpus[f"c{number}"] for number in range(1, 5)]
    assert max(inner) < 0.05  # a tail beyond those of the fit counts as the nearest
    with pytest.raises(CorpusError, match="a single corpus"):
        calibration.fit_kind(corpora[:1])


def test_half_of_the_pairs_match() -> None:
    """Relevant documents in either direction, and as many that are not known to be relevant."""
    ids = [f"d{number}" for number in range(40)]
    judged = {"d0": {"d1": 1, "d2": 2, "d3": 0, "gone": 1}, "d5": {"d0": 1}}
    judged |= {"d9": {f"d{number}": 1 for number in range(10, 20)}, "d20": {"d20": 1}}
    found, labels = calibration.draw_pairs(judged, ["d0", "d9", "d20"], ids)
    assert labels.sum() == len(labels) / 2 == 8
    matches = {tuple(pair) for pair in found[labels == 1].tolist()}
    assert {(0, 1), (0, 2), (0, 5)} < matches
    assert {row for query, row in matches if query == 9} < set(range(10, 20))
    others = found[labels == 0]
    assert not matches & {tuple(pair) for pair in others.tolist()}
    assert (others[:, 0] != others[:, 1]).all()
    assert len(np.unique(found, axis=0)) == len(found)
    assert np.array_equal(found, calibration.draw_pairs(judged, ["d0", "d9", "d20"], ids)[0])


def test_corpora_count_alike() -> None:
    """Ten times the pairs of one corpus change nothing, unless they are all called one corpus."""
    first, other = pairs(), pairs()
    other = replace(other, scores=other.scores * 0.5 - 0.3)
    many = replace(first, scores=np.tile(first.scores, 10), labels=np.tile(first.labels, 10))
    together = replace(
        first,
        scores=np.concatenate([many.scores, other.scores]),
        labels=np.concatenate([many.labels, other.labels]),
    )
    points = np.linspace(-3, 3, 5)
    alike, weighted, pooled = (
        match_probabilities(calibration.fit_by_tail(corpora).of_corpus(0.5), points)
        for corpora in ([first, other], [many, other], [together])
    )
    assert weighted == pytest.approx(alike, abs=0.02)
    assert np.abs(pooled - alike).max() > 0.1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scores": np.full(400, np.nan)}, "papers: a score is not a finite number"),
        ({"labels": np.ones(400, dtype=np.int64)}, "400 pairs with label 1 and 0 with label 0"),
        ({"scores": np.linspace(1, -1, 400), "labels": np.arange(400) // 200}, "do not score"),
    ],
)
def test_what_cannot_be_fitted_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CorpusError, match=said):
        calibration.fit_kind([pairs(**changed)] * 2)


def test_the_error_by_hand() -> None:
    stated, labels = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1])
    numbers = calibration.equal_width_bins(stated, 2)
    error = calibration.expected_calibration_error
    assert error(stated, labels, np.ones(4), numbers) == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)
    weights = np.array([1.0, 3.0, 2.0, 2.0])
    assert error(stated, labels, weights, numbers) == pytest.approx(0.5 * 0.65 + 0.5 * 0.1)


def test_bins_of_equal_mass_keep_ties_together() -> None:
    stated = np.random.default_rng(0).random(1_000) ** 3
    assert set(np.bincount(calibration.equal_mass_bins(stated, np.ones(1_000), 10)).tolist()) == {
        100
    }
    tied = calibration.equal_mass_bins(np.array([0.2] * 7 + [0.8] * 3), np.ones(10), 5)
    assert len(set(tied[:7].tolist())) == len(set(tied[7:].tolist())) == 1
    assert calibration.equal_width_bins(np.array([0.0, 0.05, 1.0]), 10).tolist() == [0, 0, 9]


def test_a_perfect_one_shows_the_error_of_chance() -> None:
    random = np.random.default_rng(0)
    few, many = random.random(200), random.random(20_000)
    found = {}
    for stated in (few, many):
        weights = np.ones(len(stated))
        numbers = calibration.equal_mass_bins(stated, weights)
        perfect = calibration.errors_of_perfect(stated, weights, numbers)
        labels = (random.random(len(stated)) < stated).astype(np.int64)
        error = calibration.expected_calibration_error(stated, labels, weights, numbers)
        assert error < 1.5 * np.quantile(perfect, 0.95)
        found[len(stated)] = perfect.mean()
    assert found[200] == pytest.approx(10 * found[20_000], rel=0.15)
