"""The second stage of a search: the best candidates are aligned with the query, block by block.

The semantic score of a candidate is then a weighted mean of two, the cosine of the document vectors
and the alignment score. A candidate that is not aligned (it is not among the best, it has no block
vectors, or time was up) gets the alignment score that its cosine lets expect, so that all scores
remain comparable.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from encoder.alignment.scoring import align
from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Bool, Float32, Int64
from encoder.comparison.result import PairScore
from index.alignment.alignment_index import AlignableDocuments
from index.search.calibrator import Scoring, calibrate_scores, why_no_probability
from index.search.fusion import LinearFusion, apply_rule
from index.search.modes import Ranking, rescore, with_scores
from index.search.records import AlignmentOptions, AlignmentReceipt, EncodedQuery, Mode
from index.sqlite.block_vectors import as_stored
from index.store.document_store import SQLiteDocumentStore
from index.vectors.vector_index import NO_VECTOR

_CANDIDATES_A_CALL = 25  # between two looks at the clock, and at whether to go on
_LEAST_SCORE = np.float32(1e-6)  # of a candidate; others are proportions of it


@dataclass(slots=True)
class _Alignment:
    """The alignment of a ranking as far as it has come.

    Attributes:
        scores: Float32[N] by row, NaN where there is none.
        query: its blocks; None until the first candidates are read.
        space: that they are in.
    """

    scores: Float32
    query: AlignedBlocks | None = None
    space: AlignmentSpace | None = None


def align_candidates(
    store: SQLiteDocumentStore,
    query: EncodedQuery,
    ranking: Ranking,
    rule: LinearFusion,
    options: AlignmentOptions,
    k: int,
) -> Ranking:
    """Align the best candidates of a ranking with the query, and rank all by the new scores.

    They are aligned in the order of the ranking, except those that would not be among the k best
    even with `margin` times the highest alignment score of the last ones, or with `margin` times
    the highest of all in proportion to the score of the ranking. Out of the budget, the order is
    that of the ranking.
    """
    deadline = time.perf_counter() + options.budget_seconds
    ids = ranking.vector_ids
    best = first_candidates(ids, query.vector_id, options.candidates)
    receipt = AlignmentReceipt(aligned=False, candidates=len(best), scored=0)
    found = _Alignment(np.full(len(ids), np.nan, dtype=np.float32))
    size = max(_CANDIDATES_A_CALL, k)
    rest = undecided = best
    while len(undecided):
        if time.perf_counter() >= deadline:
            return replace(ranking, receipt=receipt)
        some, size = undecided[:size], _CANDIDATES_A_CALL
        rest = np.setdiff1d(rest, some, assume_unique=True)
        if not _align(store, query, ids, some, found):
            break
        undecided = rest[_may_be_best(ranking, rule, found.scores, some, k, options.margin)[rest]]
    if found.query is None:
        return replace(ranking, receipt=receipt)
    scored = int((~np.isnan(found.scores)).sum())
    receipt = replace(receipt, aligned=True, scored=scored)
    return replace(rescore(ranking, rule, alignment=found.scores), receipt=receipt)


def first_candidates(ranked: Int64, query: int, number: int) -> Int64:
    """Return where the first documents of a ranking are, at most `number`, other than the query.

    Args:
        ranked: Int64[N], ids, best first.
        query: its id, if it is a stored document.
        number: how many.
    """
    return np.flatnonzero(ranked != query)[:number]


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
    semantic, scores = apply_rule(scoring.fusion, mode, vector, alignment, lexical)
    calibrated = calibrate_scores(scoring.calibrator, mode, scores.tolist())
    why = why_no_probability(scoring.calibrator, mode)
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


def _align(
    store: SQLiteDocumentStore,
    query: EncodedQuery,
    vector_ids: Int64,
    rows: Int64,
    found: _Alignment,
) -> bool:
    """Align the candidates of some rows; return whether others can be aligned, too."""
    stored = found.query is None and query.blocks is None and query.vector_id != NO_VECTOR
    wanted = vector_ids[rows].tolist()
    documents = store.alignment.read([*wanted, query.vector_id] if stored else wanted)
    if documents is None:
        return False
    if found.query is None:
        ours = documents.blocks.get(query.vector_id) if stored else None
        found.query = ours or _project(store, documents, query)
        found.space = documents.space
    if found.query is None or documents.space is not found.space:
        return False  # nothing to align by; or meanwhile, the documents moved to another space
    known = [
        row for row, vector_id in zip(rows, wanted, strict=True) if vector_id in documents.blocks
    ]
    blocks = [documents.blocks[int(vector_ids[row])] for row in known]
    found.scores[known] = align(found.query, blocks)
    return True


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
    scores = with_scores(ranking, rule, alignment=alignment).scores
    most = with_scores(ranking, rule, alignment=possible).scores
    least = np.partition(scores[done], -k)[-k] if len(done) >= k else -np.inf
    return np.maximum(most, scores) >= least


def _project(
    store: SQLiteDocumentStore, documents: AlignableDocuments, query: EncodedQuery
) -> AlignedBlocks | None:
    # As they would be stored, so that a stored document scores the same by its text.
    blocks = None if query.blocks is None else as_stored(query.blocks)
    offsets = query.offsets
    if blocks is None:
        stored = store.block_vectors([query.vector_id], skip_damaged=True).get(query.vector_id)
        if stored is None:
            return None
        blocks, offsets = stored.vectors, stored.offsets
    return documents.project(query.text, blocks, offsets)
