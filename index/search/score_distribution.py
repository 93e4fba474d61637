"""The null distribution of scores: how random pairs of documents of one corpus score.

Nearly all pairs of a corpus are not matches, so the share of random pairs that reach a score
estimates its false positive rate without any label.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.alignment.scoring import align_pairs
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Float64, Int64
from index.errors import CorpusError
from index.lexical.scoring import TermRows, term_cosines
from index.progress import Progress
from index.search.fusion import LinearFusion, fuse, semantic_scores
from index.search.records import Mode

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
MIN_DOCUMENTS = 100
MAX_DOCUMENTS = 20_000  # more are sampled: their vectors are held in memory
MAX_PAIRS = 1_000_000
# A rate is estimated from at least so many pairs above its threshold.
MIN_PAIRS_ABOVE = 20
_REPLICATES = 200
_PAIRS_A_CALL = 8_192  # their vectors are copied
_SCORE_DECIMALS = 6  # further digits of a cosine are rounding error
_POINTS_A_DECADE = 16  # of the table, for each power of ten of the rate


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that this share of random pairs reaches.

    Attributes:
        false_positive_rate: the share.
        score: the threshold.
        low: lower end of the 95 % bootstrap interval of the threshold, over documents.
        high: upper end of this interval.
    """

    false_positive_rate: float
    score: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NullDistribution:
    """How random pairs of a corpus score.

    Attributes:
        documents: number of documents.
        pairs: number of pairs that were scored.
        seed: of the sample of pairs.
        scores: points of the distribution, ascending.
        rates: share of pairs that reach each of these scores, descending from 1.
        thresholds: for those of `RATES` that can be estimated from so many pairs.
    """

    documents: int
    pairs: int
    seed: int
    scores: tuple[float, ...]
    rates: tuple[float, ...]
    thresholds: tuple[Threshold, ...]


def sample_pairs(documents: int, seed: int) -> Int64:
    """Sample pairs of different rows: all of them, or `MAX_PAIRS` if there are more.

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
    if documents * (documents - 1) // 2 <= MAX_PAIRS:
        return np.stack(np.triu_indices(documents, 1), axis=1).astype(np.int64)
    random = np.random.default_rng(seed)
    first = random.integers(documents, size=MAX_PAIRS)
    second = random.integers(documents - 1, size=MAX_PAIRS)
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


def measure_distribution(
    pairs: Int64, scores: Float64, documents: int, *, seed: int = 0
) -> NullDistribution:
    """Return the distribution of the scores of pairs.

    Args:
        pairs: Int64[M, 2], as `sample_pairs` returns them.
        scores: Float64[M], of each pair.
        documents: number of documents of the corpus.
        seed: of the sample of pairs and of the bootstrap.
    """
    rounded = scores.round(_SCORE_DECIMALS)
    order = np.argsort(-rounded, kind="stable")
    falling = rounded[order]
    points = _points(falling)
    return NullDistribution(
        documents=documents,
        pairs=len(pairs),
        seed=seed,
        scores=tuple(score for score, _ in points),
        rates=tuple(rate for _, rate in points),
        thresholds=_thresholds(falling, pairs[order], documents, seed),
    )


def false_positive_rates(distribution: NullDistribution, scores: Float64) -> Float64:
    """Return the share of random pairs that reach each of the scores Float64[N].

    The logarithm of the rate is interpolated linearly between the points of the table; above the
    highest score the rate is the lowest one that the sample could estimate.
    """
    rates = np.interp(scores, np.array(distribution.scores), np.log(distribution.rates))
    return np.exp(rates)


def check_rate(rate: float) -> None:
    """Check that thresholds are measured for a false positive rate.

    Raises:
        CorpusError: it is not one of `RATES`.
    """
    if not any(math.isclose(rate, known) for known in RATES):
        raise CorpusError(
            f"false positive rate {rate}: must be one of {', '.join(map(str, RATES))}"
        )


def threshold_for(distribution: NullDistribution, rate: float) -> Threshold:
    """Return the threshold for one of `RATES`.

    Raises:
        CorpusError: it is not one of them, or there are too few pairs, or too many equal ones, to
            estimate it.
    """
    check_rate(rate)
    for threshold in distribution.thresholds:
        if math.isclose(rate, threshold.false_positive_rate):
            return threshold
    raise CorpusError(
        f"false positive rate {rate}: {distribution.pairs} pairs of {distribution.documents} "
        f"documents are too few: {MIN_PAIRS_ABOVE} of them must be above the threshold, "
        "and documents must differ"
    )


def _points(falling: Float64) -> list[tuple[float, float]]:
    """Return points of the distribution: scores, ascending, and the share of pairs above each."""
    count = len(falling)
    powers = np.arange(0, math.log10(count) + 1e-9, 1 / _POINTS_A_DECADE)
    body = 1.0 - 10.0**-powers  # the same resolution where nearly all pairs reach the score
    shares = np.concatenate([10.0**-powers, body])
    ranks = np.unique(np.clip(np.ceil(shares * count), 1, count).astype(np.int64))
    scores = np.unique(np.append(falling[ranks - 1], falling[-1]))
    reached = np.searchsorted(-falling, -scores, side="right")
    return list(zip(scores.tolist(), (reached / count).tolist(), strict=True))


def _thresholds(falling: Float64, pairs: Int64, documents: int, seed: int) -> tuple[Threshold, ...]:
    replicates = _bootstrap(falling, pairs, documents, seed)
    found = []
    for rate, resampled in zip(RATES, replicates.T, strict=True):
        score = _threshold(falling, rate)
        if score is not None and rate * len(falling) >= MIN_PAIRS_ABOVE:
            low, high = np.quantile(resampled, [0.025, 0.975]).tolist()
            found.append(Threshold(rate, score, min(low, score), max(high, score)))
    return tuple(found)


def _threshold(falling: Float64, rate: float) -> float | None:
    """Return the lowest score that at most this share of pairs reaches; None if there is none."""
    above = falling[int(rate * len(falling))]  # the first score that too many would reach
    reached = int(np.searchsorted(-falling, -above, side="left"))
    return float(falling[reached - 1]) if reached else None


def _bootstrap(falling: Float64, pairs: Int64, documents: int, seed: int) -> Float64:
    """Return the thresholds Float64[replicates, RATES] of a bootstrap over documents.

    Pairs share documents, so documents are resampled: the weight of a pair is the product of how
    often its two documents were sampled.
    """
    random = np.random.default_rng(seed)
    reached = min(len(falling), int(2.0 * max(RATES) * len(falling)))
    thresholds = np.empty((_REPLICATES, len(RATES)))
    for replicate in range(_REPLICATES):
        times = random.multinomial(documents, np.full(documents, 1.0 / documents))
        weights = times[pairs[:, 0]] * times[pairs[:, 1]]
        above = np.cumsum(weights[:reached])
        counts = np.array(RATES) * weights.sum()
        rows = np.minimum(np.searchsorted(above, counts), reached - 1)
        thresholds[replicate] = falling[rows]
    return thresholds


@dataclass(frozen=True, slots=True)
class Channels:
    """What the pairs of N documents are scored by.

    Attributes:
        vectors: Float32[N, dimension], unit norm.
        words: their terms; None to score by vectors alone.
        rule: how scores are combined.
        blocks: their aligned blocks, None for documents without; None to align nothing.
    """

    vectors: Float32
    words: TermRows | None
    rule: LinearFusion
    blocks: Sequence[AlignedBlocks | None] | None = None


def mode_scores(channels: Channels, pairs: Int64, progress: Progress) -> dict[Mode, Float64]:
    """Return the score Float64[P] of each pair of rows Int64[P, 2] in each mode.

    These are the scores of a search in that mode for one of the two, a stored document. Without
    words there is only semantic mode.

    Raises:
        CorpusError: a score is not finite.
    """
    cosines = pair_scores(channels.vectors, pairs).astype(np.float32)
    alignment = _alignment_scores(channels, pairs, progress)
    semantic = semantic_scores(channels.rule, "semantic", cosines, alignment).astype(np.float64)
    if channels.words is None:
        return {"semantic": semantic}
    progress.started("scoring pairs by their words", len(pairs), unit="pairs")
    lexical = term_cosines(channels.words, pairs, progress)
    meaning = semantic_scores(channels.rule, "hybrid", cosines, alignment)
    hybrid = fuse(channels.rule, meaning, lexical)
    return {
        "semantic": semantic,
        "lexical": lexical.astype(np.float64),
        "hybrid": hybrid.astype(np.float64),
    }


def _alignment_scores(channels: Channels, pairs: Int64, progress: Progress) -> Float32 | None:
    """Return the alignment score of each pair; None if no mode counts it."""
    if channels.blocks is None or not channels.rule.aligns:
        return None
    progress.started("aligning pairs", len(pairs), unit="pairs")
    return align_pairs(channels.blocks, pairs, progress.advanced)


def measure_modes(
    channels: Channels, progress: Progress, *, seed: int = 0
) -> Mapping[Mode, NullDistribution]:
    """Measure how random pairs score in each mode: the same pairs in all of them.

    Raises:
        CorpusError: there are too few documents, or a score is not finite.
    """
    documents = len(channels.vectors)
    pairs = sample_pairs(documents, seed)
    scored = mode_scores(channels, pairs, progress)
    return {
        mode: measure_distribution(pairs, scores, documents, seed=seed)
        for mode, scores in scored.items()
    }
