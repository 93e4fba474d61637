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
from encoder.arrays import Float32, Int64
from index.search.fusion import LinearFusion, apply_rule
from index.search.modes import Ranking, rescore
from index.search.records import AlignmentOptions, AlignmentReceipt, EncodedQuery
from index.sqlite.block_vectors import as_stored
from index.store.document_store import SQLiteDocumentStore
from index.vectors.vector_index import NO_VECTOR

_CANDIDATES_A_CALL = 25  # between two looks at the clock, and at whether to go on


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

    They are aligned in the order of the ranking until no other would be among the k best even with
    `margin` times the highest alignment score of the last ones. Out of the budget, the order is
    that of the ranking.
    """
    deadline = time.perf_counter() + options.budget_seconds
    ids = ranking.vector_ids
    best = first_candidates(ids, query.vector_id, options.candidates)
    receipt = AlignmentReceipt(aligned=False, candidates=len(best), scored=0)
    found = _Alignment(np.full(len(ids), np.nan, dtype=np.float32))
    size = max(_CANDIDATES_A_CALL, k)
    rest = best
    while len(rest):
        if time.perf_counter() >= deadline:
            return replace(ranking, receipt=receipt)
        some, rest, size = rest[:size], rest[size:], _CANDIDATES_A_CALL
        if not _align(store, query, ids, some, found):
            break
        highest = float(np.nanmax(found.scores[some], initial=0.0))
        possible = min(1.0, options.margin * highest) if highest else 1.0  # 0: maybe without blocks
        if _is_decided(ranking, rule, found.scores, rest, k, possible):
            break
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


def score_pair(
    rule: LinearFusion, cosine: float, left: AlignedBlocks | None, right: AlignedBlocks | None
) -> float:
    """Return the score of two documents, as a semantic search for one gives it to the other."""
    alignment = None if left is None or right is None else align(left, [right])
    cosines = np.array([cosine], dtype=np.float32)
    return float(apply_rule(rule, "semantic", cosines, alignment)[0][0])


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
        found.query = ours or _project(store, documents.space, query)
        found.space = documents.space
    if found.query is None or documents.space is not found.space:
        return False  # nothing to align by; or meanwhile, the documents moved to another space
    known = [
        row for row, vector_id in zip(rows, wanted, strict=True) if vector_id in documents.blocks
    ]
    blocks = [documents.blocks[int(vector_ids[row])] for row in known]
    found.scores[known] = align(found.query, blocks)
    return True


def _is_decided(
    ranking: Ranking, rule: LinearFusion, alignment: Float32, rest: Int64, k: int, possible: float
) -> bool:
    """Return whether the k best are aligned, if no other row aligns better than is possible."""
    done = np.flatnonzero(~np.isnan(alignment))
    if len(done) < k or not len(rest):
        return len(done) >= k
    mode, vector, lexical = ranking.scored_as, ranking.vector, ranking.lexical
    _, scores = apply_rule(rule, mode, vector, alignment, lexical)
    best = np.full(len(alignment), possible, dtype=np.float32)
    _, most = apply_rule(rule, mode, vector, best, lexical)
    least = np.partition(scores[done], len(done) - k)[len(done) - k]
    return bool(np.maximum(most, scores)[rest].max() < least)


def _project(
    store: SQLiteDocumentStore, space: AlignmentSpace, query: EncodedQuery
) -> AlignedBlocks | None:
    # As they would be stored, so that a stored document scores the same by its text.
    blocks = None if query.blocks is None else as_stored(query.blocks)
    if blocks is None:
        stored = store.block_vectors([query.vector_id], skip_damaged=True).get(query.vector_id)
        blocks = None if stored is None else stored.vectors
    return None if blocks is None else space.project(blocks)
