"""How pairs of documents drawn at random score: what a score is worth in one corpus.

Nearly all pairs of a corpus are no matches, so the share of random pairs that reach a score is its
false positive rate, and needs no label.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Float64, Int64
from index.errors import CorpusError
from index.lexical.scoring import TermRows, term_cosines
from index.progress import Progress
from index.search.fusion import LinearFusion, fuse
from index.search.records import Mode

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
MIN_DOCUMENTS = 100
MAX_DOCUMENTS = 20_000  # more are sampled: their vectors are held in memory
MAX_PAIRS = 1_000_000
# A rate is told from no fewer pairs above its threshold.
MIN_PAIRS_ABOVE = 20
_REPLICATES = 200
_PAIRS_A_CALL = 8_192  # their vectors are copied
_SCORE_DECIMALS = 6  # beyond them cosines are rounding error
_KNOTS_OF_TEN = 16  # points of the table in each power of ten of the rate


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score that this share of random pairs reaches.

    Attributes:
        false_positive_rate: the share.
        score: the threshold.
        low: lower end of the 95 % interval of the threshold, over documents drawn anew.
        high: its upper end.
    """

    false_positive_rate: float
    score: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NullDistribution:
    """How random pairs of a corpus score.

    Attributes:
        documents: whose pairs they are.
        pairs: how many were scored.
        seed: of the draw.
        scores: points of the distribution, rising.
        rates: share of pairs that reach each of these scores, falling from 1.
        thresholds: for those of `RATES` that so many pairs can tell.
    """

    documents: int
    pairs: int
    seed: int
    scores: tuple[float, ...]
    rates: tuple[float, ...]
    thresholds: tuple[Threshold, ...]


def draw_pairs(documents: int, seed: int) -> Int64:
    """Draw pairs of different rows: all of them, or `MAX_PAIRS` where there are more.

    Returns:
        Int64[M, 2].

    Raises:
        CorpusError: there are fewer than `MIN_DOCUMENTS`.
    """
    if documents < MIN_DOCUMENTS:
        raise CorpusError(
            f"{documents} documents are too few to tell how random pairs of them score: "
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
        raise CorpusError("the score of a pair is not a finite number: the vectors are damaged")
    rounded: Float64 = np.clip(scores, -1.0, 1.0).round(_SCORE_DECIMALS)
    return rounded


def measure_random_pairs(vectors: Float32, *, seed: int = 0) -> NullDistribution:
    """Measure how random pairs of a corpus score.

    Args:
        vectors: Float32[N, dimension], unit norm.
        seed: of the draw of pairs and of the intervals.

    Raises:
        CorpusError: there are fewer than `MIN_DOCUMENTS`, or a vector is not finite.
    """
    pairs = draw_pairs(len(vectors), seed)
    return measure_scores(pairs, pair_scores(vectors, pairs), len(vectors), seed=seed)


def measure_scores(
    pairs: Int64, scores: Float64, documents: int, *, seed: int = 0
) -> NullDistribution:
    """Describe how pairs Int64[M, 2] of a corpus of so many documents score, Float64[M].

    Args:
        pairs: as `draw_pairs` draws them.
        scores: of each of them.
        documents: of the corpus.
        seed: of the draw of pairs and of the intervals.
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


def false_positive_rates(random_pairs: NullDistribution, scores: Float64) -> Float64:
    """Return the share of random pairs that score as high as each of Float64[N].

    Between the points of the table its logarithm is a straight line; beyond the highest point it
    stays at the lowest share that the sample could tell.
    """
    rates = np.interp(scores, np.array(random_pairs.scores), np.log(random_pairs.rates))
    return np.exp(rates)


def check_rate(rate: float) -> None:
    """Refuse a false positive rate that no threshold is measured for.

    Raises:
        CorpusError: it is none of `RATES`.
    """
    if not any(math.isclose(rate, known) for known in RATES):
        raise CorpusError(
            f"false positive rate {rate}: must be one of {', '.join(map(str, RATES))}"
        )


def threshold_for(random_pairs: NullDistribution, rate: float) -> Threshold:
    """Return the threshold for one of `RATES`.

    Raises:
        CorpusError: it is none of them, or so few pairs, or so many equal ones, cannot tell it.
    """
    check_rate(rate)
    for threshold in random_pairs.thresholds:
        if math.isclose(rate, threshold.false_positive_rate):
            return threshold
    raise CorpusError(
        f"false positive rate {rate}: {random_pairs.pairs} pairs of {random_pairs.documents} "
        f"documents cannot tell it: {MIN_PAIRS_ABOVE} of them must be above the threshold, "
        "and documents must not be equal"
    )


def _points(falling: Float64) -> list[tuple[float, float]]:
    """Thin the distribution out: scores rising, with the share of pairs that reach each."""
    count = len(falling)
    powers = np.arange(0, math.log10(count) + 1e-9, 1 / _KNOTS_OF_TEN)
    body = 1.0 - 10.0**-powers  # as fine where nearly all pairs reach the score
    shares = np.concatenate([10.0**-powers, body])
    ranks = np.unique(np.clip(np.ceil(shares * count), 1, count).astype(np.int64))
    scores = np.unique(np.append(falling[ranks - 1], falling[-1]))
    reached = np.searchsorted(-falling, -scores, side="right")
    return list(zip(scores.tolist(), (reached / count).tolist(), strict=True))


def _thresholds(falling: Float64, pairs: Int64, documents: int, seed: int) -> tuple[Threshold, ...]:
    drawn = _drawn_anew(falling, pairs, documents, seed)
    found = []
    for rate, redrawn in zip(RATES, drawn.T, strict=True):
        score = _threshold(falling, rate)
        if score is not None and rate * len(falling) >= MIN_PAIRS_ABOVE:
            low, high = np.quantile(redrawn, [0.025, 0.975]).tolist()
            found.append(Threshold(rate, score, min(low, score), max(high, score)))
    return tuple(found)


def _threshold(falling: Float64, rate: float) -> float | None:
    """Return the lowest score that at most this share of pairs reaches; None if all reach more."""
    above = falling[int(rate * len(falling))]  # the first score that too many would reach
    reached = int(np.searchsorted(-falling, -above, side="left"))
    return float(falling[reached - 1]) if reached else None


def _drawn_anew(falling: Float64, pairs: Int64, documents: int, seed: int) -> Float64:
    """Return thresholds Float64[replicates, RATES] of the bootstrap over documents.

    Pairs share documents, so it is these that are drawn: a pair counts as often as the product of
    the times that its two were drawn.
    """
    random = np.random.default_rng(seed)
    reached = min(len(falling), int(2.0 * max(RATES) * len(falling)))
    drawn = np.empty((_REPLICATES, len(RATES)))
    for replicate in range(_REPLICATES):
        times = random.multinomial(documents, np.full(documents, 1.0 / documents))
        weights = times[pairs[:, 0]] * times[pairs[:, 1]]
        above = np.cumsum(weights[:reached])
        wanted = np.array(RATES) * weights.sum()
        rows = np.minimum(np.searchsorted(above, wanted), reached - 1)
        drawn[replicate] = falling[rows]
    return drawn


@dataclass(frozen=True, slots=True)
class Channels:
    """What pairs of N documents are scored by.

    Attributes:
        vectors: Float32[N, dimension], unit norm.
        words: their terms; None where the vectors alone are wanted.
        rule: how the scores of both are joined.
    """

    vectors: Float32
    words: TermRows | None
    rule: LinearFusion


def mode_scores(channels: Channels, pairs: Int64, progress: Progress) -> dict[Mode, Float64]:
    """Return the score Float64[P] of each pair of rows Int64[P, 2] in each mode.

    These are the scores that search gives in that mode when one of the two is a stored document
    and the query. Without words there is semantic mode alone.

    Raises:
        CorpusError: a score is not finite.
    """
    semantic = pair_scores(channels.vectors, pairs)
    if channels.words is None:
        return {"semantic": semantic}
    progress.started("scoring pairs by their words", len(pairs), unit="pairs")
    lexical = term_cosines(channels.words, pairs, progress)
    hybrid = fuse(channels.rule, semantic.astype(np.float32), lexical)
    return {
        "semantic": semantic,
        "lexical": lexical.astype(np.float64),
        "hybrid": hybrid.astype(np.float64),
    }


def measure_modes(
    channels: Channels, progress: Progress, *, seed: int = 0
) -> Mapping[Mode, NullDistribution]:
    """Measure how random pairs score in each mode: the same pairs in all of them.

    Raises:
        CorpusError: there are too few documents, or a score is not finite.
    """
    documents = len(channels.vectors)
    pairs = draw_pairs(documents, seed)
    scored = mode_scores(channels, pairs, progress)
    return {
        mode: measure_scores(pairs, scores, documents, seed=seed) for mode, scores in scored.items()
    }
