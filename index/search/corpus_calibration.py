"""How random pairs of documents of one corpus score, and `calibration.json` in a data directory.

Nearly all pairs of a corpus are not matches, so the share of random pairs that reach a score
estimates its false positive rate without any label. The file holds the spread of each channel, by
which the rule standardises it, and such a null distribution for each kind of score. It is
measured at the end of `longmatch index` and by the maintenance of a server, from `MIN_DOCUMENTS`
on, and again when the collection has changed (`is_outdated`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from pydantic import FiniteFloat

from encoder.alignment.scoring import align_pairs
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Float64, Int64
from index.directory.data_directory import CALIBRATION_FILE
from index.errors import CorpusError
from index.lexical.scoring import TermRows, term_cosines
from index.progress import Progress
from index.search.fitted import Fitted
from index.search.records import Mode
from index.search.score import LinearFusion, Spreads, StandardRule, apply_rule
from index.store.document_store import DocumentStore

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
MIN_DOCUMENTS = 100
MAX_DOCUMENTS = 20_000  # more are sampled: their vectors are held in memory
MAX_PAIRS = 200_000  # to align more takes minutes
# A rate is estimated from at least so many pairs above its threshold.
MIN_PAIRS_ABOVE = 20
_PAIRS_A_CALL = 8_192  # their vectors are copied
_SCORE_DECIMALS = 6  # further digits of a cosine are rounding error
_POINTS_A_DECADE = 16  # of the table, for each power of ten of the rate


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that this share of random pairs reaches.

    Attributes:
        false_positive_rate: the share.
        score: the threshold.
    """

    false_positive_rate: float
    score: float


@dataclass(frozen=True, slots=True)
class NullDistribution:
    """How random pairs of a corpus score.

    Attributes:
        documents: number of documents.
        pairs: number of pairs that were scored.
        scores: points of the distribution, ascending.
        rates: share of pairs that reach each of these scores, descending from 1.

    Raises:
        ValueError: the scores do not rise, or the rates do not fall.
    """

    documents: int
    pairs: int
    scores: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        scores, rates = self.scores, self.rates
        if not scores or len(scores) != len(rates):
            raise ValueError(f"{len(scores)} scores for {len(rates)} rates")
        if not all(map(math.isfinite, scores)) or any(b <= a for a, b in pairwise(scores)):
            raise ValueError("the scores do not rise")
        if any(b > a for a, b in pairwise(rates)) or not 0 < rates[-1] <= rates[0] <= 1:
            raise ValueError("the rates do not fall from 1 and stay above 0")

    @property
    def median(self) -> float:
        """The score that half of the pairs reach."""
        return self._score_of(0.5)

    @property
    def tail(self) -> float:
        """The score that one pair in a thousand reaches, less the median."""
        return self._score_of(0.001) - self.median

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds for those of `RATES` that can be estimated from so many pairs."""
        known = [rate for rate in RATES if rate * self.pairs >= MIN_PAIRS_ABOVE]
        return tuple(Threshold(rate, self._score_of(rate)) for rate in known if self.tail > 0)

    def _score_of(self, rate: float) -> float:
        return float(np.interp(-math.log(rate), -np.log(self.rates), self.scores))


def sample_pairs(documents: int, seed: int, most: int = MAX_PAIRS) -> Int64:
    """Sample pairs of different rows: all of them, or `most` if there are more.

    Returns:
        Int64[M, 2].

    Raises:
        CorpusError: there are fewer than `MIN_DOCUMENTS`.
    """
    if documents < MIN_DOCUMENTS:
        raise CorpusError(
            f"{documents} documents are too few to measure how random pairs of them score: "
            f"{MIN_DOCUMENTS} are needed"
        )
    if documents * (documents - 1) // 2 <= most:
        return np.stack(np.triu_indices(documents, 1), axis=1).astype(np.int64)
    random = np.random.default_rng(seed)
    first = random.integers(documents, size=most)
    second = random.integers(documents - 1, size=most)
    return np.stack([first, second + (second >= first)], axis=1)


def pair_scores(vectors: Float32, pairs: Int64) -> Float64:
    """Return the cosine of each pair of rows.

    Args:
        vectors: Float32[N, dimension], unit norm.
        pairs: Int64[M, 2].

    Returns:
        Float64[M], between -1 and 1.

    Raises:
        CorpusError: a score is not finite.
    """
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), _PAIRS_A_CALL):
        first, second = pairs[start : start + _PAIRS_A_CALL].T
        scores[start : start + _PAIRS_A_CALL] = np.einsum(
            "ij,ij->i", vectors[first], vectors[second]
        )
    if not np.isfinite(scores).all():
        raise CorpusError("the score of a pair is not finite: the vectors are damaged")
    rounded: Float64 = np.clip(scores, -1.0, 1.0).round(_SCORE_DECIMALS)
    return rounded


def measure_distribution(scores: Float64, documents: int) -> NullDistribution:
    """Return the distribution of the scores Float64[M] of random pairs of so many documents."""
    falling, count = -np.sort(-scores.round(_SCORE_DECIMALS)), len(scores)
    powers = np.arange(0, math.log10(count) + 1e-9, 1 / _POINTS_A_DECADE)
    body = 1.0 - 10.0**-powers  # the same resolution where nearly all pairs reach the score
    shares = np.concatenate([10.0**-powers, body])
    ranks = np.unique(np.clip(np.ceil(shares * count), 1, count).astype(np.int64))
    points = np.unique(np.append(falling[ranks - 1], falling[-1]))
    reached = np.searchsorted(-falling, -points, side="right")
    return NullDistribution(
        documents=documents,
        pairs=count,
        scores=tuple(points.tolist()),
        rates=tuple((reached / count).tolist()),
    )


def false_positive_rates(distribution: NullDistribution, scores: Float64) -> Float64:
    """Return the share of random pairs that reach each of the scores Float64[N].

    The logarithm of the rate is interpolated linearly between the points of the table; above the
    highest score the rate is the lowest one that the sample could estimate.
    """
    rates = np.interp(scores, np.array(distribution.scores), np.log(distribution.rates))
    return np.exp(rates)


@dataclass(frozen=True, slots=True)
class Channels:
    """What the pairs of N documents are scored by.

    Attributes:
        vectors: Float32[N, dimension], unit norm.
        words: their terms; None to score by vectors alone.
        blocks: their aligned blocks, None for documents without; None to align nothing.
    """

    vectors: Float32
    words: TermRows | None
    blocks: Sequence[AlignedBlocks | None] | None = None


@dataclass(frozen=True, slots=True)
class ChannelScores:
    """The scores of P pairs in each channel, as a search gives them to a stored document.

    Attributes:
        vector: Float32[P], cosines.
        alignment: Float32[P], NaN where a document has no blocks; None where nothing is aligned.
        lexical: Float32[P]; None without words.
    """

    vector: Float32
    alignment: Float32 | None
    lexical: Float32 | None

    def spreads(self) -> Spreads:
        """Return the spreads of random pairs."""
        aligned = None if self.alignment is None else self.alignment[~np.isnan(self.alignment)]
        return Spreads(
            _spread(self.vector),
            None if aligned is None or not len(aligned) else _spread(aligned),
            None if self.lexical is None else _spread(self.lexical),
        )

    def by_mode(self, rule: LinearFusion) -> dict[Mode, Float64]:
        """Return the score Float64[P] of each mode; without words there is only semantic mode."""
        _, semantic = apply_rule(rule, "semantic", self.vector, self.alignment)
        found: dict[Mode, Float64] = {"semantic": semantic.astype(np.float64)}
        if self.lexical is not None:
            _, hybrid = apply_rule(rule, "hybrid", self.vector, self.alignment, self.lexical)
            found["lexical"] = self.lexical.astype(np.float64)
            found["hybrid"] = hybrid.astype(np.float64)
        return found


def _spread(scores: Float32) -> float:
    return round(float(scores.astype(np.float64).std()), _SCORE_DECIMALS)


def score_channels(channels: Channels, pairs: Int64, progress: Progress) -> ChannelScores:
    """Score pairs of rows Int64[P, 2] in each channel."""
    cosines = pair_scores(channels.vectors, pairs).astype(np.float32)
    alignment = lexical = None
    if channels.blocks is not None:
        progress.started("aligning pairs", len(pairs), unit="pairs")
        alignment = align_pairs(channels.blocks, pairs, progress.advanced)
    if channels.words is not None:
        progress.started("scoring pairs by their words", len(pairs), unit="pairs")
        lexical = term_cosines(channels.words, pairs, progress)
    return ChannelScores(cosines, alignment, lexical)


@dataclass(frozen=True, slots=True)
class CorpusCalibration(Fitted):
    """How random pairs of a data directory score.

    Attributes:
        spreads: of the channels.
        near_cosine: of document vectors, that about 1 of 1,000 pairs reach.
        rule: how the scores that were measured are combined.
        kinds: distributions by kind of score.
        space: the number of the alignment space in the store; 0 without one.
    """

    FILE = CALIBRATION_FILE
    FORMAT = 4
    AGAIN = "calibrate again"

    spreads: Spreads
    near_cosine: FiniteFloat
    rule: LinearFusion
    kinds: Mapping[str, NullDistribution]
    space: int = 0

    @property
    def documents(self) -> int:
        """How many were measured."""
        return self.kinds["semantic"].documents


def measure_channels(
    channels: Channels,
    rule: StandardRule | LinearFusion,
    progress: Progress,
    *,
    fingerprint: str = "",
    seed: int = 0,
) -> CorpusCalibration:
    """Measure how random pairs score in each channel, and by the rule that follows in each mode.

    Args:
        channels: of the documents.
        rule: of the checkpoint, which the spreads resolve; or a rule of this corpus.
        progress: advances by pairs.
        fingerprint: of the vectors.
        seed: of the sample of pairs.
    """
    documents = len(channels.vectors)
    pairs = sample_pairs(documents, seed)
    scored = score_channels(channels, pairs, progress)
    spreads = scored.spreads()
    resolved = rule if isinstance(rule, LinearFusion) else rule.resolve(spreads)
    near = round(float(np.quantile(scored.vector, 0.999)), _SCORE_DECIMALS)
    kinds = {
        str(mode): measure_distribution(scores, documents)
        for mode, scores in scored.by_mode(resolved).items()
    }
    return CorpusCalibration(fingerprint, spreads, near, resolved, kinds)


# Share of the documents by which a collection may have grown or shrunk since it was measured.
_OUTDATED = 0.5


def is_outdated(known: CorpusCalibration | None, documents: int, space: int) -> bool:
    """Return whether a collection of so many documents is to be measured, or measured again."""
    if documents < MIN_DOCUMENTS:
        return False
    if known is None or known.space != space:
        return True
    before = min(known.documents, MAX_DOCUMENTS)
    return abs(min(documents, MAX_DOCUMENTS) - before) > _OUTDATED * before


def measure_store(
    store: DocumentStore,
    rule: StandardRule | LinearFusion,
    progress: Progress,
    *,
    seed: int = 0,
) -> CorpusCalibration:
    """Measure how random pairs of the stored documents score in each mode.

    At most `MAX_DOCUMENTS` are sampled: their vectors and terms are held in memory.

    Args:
        store: of at least `MIN_DOCUMENTS`.
        rule: of the checkpoint, which the spreads resolve; or a rule of this corpus.
        progress: advances by documents and pairs.
        seed: of the sample.

    Raises:
        CorpusError: there are fewer documents.
        StoreError: the store cannot be read.
    """
    _, ids = store.log.added_after(0)
    if len(ids) > MAX_DOCUMENTS:
        ids = np.random.default_rng(seed).choice(ids, MAX_DOCUMENTS, replace=False)
    present, vectors = store.compared(ids)
    words = store.words.term_rows(present, progress)
    blocks = store.alignment.read(present.tolist())
    aligned = (
        None if blocks is None else [blocks.blocks.get(vector_id) for vector_id in present.tolist()]
    )
    channels = Channels(vectors, words, aligned)
    found = measure_channels(channels, rule, progress, fingerprint=store.fingerprint, seed=seed)
    return replace(found, space=store.alignment.space_number)
