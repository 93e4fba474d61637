"""The fused score of a reranked document, and its calibration.

    score = (1 - weight) * score of the first stage + weight / (1 + exp(-scale * logit))

Weight and scale are fitted on validation queries of several corpora for each kind of first-stage
score. The score of a pair does not depend on other candidates, so that it can be bounded and
calibrated like any other. `rule.json` in the directory of a reranker holds them, with the maps from
score to match probability.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from encoder.atomic_files import write_atomically
from encoder.calibration import FittedMap, FittedOn
from encoder.checkpoint import RULE, read_verified, write_manifest
from encoder.errors import CheckpointError
from encoder.fitted import fields_of, parse, version_of
from encoder.reranker.checkpoint import RerankerCheckpoint

FORMAT = 2


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """The fusion of one kind of first-stage score with the logit of the reranker.

    Attributes:
        weight: of the reranker, from 0 to 1.
        scale: of its logit, above 0.
    """

    weight: float
    scale: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight <= 1.0 or not 0.0 < self.scale < math.inf:
            raise ValueError(f"weight {self.weight} is not from 0 to 1, or scale {self.scale} not")

    def score(self, first_stage: float, logit: float) -> float:
        """Return the score of a reranked document."""
        # tanh does not overflow as exp does
        probability = 0.5 * (1.0 + math.tanh(0.5 * self.scale * logit))
        return (1.0 - self.weight) * first_stage + self.weight * probability


UNFITTED = FusionWeights(weight=0.5, scale=1.0)


@dataclass(frozen=True, slots=True)
class ScoreFusion:
    """The content of `rule.json`.

    Attributes:
        encoder: fingerprint of the vectors of the first-stage scores; "" if nothing was fitted.
        weights: by the kind of first-stage score ("semantic", "lexical", "hybrid").
        maps: from score to match probability, by the same kinds.
        fitted_on: pairs that the maps were fitted on.
    """

    encoder: str = ""
    weights: Mapping[str, FusionWeights] = field(default_factory=dict)
    maps: Mapping[str, FittedMap] = field(default_factory=dict)
    fitted_on: tuple[FittedOn, ...] = ()

    @property
    def version(self) -> str | None:
        """A short digest of the whole content; None if nothing was fitted."""
        if not self.weights and not self.maps:
            return None
        return version_of(fields_of(self, FORMAT))

    def weights_of(self, kind: str) -> FusionWeights:
        """Return the weights of a kind; equal parts where none were fitted."""
        return self.weights.get(kind, UNFITTED)


def write_score_fusion(checkpoint: RerankerCheckpoint, rule: ScoreFusion) -> None:
    """Write `rule.json` into the directory of a reranker, and the manifest with it."""
    about = {"version": rule.version, "reranker": checkpoint.fingerprint}
    content = {**about, **fields_of(rule, FORMAT)}
    write_atomically(checkpoint.directory / RULE, json.dumps(content, indent=2) + "\n")
    write_manifest(checkpoint.directory)


def read_score_fusion(checkpoint: RerankerCheckpoint) -> ScoreFusion:
    """Read the rule of a reranker; an unfitted one where it has none."""
    if RULE not in checkpoint.files:
        return ScoreFusion()
    path = checkpoint.directory / RULE
    data = read_verified(checkpoint.directory, checkpoint.files, RULE)
    try:
        rule, content = parse(data, ScoreFusion, FORMAT)
    except ValueError as error:
        raise CheckpointError(f"{path}: is not the rule of a reranker: {error}") from error
    if content.get("reranker") != checkpoint.fingerprint:
        raise CheckpointError(f"{path}: was fitted for other weights: fit it again or delete it")
    if content.get("version") != rule.version:
        raise CheckpointError(f"{path}: was changed: it is not version {rule.version!r}")
    return rule
