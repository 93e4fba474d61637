"""Which pairs of blocks an alignment score is made of, and how much each of them gives to it.

The score of two documents of S and T blocks (`encoder.alignment.scoring`) is, up to a factor that
both documents determine, the sum of

    max(0, max_j s(i, j)) / 2S   for each left block i
    max(0, max_i s(i, j)) / 2T   for each right block j

Each of these terms belongs to the pair (i, j) that attains the maximum, the first one of equals. A
pair that is the best of both its blocks has two terms, and most pairs have none.
"""

from dataclasses import dataclass

import numpy as np

from encoder.alignment.scoring import align, similarities
from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Float64, Int64


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
    """Return what each pair of blocks gives to the alignment score of two documents.

    Args:
        left: one document, of at least one block.
        right: the other, in the same space.
    """
    table = similarities(left, right)
    given = np.zeros(table.shape)
    rows, columns = np.arange(len(left)), np.arange(len(right))
    given[rows, table.argmax(axis=1)] += np.maximum(table.max(axis=1), 0.0) / (2 * len(left))
    given[table.argmax(axis=0), columns] += np.maximum(table.max(axis=0), 0.0) / (2 * len(right))
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
