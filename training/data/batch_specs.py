"""Specifications of batches: which documents a training step reads, as arrays.

The data knows documents, links and pairs but not torch; the objectives know tensors but not the
data. These types connect the two; `training.collate` makes tensors of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from encoder.arrays import Bool, Float32, Int64


@dataclass(frozen=True, slots=True)
class DocumentSlice:
    """A document, or a slice of its sentence blocks.

    Attributes:
        archive: number of the block archive.
        row: of the document in it.
        places: Int64[S], ascending, which of its blocks; all of them when None.
        section: number of the section that these blocks are, of a document that is cut.
        sections: into how many it is cut, all of which follow one another in a batch; 1 for a
            document, or some of its blocks, that stands for itself.
    """

    archive: int
    row: int
    places: Int64 | None = None
    section: int = 0
    sections: int = 1


DocumentSlices = tuple[DocumentSlice, ...]


@dataclass(frozen=True, slots=True)
class DocumentsBatch:
    """Documents, of which nothing is known."""

    documents: DocumentSlices


@dataclass(frozen=True, slots=True)
class PairBatch:
    """P pairs with their labels [P]."""

    sources: DocumentSlices
    targets: DocumentSlices
    labels: Bool


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Q queries that look for theirs among C candidates.

    Attributes:
        queries: Q.
        candidates: C; the hard negatives are among them.
        positives: Bool[Q, C]; every query has one.
        ignored: Bool[Q, C], neither positive nor negative: probably matches, but not judged.
        lexical: Float32[Q, C], similarities of their words (cosines of TF-IDF).
    """

    queries: DocumentSlices
    candidates: DocumentSlices
    positives: Bool
    ignored: Bool
    lexical: Float32


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """D documents with a label each, Int64[D]; equal labels belong together."""

    documents: DocumentSlices
    labels: Int64


@dataclass(frozen=True, slots=True)
class SimilarityBatch:
    """D documents and how similar a teacher finds them, Float32[D, D]."""

    documents: DocumentSlices
    similarities: Float32


BatchSpec = DocumentsBatch | PairBatch | CandidateBatch | LabelBatch | SimilarityBatch


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
        target = round((number + play) * blocks / parts)
        left = allowed[allowed > cuts[-1]]
        left = left[: len(left) - (min(parts, len(allowed) + 1) - 1 - number)]
        cuts.append(int(left[np.abs(left - target).argmin()]))
    return [np.arange(a, b, dtype=np.int64) for a, b in pairwise([*cuts, blocks])]
