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
from encoder.arrays import Float32
from index.alignment.alignment_index import AlignableDocuments
from index.search.fusion import LinearFusion, semantic_scores
from index.search.modes import Ranking, rescore
from index.search.records import AlignmentOptions, AlignmentReceipt, EncodedQuery
from index.store.document_store import SQLiteDocumentStore
from index.vectors.vector_index import NO_VECTOR

_CANDIDATES_A_CALL = 50  # between two looks at the clock


@dataclass(frozen=True, slots=True)
class _Stage:
    """The blocks of a query and of candidates, and until when they may be aligned."""

    query: AlignedBlocks
    documents: AlignableDocuments
    deadline: float


def align_candidates(
    store: SQLiteDocumentStore,
    query: EncodedQuery,
    ranking: Ranking,
    rule: LinearFusion,
    options: AlignmentOptions,
) -> Ranking:
    """Align the best candidates of a ranking with the query, and rank all by the new scores.

    Out of the budget, the order is that of the ranking.

    Raises:
        StoreError: the store cannot be read.
    """
    deadline = time.perf_counter() + options.budget_seconds
    ids = ranking.vector_ids.tolist()
    best = [row for row, one in enumerate(ids) if one != query.vector_id][: options.candidates]
    receipt = AlignmentReceipt(aligned=False, candidates=len(best), scored=0)
    if options.budget_seconds <= 0:
        return replace(ranking, receipt=receipt)
    stage = _read(store, query, [ids[row] for row in best], deadline)
    if stage is None:
        return replace(ranking, receipt=receipt)
    rows = [row for row in best if ids[row] in stage.documents.blocks]
    scores = _score(stage, [stage.documents.blocks[ids[row]] for row in rows])
    if scores is None:
        return replace(ranking, receipt=receipt)
    alignment = np.full(len(ids), np.nan, dtype=np.float32)
    alignment[rows] = scores
    receipt = replace(receipt, aligned=True, scored=len(rows))
    return replace(rescore(ranking, rule, alignment=alignment), receipt=receipt)


def score_pair(
    rule: LinearFusion, cosine: float, left: AlignedBlocks | None, right: AlignedBlocks | None
) -> float:
    """Return the semantic score of two documents, as a search for one gives it to the other.

    Args:
        rule: how scores are combined.
        cosine: of the document vectors.
        left: aligned blocks of one; None if it has none.
        right: of the other, in the same space.
    """
    alignment = None if left is None or right is None else align(left, [right])
    return float(semantic_scores(rule, np.array([cosine], dtype=np.float32), alignment)[0])


def _read(
    store: SQLiteDocumentStore, query: EncodedQuery, vector_ids: list[int], deadline: float
) -> _Stage | None:
    """Read candidates, and the query if it is stored; None if there is nothing to align it by."""
    stored = query.blocks is None and query.vector_id != NO_VECTOR
    documents = store.alignment.read([*vector_ids, query.vector_id] if stored else vector_ids)
    if documents is None:
        return None
    ours = documents.blocks.get(query.vector_id) if stored else None
    ours = ours or _project(store, documents.space, query)
    return None if ours is None else _Stage(ours, documents, deadline)


def _project(
    store: SQLiteDocumentStore, space: AlignmentSpace, query: EncodedQuery
) -> AlignedBlocks | None:
    blocks = query.blocks
    if blocks is None:
        stored = store.block_vectors([query.vector_id]).get(query.vector_id)
        blocks = None if stored is None else stored.vectors
    return None if blocks is None else space.project(blocks)


def _score(stage: _Stage, candidates: list[AlignedBlocks]) -> Float32 | None:
    """Return the alignment score of each candidate; None if time is up before the last call."""
    parts = [np.zeros(0, dtype=np.float32)]
    for start in range(0, len(candidates), _CANDIDATES_A_CALL):
        if time.perf_counter() > stage.deadline:
            return None
        parts.append(align(stage.query, candidates[start : start + _CANDIDATES_A_CALL]))
    return np.concatenate(parts)
