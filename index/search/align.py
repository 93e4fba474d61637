"""The second stage of a search: the best candidates are aligned with the query, block by block.

The semantic score of a candidate is then a weighted mean of two, the cosine of the document vectors
and the alignment score. A candidate that is not aligned (it is not among the best, it has no block
vectors, or time was up) gets the alignment score that its cosine lets expect, so that all scores
remain comparable.
"""

import time

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from encoder.comparison.result import PairScore
from index.engine.port import BLOCKS, VECTOR, QuerySearch
from index.search.calibrate import Scoring, calibrate_scores, why_no_probability
from index.search.records import AlignmentOptions, Mode
from index.search.score import LinearFusion, Ranking, apply_rule, with_channel

_CANDIDATES_A_CALL = 25  # between two looks at the clock, and at whether to go on
_LEAST_SCORE = np.float32(1e-6)  # of a candidate; others are proportions of it


def align_candidates(
    query: QuerySearch,
    ranking: Ranking,
    rule: LinearFusion,
    options: AlignmentOptions,
    k: int,
    deadline: float,
) -> Ranking | None:
    """Align the best candidates of a ranking with the query; return all of it, in its order.

    They are aligned in the order of the ranking, except those that would not be among the k best
    even with `margin` times the highest alignment score of the last ones, or with `margin` times
    the highest of all in proportion to the score of the ranking.

    Args:
        query: the searches for it.
        ranking: of the first stage, without the query.
        rule: how scores are combined.
        options: how many are aligned.
        k: how many are to be found.
        deadline: of `time.perf_counter`; after it, None is returned.
    """
    ids = ranking.vector_ids
    alignment = np.full(len(ids), np.nan, dtype=np.float32)
    size = max(_CANDIDATES_A_CALL, k)
    untried = np.arange(len(ids)) < options.candidates
    undecided = np.flatnonzero(untried)
    while len(undecided):
        if time.perf_counter() >= deadline:
            return None
        chosen, size = undecided[:size], _CANDIDATES_A_CALL
        untried[chosen] = False
        scores = query.align(ids[chosen])
        if scores is None:
            break
        alignment[chosen] = scores
        possible = _may_be_best(ranking, rule, alignment, chosen, k, options.margin)
        undecided = np.flatnonzero(untried & possible)
    if np.isnan(alignment).all():
        return ranking
    return with_channel(rule, ranking, BLOCKS, alignment)


def score_pairs(
    scoring: Scoring,
    mode: Mode,
    vector: Float32,
    alignment: Float32 | None,
    lexical: Float32 | None,
) -> list[PairScore]:
    """Return the scores of N pairs of documents, as a search gives them.

    Args:
        scoring: how scores are combined and calibrated.
        mode: whose scores they are; without `lexical` it is semantic.
        vector: Float32[N], cosines of the document vectors.
        alignment: Float32[N], NaN for pairs that were not aligned; None if none was.
        lexical: Float32[N], cosines of the words; None if they were not read.
    """
    vector = np.clip(vector, -1.0, 1.0).astype(np.float32)
    semantic, scores = apply_rule(scoring.rule, mode, vector, alignment, lexical)
    calibrated = calibrate_scores(scoring, mode, scores.tolist())
    why = why_no_probability(scoring, mode)
    return [
        PairScore(
            score=float(scores[row]),
            scored_as=mode,
            semantic_score=float(semantic[row]),
            vector_score=float(vector[row]),
            alignment_score=known(alignment, row),
            lexical_score=known(lexical, row),
            probability=measures.probability,
            false_positive_rate=measures.false_positive_rate,
            relevant=measures.relevant,
            no_probability=why,
        )
        for row, measures in enumerate(calibrated)
    ]


def known(scores: Float32 | None, row: int) -> float | None:
    """Return the score of a row; None where there is none."""
    return None if scores is None or np.isnan(scores[row]) else float(scores[row])


def _may_be_best(
    ranking: Ranking, rule: LinearFusion, alignment: Float32, last: Int64, k: int, margin: float
) -> Bool:
    """Return which candidates [N] may be among the k best, given the rows that came last."""
    done = np.flatnonzero(~np.isnan(alignment))
    possible = np.ones_like(alignment)
    if np.nanmax(alignment[last], initial=0.0) > 0:  # else maybe all are without blocks
        first = np.maximum(ranking.scores, _LEAST_SCORE)
        likely = np.minimum(np.nanmax(alignment[last]), np.nanmax(alignment / first) * first)
        possible = np.minimum(np.float32(margin) * likely, possible)
    possible = np.maximum(possible, rule.expected_alignment(ranking.candidates.scores[VECTOR]))
    possible[done] = alignment[done]
    scores = with_channel(rule, ranking, BLOCKS, possible).scores
    least = np.partition(scores[done], -k)[-k] if len(done) >= k else -np.inf
    found: Bool = scores >= least
    return found
