"""How the scores of a data directory are made and calibrated: rule, probability, rate of chance.

A probability comes from a score and what random pairs of the collection score. A collection that
was not measured has none, and says why.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np

from encoder.calibration import (
    Calibration,
    FittedMap,
    match_probabilities,
    read_calibration,
    standard_scores,
)
from encoder.checkpoint import Checkpoint, vector_space
from encoder.comparison.result import PairScore
from index.directory.data_directory import DataDirectory
from index.errors import StoreError
from index.progress import Progress, SilentProgress
from index.search.corpus_calibration import (
    MIN_DOCUMENTS,
    CorpusCalibration,
    NullDistribution,
    false_positive_rates,
    is_outdated,
    measure_store,
)
from index.search.records import Bounds, Mode
from index.search.score import CorpusFusion, LinearFusion, read_fusion, still_valid

# Why a data directory has no measurement that holds.
TOO_FEW = f"fewer than {MIN_DOCUMENTS} documents"
_BY_ITSELF = "longmatch index and a server measure it"
UNMEASURED = f"not measured yet: {_BY_ITSELF}"
DAMAGED = f"measurement damaged or of another checkpoint: {_BY_ITSELF} again"
OTHER_RULE = f"measured with another rule: {_BY_ITSELF} again"
NO_MAP = "the encoder has no calibration of such scores"
# By chance so many documents score as high as one that does not match: as many as an answer has by
# default. The least sum of both kinds of error on nine corpora, docs/results/calibration.md.
CHANCE_DOCUMENTS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CalibratedScore:
    """The calibrated measures of a score; None if there is no calibration for it.

    Attributes:
        probability: that the two documents match.
        false_positive_rate: share of random pairs of the collection that score as high.
        relevant: whether that share of its documents is at most `CHANCE_DOCUMENTS`; of those that
            were measured.
    """

    probability: float | None = None
    false_positive_rate: float | None = None
    relevant: bool | None = None


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the scores of a data directory are combined and calibrated.

    Attributes:
        rule: how they are combined.
        checkpoint: calibration of the checkpoint, if it has one.
        corpus: calibration of the data directory, if it was measured.
        version: of everything that a probability depends on: all versions, joined by `+`.
        of_feedback: maps from scores of the data directory, fitted to its feedback, by kind; they
            count instead of those of the checkpoint.
        unmeasured: why the data directory was not measured; None if it was.
    """

    rule: LinearFusion
    checkpoint: Calibration | None = None
    corpus: CorpusCalibration | None = None
    version: str | None = None
    of_feedback: Mapping[str, FittedMap] = field(default_factory=dict)
    unmeasured: str | None = None

    def null_distribution(self, kind: str) -> NullDistribution | None:
        """Return how random pairs of the corpus score; None if that was not measured."""
        return None if self.corpus is None else self.corpus.kinds.get(kind)

    def probability_map(self, kind: str) -> FittedMap | None:
        """Return the map for a kind of score: from scores if of feedback, else standard scores."""
        if kind in self.of_feedback:
            return self.of_feedback[kind]
        found = None if self.checkpoint is None else self.checkpoint.kinds.get(kind)
        random_pairs = self.null_distribution(kind)
        if found is None or random_pairs is None:
            return None
        return FittedMap(found.map.of_corpus(random_pairs.tail), found.error)


def open_scoring(checkpoint: Checkpoint, data: Path, documents: int | None = None) -> Scoring:
    """Read the rule and both calibrations, of which only what was made with the rule holds.

    A measurement that is damaged or of other vectors is left alone, with a warning: the next
    replaces it. The number of documents, where it is known, says why there is none.
    """
    of_checkpoint = read_calibration(checkpoint)
    fingerprint = vector_space(checkpoint).fingerprint
    few = documents is not None and documents < MIN_DOCUMENTS
    unmeasured, of_corpus = UNMEASURED, None
    try:
        of_corpus = CorpusCalibration.read(data, fingerprint)
    except StoreError as error:
        _log.warning("%s", error)
        unmeasured = DAMAGED
    tuned = CorpusFusion.read(data, fingerprint)
    standard = read_fusion(checkpoint)
    rule = resolved = standard.resolve(None if of_corpus is None else of_corpus.spreads)
    of_feedback: Mapping[str, FittedMap] = {}
    if tuned is not None:
        rule, of_feedback = tuned.rule, tuned.probabilities
        if of_checkpoint is not None:
            of_checkpoint = still_valid(of_checkpoint, resolved, rule)
    if of_corpus is not None and of_corpus.rule != rule:
        unmeasured, of_corpus = OTHER_RULE, None
    parts = (of_checkpoint, of_corpus, tuned if of_feedback else None)
    version = "+".join(part.version for part in parts if part is not None) or None
    return Scoring(
        rule,
        of_checkpoint,
        of_corpus,
        version,
        of_feedback,
        None if of_corpus is not None else TOO_FEW if few else unmeasured,
    )


class LiveScoring:
    """How the scores of an open data directory are combined and calibrated, as last measured.

    Attributes:
        present: replaced as a whole; a search uses what it finds.
    """

    def __init__(self, checkpoint: Checkpoint, directory: DataDirectory) -> None:
        """Read the files of a data directory; see `open_scoring`."""
        self._checkpoint, self._directory = checkpoint, directory
        self.present = self._open()

    def _open(self) -> Scoring:
        path, documents = self._directory.path, len(self._directory.store)
        return open_scoring(self._checkpoint, path, documents)

    def measure(self, progress: Progress | None = None) -> bool:
        """Measure the documents if they were not measured or have changed since; write the file.

        Returns:
            Whether anything was measured.
        """
        store, path = self._directory.store, self._directory.path
        known = self.present.corpus
        if not is_outdated(known, len(store), store.alignment.space_number):
            return False
        tuned = CorpusFusion.read(path, vector_space(self._checkpoint).fingerprint)
        rule = read_fusion(self._checkpoint) if tuned is None else tuned.rule
        measure_store(store, rule, progress or SilentProgress()).write(path)
        self.present = self._open()
        return True


def calibrate_scores(
    scoring: Scoring, mode: Mode, scores: Sequence[float]
) -> list[CalibratedScore]:
    """Calibrate each score of a mode; both measures are monotone in the score."""
    inputs = np.array(scores, dtype=np.float64)
    distribution, fitted = scoring.null_distribution(mode), scoring.probability_map(mode)
    rates: list[float] | None = None
    highest = 0.0
    if distribution is not None:
        rates = false_positive_rates(distribution, inputs).tolist()
        highest = CHANCE_DOCUMENTS / distribution.documents
        if mode not in scoring.of_feedback:
            inputs = standard_scores(inputs, distribution.median, distribution.tail)
    probabilities = None if fitted is None else match_probabilities(fitted.map, inputs).tolist()
    return [
        CalibratedScore(
            None if probabilities is None else probabilities[number],
            None if rates is None else rates[number],
            None if rates is None else rates[number] <= highest,
        )
        for number in range(len(scores))
    ]


def why_no_probability(scoring: Scoring, mode: Mode) -> str | None:
    """Return why scores of a mode have no probability; None where they have."""
    if scoring.probability_map(mode) is not None:
        return None
    return scoring.unmeasured or NO_MAP


def within(bounds: Bounds, score: float, calibrated: CalibratedScore | PairScore) -> bool:
    """Return whether a score is inside the bounds; an unknown measure is outside."""
    least, most = bounds.min_probability, bounds.max_false_positive_rate
    probability, rate = calibrated.probability, calibrated.false_positive_rate
    return (
        (bounds.min_score is None or score >= bounds.min_score)
        and (least is None or (probability is not None and probability >= least))
        and (most is None or (rate is not None and rate <= most))
    )


def served_kinds(
    scoring: Scoring,
) -> Mapping[str, tuple[FittedMap | None, NullDistribution | None]]:
    """Return the map and the distribution of the kind of score of each mode."""
    return {
        kind: (scoring.probability_map(kind), scoring.null_distribution(kind))
        for kind in sorted(get_args(Mode))
    }
