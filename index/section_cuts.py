"""Where a document is cut into sections, in sentence blocks (CoLDE, section 3.1)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from index.vector_index import Int64

_PLAY = 0.4  # of an equal part, by which a random cut may lie beside its place


def cut_blocks(
    blocks: int,
    parts: int,
    random: np.random.Generator | None = None,
    starts: Sequence[int] | Int64 = (),
) -> list[Int64]:
    """Cut the blocks of a document into sections.

    Args:
        blocks: how many there are, at least one.
        parts: sections, at most: none is empty.
        random: moves each cut a little away from equal parts, another way in each step: halves are
            from 0.3 to 0.7 of the document. Without one the parts are equal.
        starts: blocks that the document's own sections begin with; the nearest to each cut is
            taken. Without any a cut may lie before any block.

    Returns:
        The places of the blocks of each section, in order; together they are all.
    """
    allowed = np.unique(np.asarray(starts, dtype=np.int64))
    allowed = allowed[(allowed > 0) & (allowed < blocks)]
    if not len(allowed):
        allowed = np.arange(1, blocks, dtype=np.int64)
    cuts: list[int] = [0]
    for number in range(1, min(parts, len(allowed) + 1)):
        play = 0.0 if random is None else random.uniform(-_PLAY, _PLAY)
        wanted = round((number + play) * blocks / parts)
        left = allowed[allowed > cuts[-1]]
        left = left[: len(left) - (min(parts, len(allowed) + 1) - 1 - number)]
        cuts.append(int(left[np.abs(left - wanted).argmin()]))
    return [np.arange(a, b, dtype=np.int64) for a, b in pairwise([*cuts, blocks])]
