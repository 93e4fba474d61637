"""Calibrations of made-up numbers, and what a service knows with some of them."""

from encoder.calibration import (
    Calibration,
    FittedMap,
    FittedOn,
    KindCalibration,
    Logistic,
    MapError,
)
from index.search.calibrator import ScoreCalibrator
from index.search.corpus_calibration import CorpusCalibration
from index.search.fusion import DEFAULT_RULE
from index.search.score_distribution import NullDistribution, Threshold

ERRORS = {"platt": MapError(0.4, 0.02, 0.03, 0.01)}
MAPS = KindCalibration(
    by_score=FittedMap(Logistic(4.0, -2.0), ERRORS),
    by_false_positive_rate=FittedMap(Logistic(1.0, -4.0), ERRORS),
    fitted_on=(FittedOn("papers/pairs.valid.jsonl", 100, 50, "d" * 64),),
)
TABLE = NullDistribution(
    400, 79_800, 0, (-1.0, 0.0, 1.0), (1.0, 0.5, 0.001), (Threshold(0.01, 0.63, 0.6, 0.65),)
)


def of_checkpoint(fingerprint: str = "f") -> Calibration:
    return Calibration(fingerprint, {"semantic": MAPS, "hybrid": MAPS})


def of_corpus(fingerprint: str = "f") -> CorpusCalibration:
    return CorpusCalibration(fingerprint, {"semantic": TABLE, "hybrid": TABLE}, DEFAULT_RULE)


NOTHING = ScoreCalibrator(None, None, None)
BY_SCORE = ScoreCalibrator(of_checkpoint(), None, "1")
BY_RATE = ScoreCalibrator(of_checkpoint(), of_corpus(), "1+2")
ONLY_RATE = ScoreCalibrator(None, of_corpus(), "2")
