"""Calibration: maps from score to match probability, fitted for a checkpoint.

`calibration.json` in a checkpoint holds, for each mode of search, a map from a score and what
random pairs of the same corpus score. Corpora differ in the level and the spread of their scores,
so a score itself has no probability.

A probability answers: is this pair a match, or two documents drawn at random, if one was as likely
as the other?
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat

from encoder.arrays import Float64
from encoder.atomic_files import write_atomically
from encoder.checkpoint import (
    CALIBRATION,
    DEFAULT_CHECKPOINT,
    SENTENCE_MODEL,
    Checkpoint,
    read_verified,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.fitted import fields_of, parse, version_of

FORMAT = 2
SEMANTIC = "semantic"
HYBRID = "hybrid"
# Whose maps serve another encoder: that of words has no encoder in it, and words are most of the
# hybrid score. That of vectors does not: docs/results/calibration.md.
_OF_ANY_ENCODER = ("lexical", HYBRID)
_STRETCH = 10.0  # of standard scores: by the log loss on corpora that were left out
LEAST_TAIL = 1e-3  # of equal documents, whose scores have no spread


@dataclass(frozen=True, slots=True)
class Logistic:
    """Platt's map: 1 / (1 + exp(-(slope x + intercept))), which rises."""

    slope: Annotated[FiniteFloat, Field(gt=0)]  # checked where a file is read
    intercept: FiniteFloat


@dataclass(frozen=True, slots=True)
class ByTail:
    """A logistic map for each corpus, by the tail of what its random pairs score.

    The tail is their 0.999 quantile less their median. Where it is long, some pairs stand out, and
    the same standard score says more. Both coefficients of the map, of a `standard_scores`, are
    linear in its logarithm.

    Attributes:
        slope: where the logarithm is 0.
        slope_by_tail: what is added to it for each unit of the logarithm.
        intercept: where the logarithm is 0.
        intercept_by_tail: what is added to it for each unit of the logarithm.
        shortest: logarithm of the shortest tail of a corpus of the fit; a shorter one counts as it.
        longest: of the longest.
    """

    slope: FiniteFloat
    slope_by_tail: FiniteFloat
    intercept: FiniteFloat
    intercept_by_tail: FiniteFloat
    shortest: FiniteFloat
    longest: FiniteFloat

    def of_corpus(self, tail: float) -> Logistic:
        """Return the map for the scores of a corpus."""
        known = min(max(math.log(max(tail, LEAST_TAIL)), self.shortest), self.longest)
        return Logistic(
            self.slope + self.slope_by_tail * known,
            self.intercept + self.intercept_by_tail * known,
        )

    @property
    def rises(self) -> bool:
        """Whether a higher score means a higher probability in every corpus."""
        return min(self.of_corpus(tail).slope for tail in (0.0, math.inf)) > 0


def standard_scores(scores: Float64, median: float, tail: float) -> Float64:
    """Return asinh(10 (score - median) / tail) of scores Float64[N].

    It is linear in the score near the median, logarithmic far from it.
    """
    standard: Float64 = np.arcsinh(_STRETCH * (scores - median) / max(tail, LEAST_TAIL))
    return standard


@dataclass(frozen=True, slots=True)
class MapError:
    """Cross-validated errors of a map: on pairs it was not fitted on.

    With several corpora, on corpora it was not fitted on, each of equal weight.

    Attributes:
        log_loss: mean negative logarithm of the probability of the true label.
        equal_mass: expected calibration error over bins of equally many pairs.
        equal_width: the same over bins of equal width.
        equal_mass_of_perfect: what `equal_mass` would be on average if every probability were
            right: with so few pairs it is not 0.
    """

    log_loss: float
    equal_mass: float
    equal_width: float
    equal_mass_of_perfect: float


@dataclass(frozen=True, slots=True)
class FittedMap:
    """A map and its error."""

    map: Logistic
    error: MapError


@dataclass(frozen=True, slots=True)
class FittedOn:
    """Pairs that a calibration was fitted on; `digest` is the SHA-256 of their file, in hex."""

    name: str
    pairs: int
    matches: int
    digest: str


@dataclass(frozen=True, slots=True)
class KindCalibration:
    """The map of one kind of score, fitted to the corpora `fitted_on`.

    `error` is the cross-validated one, and `by_corpus` its `equal_mass` on each left-out corpus.
    """

    map: ByTail
    error: MapError
    by_corpus: Mapping[str, float]
    fitted_on: tuple[FittedOn, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The content of `calibration.json`.

    Attributes:
        fingerprint: of the checkpoint it was fitted for.
        kinds: the maps by kind of score.
    """

    fingerprint: str
    kinds: Mapping[str, KindCalibration]

    @property
    def version(self) -> str:
        """A short digest of the whole content."""
        return version_of(fields_of(self, FORMAT))


def match_probabilities(probability_map: Logistic, inputs: Float64) -> Float64:
    """Return the probability for each of inputs Float64[N]."""
    logits = probability_map.slope * inputs + probability_map.intercept
    # tanh does not overflow as exp does
    half: Float64 = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return half


def write_calibration(checkpoint: Checkpoint, calibration: Calibration) -> None:
    """Write `calibration.json` into a checkpoint, and the manifest with it."""
    path = checkpoint.directory / CALIBRATION
    content = {"version": calibration.version, **fields_of(calibration, FORMAT)}
    write_atomically(path, json.dumps(content, indent=2) + "\n")
    write_manifest(checkpoint.directory)


def read_calibration(checkpoint: Checkpoint) -> Calibration | None:
    """Read the calibration of a checkpoint; None where it has none.

    A sentence model or server, which was not fitted to judgements, has the maps of the default
    checkpoint for the kinds of score that these hold for.

    Raises:
        CheckpointError: it is damaged, of another format, or was fitted for other weights.
    """
    if checkpoint.architecture == SENTENCE_MODEL:
        path = DEFAULT_CHECKPOINT / CALIBRATION
        kinds = parse_calibration(path.read_bytes(), path).kinds
        return Calibration(checkpoint.fingerprint, {k: kinds[k] for k in _OF_ANY_ENCODER})
    if CALIBRATION not in checkpoint.files:
        return None
    path = checkpoint.directory / CALIBRATION
    calibration = parse_calibration(
        read_verified(checkpoint.directory, checkpoint.files, CALIBRATION), path
    )
    if calibration.fingerprint != checkpoint.fingerprint:
        raise CheckpointError(
            f"{path}: was fitted for checkpoint {calibration.fingerprint[:12]}, not for "
            f"{checkpoint.fingerprint[:12]}: fit it again or delete it"
        )
    return calibration


def parse_calibration(data: bytes, path: Path) -> Calibration:
    """Parse the content of a `calibration.json`; `path` is for messages."""
    try:
        calibration, content = parse(data, Calibration, FORMAT)
        for fitted in calibration.kinds.values():
            if not fitted.map.rises or fitted.map.shortest > fitted.map.longest:
                raise ValueError(f"the map {fitted.map} does not rise with the score")
    except ValueError as error:
        raise CheckpointError(f"{path}: not a calibration: {error}") from error
    if content.get("version") != calibration.version:
        raise CheckpointError(f"{path}: was changed: it is not version {calibration.version!r}")
    return calibration
