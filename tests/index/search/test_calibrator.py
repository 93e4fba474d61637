"""Calibrated scores, from the calibrations of a checkpoint and of a corpus."""

import numpy as np
import pytest

from index.search.calibrator import CalibratedScore, calibrate_scores, served_kinds, within
from index.search.records import Bounds
from tests.tools.calibrations import BY_RATE, BY_SCORE, MAPS, NOTHING, ONLY_RATE, TABLE


def test_nothing_is_known_without_calibrations() -> None:
    (score,) = calibrate_scores(NOTHING, "semantic", [0.5])
    assert (score.probability, score.false_positive_rate) == (None, None)
    assert calibrate_scores(BY_RATE, "semantic", []) == []


def test_a_score_alone_by_the_map_of_scores() -> None:
    (score,) = calibrate_scores(BY_SCORE, "semantic", [0.5])
    assert score.probability == pytest.approx(0.5)
    assert score.false_positive_rate is None


def test_a_measured_corpus_by_the_map_of_rates() -> None:
    low, high = calibrate_scores(BY_RATE, "semantic", [0.0, 1.0])
    assert low.false_positive_rate == pytest.approx(0.5)
    assert low.probability == pytest.approx(1 / (1 + np.exp(4)))
    assert high.false_positive_rate == pytest.approx(0.001)
    assert high.probability == pytest.approx(1 / (1 + np.exp(4 - np.log(999))))


def test_a_measured_corpus_without_maps_has_rates_only() -> None:
    (score,) = calibrate_scores(ONLY_RATE, "semantic", [0.0])
    assert score.probability is None
    assert score.false_positive_rate == pytest.approx(0.5)


def test_a_calibration_is_of_one_kind_of_score() -> None:
    (score,) = calibrate_scores(BY_RATE, "lexical", [0.5])
    assert (score.probability, score.false_positive_rate) == (None, None)
    nothing, known = (None, None), (MAPS.by_false_positive_rate, TABLE)
    assert served_kinds(NOTHING) == dict.fromkeys(("semantic", "lexical", "hybrid"), nothing)
    assert served_kinds(BY_RATE) == {"semantic": known, "lexical": nothing, "hybrid": known}


@pytest.mark.parametrize(
    ("bounds", "inside"),
    [
        (Bounds(), True),
        (Bounds(0.5, 0.8, 0.01), True),
        (Bounds(min_score=0.51), False),
        (Bounds(min_probability=0.81), False),
        (Bounds(max_false_positive_rate=0.009), False),
    ],
)
def test_bounds_are_inclusive_and_each_holds(bounds: Bounds, inside: bool) -> None:
    assert within(bounds, 0.5, CalibratedScore(0.8, 0.01)) == inside


def test_an_unknown_measure_is_outside_of_its_bound() -> None:
    assert within(Bounds(min_score=0.5), 0.5, CalibratedScore())
    assert not within(Bounds(min_probability=0.0), 0.5, CalibratedScore())
    assert not within(Bounds(max_false_positive_rate=1.0), 0.5, CalibratedScore())
