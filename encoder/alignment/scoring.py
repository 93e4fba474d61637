"""The alignment score of two documents: every block is matched with the best of the other.

    s(i, j) = b_i . c_j - (hubness(b_i) + hubness(c_j)) / 2
    ours    = mean_i max(0, max_j s(i, j))        theirs = mean_j max(0, max_i s(i, j))
    self(b) = mean_i (1 - hubness(b_i))
    score   = (ours + theirs) / (2 sqrt(self(b) self(c)))

This is late interaction (Khattab and Zaharia, "ColBERT", SIGIR 2020, section 3.3) over sentence
blocks instead of tokens, in both directions, with the similarity of CSLS (Conneau et al., ICLR
2018, section 2.3). `self` is what a document scores with itself, so that the score is 1 for the
document itself, and 0 where nothing matches better than chance. Blocks of common text, which have
`COMMON_HUBNESS`, match nothing and are in no mean, as if the document was without them.

Up to a factor that both documents determine, it is the sum of

    max(0, max_j s(i, j)) / 2S   for each left block i
    max(0, max_i s(i, j)) / 2T   for each right block j

Each of these terms is the contribution of the pair (i, j) that attains the maximum, the first one
of equals. A pair that is the best of both its blocks has two terms, and most pairs have none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.alignment.space import COMMON_HUBNESS, AlignedBlocks
from encoder.arrays import Float32, Float64, Int64

_CANDIDATES_A_CALL = 200
_LEAST_SELF_SCORE = 1e-3  # of a document of nothing but hubs


def align(query: AlignedBlocks, candidates: Sequence[AlignedBlocks]) -> Float32:
    """Return the alignment score [N] of one document with N others, each of at least one block.

    A single matrix product covers all of them.
    """
    if not candidates:
        return np.zeros(0, dtype=np.float32)
    lengths: Int64 = np.array([len(candidate) for candidate in candidates], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    pairs = similarities(query, candidates)
    best = np.maximum(np.maximum.reduceat(pairs, starts, axis=1), 0.0)
    ours = best.sum(axis=0) / number_counted(query)
    hubness = np.concatenate([candidate.hubness for candidate in candidates])
    common = hubness >= COMMON_HUBNESS
    counted = np.maximum(lengths - np.add.reduceat(common, starts, dtype=np.int64), 1)
    theirs = np.add.reduceat(np.maximum(pairs.max(axis=0), 0.0), starts) / counted
    own = np.where(common, 0.0, 1.0 - hubness)
    norms = np.maximum(np.add.reduceat(own, starts) / counted, _LEAST_SELF_SCORE)
    norms *= self_similarity(query)
    scores: Float32 = ((ours + theirs) / (2 * np.sqrt(norms))).astype(np.float32)
    return np.minimum(scores, np.float32(1.0))


def self_similarity(blocks: AlignedBlocks) -> float:
    """Return the mean of 1 - hubness over the blocks of a document, what it scores with itself."""
    own = 1.0 - blocks.hubness[blocks.hubness < COMMON_HUBNESS]
    return max(float(own.sum()) / number_counted(blocks), _LEAST_SELF_SCORE)


def number_counted(blocks: AlignedBlocks) -> int:
    """Return how many blocks of a document are no common text, at least 1."""
    return max(int((blocks.hubness < COMMON_HUBNESS).sum()), 1)


def align_pairs(
    blocks: Sequence[AlignedBlocks | None], pairs: Int64, advanced: Callable[[int], None]
) -> Float32:
    """Return the alignment score [P] of pairs of documents, NaN where one has no blocks.

    Args:
        blocks: of N documents; None for those without.
        pairs: Int64[P, 2], rows of documents.
        advanced: called with how many more pairs are done.
    """
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    for together in np.split(order, np.flatnonzero(np.diff(pairs[order, 0])) + 1):
        if len(together):
            scores[together] = _align_known(blocks, pairs[together])
            advanced(len(together))
    return scores


def _align_known(blocks: Sequence[AlignedBlocks | None], pairs: Int64) -> Float32:
    """Return the scores of pairs with the same left document."""
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    query = blocks[int(pairs[0, 0])]
    if query is None:
        return scores
    others = [blocks[row] for row in pairs[:, 1].tolist()]
    for start in range(0, len(others), _CANDIDATES_A_CALL):
        some = range(start, min(start + _CANDIDATES_A_CALL, len(others)))
        known = [(n, other) for n in some if (other := others[n]) is not None]
        scores[[n for n, _ in known]] = align(query, [other for _, other in known])
    return scores


def similarities(query: AlignedBlocks, candidates: Sequence[AlignedBlocks]) -> Float32:
    """Return s(i, j), [S, T] with the blocks of all candidates one after another.

    Two more columns let the matrix product subtract the hubness of both blocks too.
    """
    width = query.codes.shape[1]
    codes = np.concatenate([candidate.codes for candidate in candidates])
    scales = np.concatenate([candidate.scales for candidate in candidates])
    right = np.empty((len(codes), width + 2), dtype=np.float32)
    np.multiply(codes, scales[:, None], out=right[:, :width])
    right[:, width] = 1.0
    right[:, width + 1] = np.concatenate([candidate.hubness for candidate in candidates])
    left = np.empty((len(query), width + 2), dtype=np.float32)
    np.multiply(query.codes, query.scales[:, None], out=left[:, :width])
    left[:, width] = query.hubness * -0.5
    left[:, width + 1] = -0.5
    products: Float32 = left @ right.T
    return products


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """An alignment score and the P pairs that give something to it, the largest share first.

    Attributes:
        score: of the two documents, as `encoder.alignment.scoring.align` computes it.
        pairs: Int64[P, 2], the left and the right block, counted among those that are aligned.
        similarities: Float32[P], s(i, j) of each pair, above 0.
        shares: Float64[P], of the score; their sum is 1. There are none if the score is 0.
    """

    score: float
    pairs: Int64
    similarities: Float32
    shares: Float64


def find_contributions(left: AlignedBlocks, right: AlignedBlocks) -> Contributions:
    """Return what each pair of blocks gives to the alignment score; neither document is empty."""
    table = similarities(left, [right])
    given = np.zeros(table.shape)
    rows, columns = np.arange(len(left)), np.arange(len(right))
    ours, theirs = 2 * number_counted(left), 2 * number_counted(right)
    given[rows, table.argmax(axis=1)] += np.maximum(table.max(axis=1), 0.0) / ours
    given[table.argmax(axis=0), columns] += np.maximum(table.max(axis=0), 0.0) / theirs
    pairs = np.argwhere(given > 0.0)
    amounts = given[pairs[:, 0], pairs[:, 1]]
    order = np.argsort(-amounts, kind="stable")
    pairs, amounts, total = pairs[order], amounts[order], float(amounts.sum())
    return Contributions(
        score=float(align(left, [right])[0]),
        pairs=pairs,
        similarities=table[pairs[:, 0], pairs[:, 1]],
        shares=amounts / total if total else amounts,
    )
