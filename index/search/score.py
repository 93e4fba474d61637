"""One rule: the scores of words, alignment and vectors, standardised and weighted.

    semantic_score = (1 - alignment_weight) * vector_score + alignment_weight * alignment_score
    hybrid_score   = (1 - lexical_weight) * semantic_score + lexical_weight * lexical_score

The weights of a collection follow from those of the checkpoint, which are over standardised
channels: each channel is divided by its spread over random pairs of the collection, documents that
have nothing to do with each other, so that a weight means the same on every corpus and for every
encoder. Means do not change an order, and the weights sum to 1: a document scores 1 with itself.

The alignment has one weight in semantic mode and another in hybrid mode. Documents that were not
aligned get the alignment score to expect of their vector score, a line fitted to the pairs of a
first stage. Unlike rank fusion or scores standardised within an answer, the score of a pair
depends on the two documents and the spreads of the collection alone, so it can be calibrated.

`fusion.json` in a checkpoint holds the weights for its vectors, and the spreads of general
corpora, which serve collections too small to be measured. `fusion.json` in a data directory, which
`longmatch tune` fits to the feedback of a corpus, is optional and counts instead.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat

from encoder.arrays import Float32, Int64
from encoder.atomic_files import write_atomically
from encoder.calibration import (
    HYBRID,
    SEMANTIC,
    Calibration,
    FittedMap,
    read_calibration,
    write_calibration,
)
from encoder.checkpoint import FUSION, Checkpoint, read_verified, write_manifest
from encoder.errors import CheckpointError
from encoder.fitted import parse
from index.directory.data_directory import FUSION_FILE
from index.engine.port import BLOCKS, VECTOR, WORDS, Candidates
from index.search.fitted import Fitted
from index.search.records import AlignmentReceipt, Mode

FORMAT = 3
Share = Annotated[FiniteFloat, Field(ge=0, le=1)]  # checked where a file is read
NotNegative = Annotated[FiniteFloat, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class LinearFusion:
    """The weights of the scores, and the alignment score to expect of a vector score.

    Attributes:
        lexical_weight: in hybrid mode, from 0 to 1; the semantic score has the rest.
        hybrid_alignment_weight: in the semantic score of hybrid mode, from 0 to 1; the vector
            score has the rest.
        semantic_alignment_weight: in that of semantic mode.
        expected_slope: of the line from vector score to alignment score.
        expected_intercept: of that line.
    """

    lexical_weight: Share
    hybrid_alignment_weight: Share = 0.0
    semantic_alignment_weight: Share = 0.0
    expected_slope: NotNegative = 0.0
    expected_intercept: FiniteFloat = 0.0

    def alignment_weight(self, mode: Mode) -> float:
        """Return the weight of the alignment in the semantic score of a mode of search.

        Lexical mode reports the semantic score of semantic mode as well.
        """
        hybrid = mode == "hybrid"
        return self.hybrid_alignment_weight if hybrid else self.semantic_alignment_weight

    def expected_alignment(self, vector: Float32) -> Float32:
        """Return the alignment scores [N] that cosines of document vectors [N] let expect."""
        line = self.expected_slope * vector + self.expected_intercept
        expected: Float32 = np.clip(line, 0.0, 1.0)
        return expected

    @property
    def aligns(self) -> bool:
        """Whether the alignment counts in any mode."""
        return self.semantic_alignment_weight > 0 or self.hybrid_alignment_weight > 0


# How many times smaller or larger than in general the spread of a collection may be: one of equal
# documents, or of documents without words, has none.
_SPREAD_BOUND = 4.0


@dataclass(frozen=True, slots=True)
class Spreads:
    """How far the scores of each channel spread over random pairs of a corpus.

    Attributes:
        vector: standard deviation of the cosine of the document vectors.
        alignment: of the score of the sentence blocks; None where they were not aligned.
        lexical: of that of the words; None where they were not read.
    """

    vector: NotNegative
    alignment: NotNegative | None = None
    lexical: NotNegative | None = None


@dataclass(frozen=True, slots=True)
class ChannelWeights:
    """The weight of each standardised channel in a mode; at least 0, and not all of them 0."""

    lexical: NotNegative
    alignment: NotNegative
    vector: NotNegative

    def __post_init__(self) -> None:
        if not self.lexical + self.alignment + self.vector > 0:
            raise ValueError(f"{self} has no weight above 0")


@dataclass(frozen=True, slots=True)
class StandardRule:
    """The weights of a checkpoint over standardised channels.

    Attributes:
        hybrid: in hybrid mode.
        semantic: in semantic mode, which reads no words.
        spreads: of general corpora, for collections that were not measured.
        expected_slope: of the line from vector score to alignment score.
        expected_intercept: of that line.
    """

    hybrid: ChannelWeights
    semantic: ChannelWeights
    spreads: Spreads
    expected_slope: NotNegative = 0.0
    expected_intercept: FiniteFloat = 0.0

    def resolve(self, measured: Spreads | None = None) -> LinearFusion:
        """Return the rule of a collection of these spreads; without any, of the general ones.

        A channel that was not measured there has its general spread.
        """
        spreads = {
            channel: _bounded_spread(
                getattr(measured, channel, None), getattr(self.spreads, channel) or 1.0
            )
            for channel in ("lexical", "alignment", "vector")
        }
        lexical, alignment, vector = (
            getattr(self.hybrid, channel) / spread for channel, spread in spreads.items()
        )
        semantic = self.semantic.alignment / spreads["alignment"]
        return LinearFusion(
            lexical / (lexical + alignment + vector),
            _share(alignment, vector),
            _share(semantic, self.semantic.vector / spreads["vector"]),
            self.expected_slope,
            self.expected_intercept,
        )


def _bounded_spread(measured: float | None, general: float) -> float:
    found = general if measured is None else measured
    return min(max(found, general / _SPREAD_BOUND), general * _SPREAD_BOUND)


def _share(alignment: float, vector: float) -> float:
    together = alignment + vector
    return alignment / together if together else 0.0


# For the mean of block vectors: its spreads are those of the corpora of docs/results/unseen.md.
DEFAULT_RULE = StandardRule(
    hybrid=ChannelWeights(1.0, 0.4, 0.3),
    semantic=ChannelWeights(0.0, 1.0, 1.5),
    spreads=Spreads(vector=0.142124, alignment=0.011656, lexical=0.016058),
    expected_slope=0.096,
    expected_intercept=-0.027,
)


def apply_rule(
    rule: LinearFusion,
    mode: Mode,
    vector: Float32,
    alignment: Float32 | None = None,
    lexical: Float32 | None = None,
) -> tuple[Float32, Float32]:
    """Return the semantic scores and the scores of documents in a mode of search.

    Args:
        rule: the weights.
        mode: of the search.
        vector: cosines of the document vectors, as all others Float32 of one shape.
        alignment: NaN for documents that were not aligned; None if none was.
        lexical: cosines of the words; None in semantic mode.
    """
    expected = rule.expected_alignment(vector)
    known = expected if alignment is None else np.where(np.isnan(alignment), expected, alignment)
    weight = rule.alignment_weight(mode)
    semantic = ((1.0 - weight) * vector + weight * known).astype(np.float32)
    if lexical is None or mode == "semantic":
        return semantic, semantic
    if mode == "lexical":
        return semantic, lexical
    return semantic, (1.0 - rule.lexical_weight) * semantic + rule.lexical_weight * lexical


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates as a mode ranks them, best first. The query itself may be among them.

    Attributes:
        candidates: with their raw scores.
        scores: Float32[N], which they are ranked by.
        semantic: Float32[N], semantic scores.
        scored_as: the mode whose scores these are.
        receipt: what became of the alignment; None if none was tried.
        parts: of a search by several examples, what each of them gives the same documents, in the
            same order; none in other searches.
    """

    candidates: Candidates
    scores: Float32
    semantic: Float32
    scored_as: Mode
    receipt: AlignmentReceipt | None = None
    parts: tuple["Ranking", ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def vector_ids(self) -> Int64:
        """The documents, Int64[N]."""
        return self.candidates.vector_ids

    def take(self, rows: Int64) -> "Ranking":
        """Return a ranking of these rows Int64[M], in this order."""
        return replace(
            self,
            candidates=self.candidates.take(rows),
            scores=self.scores[rows],
            semantic=self.semantic[rows],
            parts=tuple(part.take(rows) for part in self.parts),
        )

    def sorted(self) -> "Ranking":
        """Return the same documents, best first; of equal scores, lower ids come first."""
        return self.take(np.lexsort((self.vector_ids, -self.scores)))


def score_candidates(rule: LinearFusion, mode: Mode, candidates: Candidates) -> Ranking:
    """Score candidates by the rule, in their order.

    In hybrid mode a text without any indexed, distinctive word is scored by its vector alone.
    """
    scored_as: Mode = "semantic" if mode == "hybrid" and WORDS in candidates.silent else mode
    channels = candidates.scores
    semantic, scores = apply_rule(
        rule, scored_as, channels[VECTOR], channels.get(BLOCKS), channels.get(WORDS)
    )
    if scored_as == "hybrid":
        for channel, weight in candidates.weights.items():
            scores = ((1.0 - weight) * scores + weight * channels[channel]).astype(np.float32)
    return Ranking(candidates, scores, semantic, scored_as)


def with_channel(rule: LinearFusion, ranking: Ranking, channel: str, scores: Float32) -> Ranking:
    """Return the same documents, in the same order, as other scores of a channel score them."""
    changed = ranking.candidates.with_channel(channel, scores)
    return score_candidates(rule, ranking.scored_as, changed)


def read_fusion(checkpoint: Checkpoint) -> StandardRule:
    """Read the rule of a checkpoint; `DEFAULT_RULE` if it has none.

    Raises:
        CheckpointError: the file is damaged, has another format, or was fitted for another
            checkpoint.
    """
    if FUSION not in checkpoint.files:
        return DEFAULT_RULE
    path = checkpoint.directory / FUSION
    data = read_verified(checkpoint.directory, checkpoint.files, FUSION)
    try:
        rule, content = parse(data, StandardRule, FORMAT)
        fingerprint = str(content["fingerprint"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: not a fusion rule: {error}") from error
    if fingerprint != checkpoint.fingerprint:
        raise CheckpointError(
            f"{path}: was fitted for checkpoint {fingerprint[:12]}, not for "
            f"{checkpoint.fingerprint[:12]}: fit it again or delete it"
        )
    return rule


def still_valid(calibration: Calibration, former: LinearFusion, rule: LinearFusion) -> Calibration:
    """Return what holds of a calibration of scores by one rule when another one combines them."""
    changed = changed_kinds(former, rule)
    kept = {kind: maps for kind, maps in calibration.kinds.items() if kind not in changed}
    return Calibration(calibration.fingerprint, kept)


def changed_kinds(former: LinearFusion, rule: LinearFusion) -> tuple[str, ...]:
    """Return the kinds of scores that differ if another rule combines them."""

    def parts(rule: LinearFusion) -> dict[str, tuple[float, ...]]:
        line = rule.expected_slope, rule.expected_intercept
        return {
            SEMANTIC: (rule.semantic_alignment_weight, *line),
            HYBRID: (rule.lexical_weight, rule.hybrid_alignment_weight, *line),
        }

    before, after = parts(former), parts(rule)
    return tuple(kind for kind in before if before[kind] != after[kind])


def write_fusion(checkpoint: Checkpoint, rule: StandardRule) -> None:
    """Write `fusion.json` into a checkpoint and update its manifest.

    A changed rule changes scores, so their calibrations are removed: those of semantic scores
    unless only weights of hybrid mode changed, those of hybrid scores unless only the weight of
    semantic mode did.
    """
    former = read_fusion(checkpoint)
    calibration = None if former == rule else read_calibration(checkpoint)
    if calibration is not None:
        kept = still_valid(calibration, former.resolve(), rule.resolve())
        write_calibration(checkpoint, kept)
    path = checkpoint.directory / FUSION
    content = {"format": FORMAT, "fingerprint": checkpoint.fingerprint, **asdict(rule)}
    write_atomically(path, json.dumps(content, indent=2) + "\n")
    write_manifest(checkpoint.directory)


@dataclass(frozen=True, slots=True)
class CorpusFusion(Fitted):
    """What `longmatch tune` fits to the scores of a data directory.

    Attributes:
        rule: how they are combined.
        report: how it was tested, as JSON; for people.
        probabilities: maps from scores by this rule, by kind of score, if they were fitted; the
            inputs of the maps are scores.
    """

    FILE = FUSION_FILE
    FORMAT = 3
    AGAIN = "tune again"

    rule: LinearFusion
    report: Mapping[str, Any]
    probabilities: Mapping[str, FittedMap] = field(default_factory=dict)
