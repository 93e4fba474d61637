"""Calibrated scores: the match probability and the false positive rate of hits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from encoder.adapter import Adapter, vector_space
from encoder.calibration import (
    ADAPTED,
    Calibration,
    FittedMap,
    log_odds,
    match_probabilities,
    read_calibration,
)
from encoder.checkpoint import Checkpoint
from index.search.corpus_calibration import (
    CorpusCalibration,
    NullDistribution,
    false_positive_rates,
    read_corpus_calibration,
)
from index.search.fusion import read_corpus_fusion, read_fusion, still_valid
from index.search.records import Bounds, Mode


@dataclass(frozen=True, slots=True)
class CalibratedScore:
    """The calibrated measures of a score; None if there is no calibration for it."""

    probability: float | None = None
    false_positive_rate: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreCalibrator:
    """Calibrates the scores of a checkpoint and a data directory.

    Attributes:
        checkpoint: calibration of the checkpoint, if it has one.
        corpus: calibration of the data directory, if it has one.
        version: of everything that a probability depends on: all versions, joined by `+`.
        adapted: whether the vectors were adapted to the corpus: their scores are of other kinds.
        of_feedback: maps from scores of the data directory, fitted to its feedback, by kind; they
            count instead of those of the checkpoint.
    """

    checkpoint: Calibration | None
    corpus: CorpusCalibration | None
    version: str | None
    adapted: bool = False
    of_feedback: Mapping[str, FittedMap] = field(default_factory=dict)

    def null_distribution(self, kind: str) -> NullDistribution | None:
        """Return how random pairs of the corpus score; None if that was not measured."""
        return None if self.corpus is None else self.corpus.kinds.get(kind)

    def probability_map(self, kind: str) -> FittedMap | None:
        """Return the map for a kind of score: from false positive rates if `by_rate`."""
        if kind in self.of_feedback:
            return self.of_feedback[kind]
        maps = None if self.checkpoint is None else self.checkpoint.kinds.get(kind)
        if maps is None:
            return None
        return maps.by_false_positive_rate if self.by_rate(kind) else maps.by_score

    def by_rate(self, kind: str) -> bool:
        """Return whether the input of the map is a false positive rate, as is if it is known."""
        return kind not in self.of_feedback and self.null_distribution(kind) is not None


def score_kind(mode: Mode, *, adapted: bool) -> str:
    """Return the kind of scores of a mode, as calibrations name it."""
    if not adapted or mode == "lexical":
        return mode
    return ADAPTED if mode == "semantic" else f"{ADAPTED} {mode}"


def open_calibrator(
    checkpoint: Checkpoint, data: Path, adapter: Adapter | None = None
) -> ScoreCalibrator:
    """Read both calibrations, of which only what was made with the rule of the directory holds.

    Each is optional.
    """
    of_checkpoint = read_calibration(checkpoint)
    fingerprint = vector_space(checkpoint, adapter).fingerprint
    fitted = read_corpus_fusion(data, fingerprint)
    rule = read_fusion(checkpoint) if fitted is None else fitted.rule
    if of_checkpoint is not None:
        of_checkpoint = still_valid(of_checkpoint, read_fusion(checkpoint), rule)
    of_feedback = {} if fitted is None else fitted.probabilities
    of_corpus = read_corpus_calibration(data, fingerprint, rule)
    parts = (of_checkpoint, of_corpus, fitted if of_feedback else None)
    version = "+".join(part.version for part in parts if part is not None) or None
    return ScoreCalibrator(of_checkpoint, of_corpus, version, adapter is not None, of_feedback)


def calibrate_scores(
    calibrator: ScoreCalibrator, mode: Mode, scores: Sequence[float]
) -> list[CalibratedScore]:
    """Calibrate each score of a mode; both measures are monotone in the score."""
    kind = score_kind(mode, adapted=calibrator.adapted)
    inputs = np.array(scores, dtype=np.float64)
    distribution, fitted = calibrator.null_distribution(kind), calibrator.probability_map(kind)
    rates: list[float] | None = None
    if distribution is not None:
        found = false_positive_rates(distribution, inputs)
        rates = found.tolist()
        inputs = log_odds(found) if calibrator.by_rate(kind) else inputs
    probabilities = None if fitted is None else match_probabilities(fitted.map, inputs).tolist()
    return [
        CalibratedScore(
            None if probabilities is None else probabilities[number],
            None if rates is None else rates[number],
        )
        for number in range(len(scores))
    ]


def within(bounds: Bounds, score: float, calibrated: CalibratedScore) -> bool:
    """Return whether a score is inside the bounds; an unknown measure is outside."""
    probability, rate = calibrated.probability, calibrated.false_positive_rate
    return (
        (bounds.min_score is None or score >= bounds.min_score)
        and (
            bounds.min_probability is None
            or (probability is not None and probability >= bounds.min_probability)
        )
        and (
            bounds.max_false_positive_rate is None
            or (rate is not None and rate <= bounds.max_false_positive_rate)
        )
    )


def served_kinds(
    calibrator: ScoreCalibrator,
) -> Mapping[str, tuple[FittedMap | None, NullDistribution | None]]:
    """Return the map and the distribution of the kind of score of each mode."""
    kinds = sorted(score_kind(mode, adapted=calibrator.adapted) for mode in get_args(Mode))
    return {
        kind: (calibrator.probability_map(kind), calibrator.null_distribution(kind))
        for kind in kinds
    }
