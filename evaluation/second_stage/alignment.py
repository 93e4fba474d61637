"""The systems of semantic and hybrid mode: a first stage, and its best candidates aligned."""

from collections.abc import Sequence

import numpy as np

from encoder.alignment.scoring import align, align_pairs
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Int64
from evaluation.systems import HYBRID, System
from index.search.fusion import LinearFusion, fuse, semantic_scores
from index.search.records import DEFAULT_ALIGNMENT, Mode


def semantic_system(
    vectors: System, blocks: Sequence[AlignedBlocks] | None, rule: LinearFusion, name: str
) -> System:
    """Make the system of semantic mode.

    Args:
        vectors: scores by the cosine of the document vectors.
        blocks: of every row; None to align nothing.
        rule: how scores are combined.
        name: of the system.
    """
    return _system(vectors, None, blocks, rule, name)


def hybrid_system(
    vectors: System,
    lexical: System,
    blocks: Sequence[AlignedBlocks] | None,
    rule: LinearFusion,
    name: str = HYBRID,
) -> System:
    """Make the system of hybrid mode; see `semantic_system`."""
    return _system(vectors, lexical, blocks, rule, name)


def _system(
    vectors: System,
    lexical: System | None,
    blocks: Sequence[AlignedBlocks] | None,
    rule: LinearFusion,
    name: str,
) -> System:
    mode: Mode = "semantic" if lexical is None else "hybrid"
    weight = rule.alignment_weight(mode)
    aligned = blocks if weight else None

    def combine(cosines: Float32, alignment: Float32 | None, words: Float32 | None) -> Float32:
        semantic = semantic_scores(rule, mode, cosines, alignment)
        return semantic if words is None else fuse(rule, semantic, words)

    def score(rows: Int64) -> Float32:
        cosines = vectors.score(rows)
        words = None if lexical is None else lexical.score(rows)
        first = combine(cosines, None, words)
        if aligned is None:
            return first
        alignment = align_first(aligned, rows, first)
        return combine(cosines, alignment, words)

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        cosines = vectors.score_pairs(sources, targets)
        words = None if lexical is None else lexical.score_pairs(sources, targets)
        pairs = np.stack([sources, targets], axis=1)
        alignment = None if aligned is None else align_pairs(aligned, pairs, lambda _: None)
        return combine(cosines, alignment, words)

    weights = f"{weight:g} of the alignment score" if aligned else "not aligned"
    words = f"{rule.lexical_weight:g} of the lexical score; " if lexical else ""
    return System(name, f"{words}of the rest, {weights}", score, score_pairs)


def align_first(
    blocks: Sequence[AlignedBlocks],
    rows: Int64,
    first: Float32,
    candidates: int = DEFAULT_ALIGNMENT.candidates,
) -> Float32:
    """Align each query with its best candidates, as a search does.

    Args:
        blocks: of every row.
        rows: Int64[Q], the rows of the queries.
        first: Float32[Q, N], the scores of the first stage.
        candidates: how many are aligned.

    Returns:
        Float32[Q, N], NaN for documents that are not aligned.
    """
    alignment = np.full(first.shape, np.nan, dtype=np.float32)
    for number, row in enumerate(rows.tolist()):
        scores = first[number].copy()
        if row < len(scores):  # a document is left out of its own matches
            scores[row] = -np.inf
        best = np.argsort(-scores, kind="stable")[:candidates]
        best = best[best != row]
        alignment[number, best] = align(blocks[row], [blocks[one] for one in best.tolist()])
    return alignment
