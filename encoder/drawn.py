"""What one training step reads, drawn from the data as arrays; tensors are made of it later.

The data knows documents, links and pairs, and no torch; the objectives know tensors and no data.
These are the words between the two.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """A document, or some of its sentence blocks.

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


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class DrawnDocuments:
    """Documents, of which nothing is known."""

    documents: Parts


@dataclass(frozen=True, slots=True)
class DrawnPairs:
    """P pairs with their labels [P]."""

    sources: Parts
    targets: Parts
    labels: Bool


@dataclass(frozen=True, slots=True)
class DrawnCandidates:
    """Q queries that look for theirs among C candidates.

    Attributes:
        queries: Q.
        candidates: C; the hard negatives are among them.
        positives: Bool[Q, C]; every query has one.
        ignored: Bool[Q, C], neither positive nor negative: probably matches that nobody judged.
    """

    queries: Parts
    candidates: Parts
    positives: Bool
    ignored: Bool


@dataclass(frozen=True, slots=True)
class DrawnLabels:
    """D documents with a label each, Int64[D]; equal labels belong together."""

    documents: Parts
    labels: Int64


@dataclass(frozen=True, slots=True)
class DrawnRelations:
    """D documents and how similar a teacher finds them, Float32[D, D]."""

    documents: Parts
    similarities: Float32


Drawn = DrawnDocuments | DrawnPairs | DrawnCandidates | DrawnLabels | DrawnRelations
