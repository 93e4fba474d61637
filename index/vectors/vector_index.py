"""The port of the searchable copy: what every vector engine does for Longmatch.

Each engine is a module that implements `VectorIndex`, and an entry in `index.vectors.backends`,
which says how its indexes are made and loaded. All of them pass
`tests/contract/test_vector_index.py` and `tests/contract/test_vector_search.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.id_set import IdSet

NO_VECTOR = -1

Precision = Literal["fp32", "fp16", "int8"]  # the number format that vectors are held in


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The nearest vectors of each query, best first.

    Attributes:
        ids: Int64[Q, k], vector ids; `NO_VECTOR` where fewer than k were found.
        scores: Float32[Q, k], cosines with the vectors as the index holds them; -inf where fewer
            than k were found.
        sequence: the store's sequence that the index held while it was searched.
        generation: of the index that was searched; 0 where it has none.
    """

    ids: Int64
    scores: Float32
    sequence: int = 0
    generation: int = 0


class VectorIndex(Protocol):
    """Unit vectors under ids that the document store assigned. Safe to use from many threads.

    The vectors are divided into lists, of which a search may visit some only; an engine that
    compares all vectors has one list. An index that is not `exact` rounds the vectors that it is
    given, and every score is that of the rounded ones.
    """

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        ...

    @property
    def exact(self) -> bool:
        """Whether vectors are held as they were given, in fp32."""
        ...

    @property
    def nlist(self) -> int:
        """How many lists the vectors are divided into."""
        ...

    @property
    def sequence(self) -> int:
        """The sequence of the last `change` that gave one; 0 before the first."""
        ...

    def __len__(self) -> int:
        """Return how many vectors can be found."""
        ...

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[N] whether its vector is there."""
        ...

    def ids(self) -> Int64:
        """Return the ids of all vectors, ascending Int64[N]."""
        ...

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N]; NaN for those not there.

        As the index holds them.
        """
        ...

    def list_sizes(self) -> Int64:
        """Return how many vectors each list holds, Int64[nlist]."""
        ...

    def change(
        self,
        ids: Int64,
        vectors: Float32,
        *,
        removed: Int64 | None = None,
        sequence: int | None = None,
    ) -> None:
        """Add and remove vectors at once; no search sees a part of a change.

        Args:
            ids: to add, Int64[N].
            vectors: to add, Float32[N, dimension].
            removed: ids to remove, Int64[M]; those that are not there are ignored.
            sequence: of the store that the index holds from now on; None leaves it as it is.

        Raises:
            ValueError: a wrong shape, a vector that is not finite, an id below 0, given twice or
                already there (to replace a vector, remove it first). Nothing was changed.
        """
        ...

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query Float32[Q, dimension].

        Args:
            vectors: queries of unit norm.
            k: how many to find for each.
            nprobe: lists visited for each query; None takes the engine's default, more than there
                are means all: the nearest of the vectors as the index holds them.
            among: find no other vectors; of these k, whenever there are k. As many more lists
                are visited as that takes.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        ...

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query by comparing it with all that the index holds.

        Changes wait for a part of the comparison at most, not for all of it.

        Args:
            vector: Float32[dimension], unit norm.
            k: how many.

        Returns:
            Float32[k], best first, -inf where there are fewer; the sequence at the end: it is
            that of the whole comparison if the index had it at the beginning.
        """
        ...

    def save(self, path: Path) -> None:
        """Write the vectors to one new file; their sequence is the caller's to keep.

        Raises:
            OSError: the file cannot be written whole.
        """
        ...


def check_vectors(vectors: Float32, dimension: int) -> Float32:
    """Return vectors as contiguous Float32[N, dimension].

    Raises:
        ValueError: a wrong shape, or a vector that is not finite.
    """
    checked = np.ascontiguousarray(vectors, dtype=np.float32)
    if checked.ndim != 2 or checked.shape[1] != dimension:
        raise ValueError(f"vectors must have shape (N, {dimension}), not {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError("a vector has a value that is not finite")
    return checked


def check_additions(ids: Int64, vectors: Float32, dimension: int) -> tuple[Int64, Float32]:
    """Return contiguous ids Int64[N] and vectors Float32[N, dimension] that can be added.

    Raises:
        ValueError: a wrong shape, a vector that is not finite, an id below 0 or given twice.
    """
    vectors = check_vectors(vectors, dimension)
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    if ids.shape != (len(vectors),):
        raise ValueError(f"{len(vectors)} vectors need as many ids, not shape {ids.shape}")
    if len(np.unique(ids)) < len(ids) or ids.min(initial=0) < 0:
        raise ValueError("vector ids must be different and not below 0")
    return ids, vectors


def check_queries(vectors: Float32, dimension: int, k: int, nprobe: int | None) -> Float32:
    """Return queries as contiguous Float32[Q, dimension].

    Raises:
        ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
    """
    vectors = check_vectors(vectors, dimension)
    if k < 1 or (nprobe is not None and nprobe < 1):
        raise ValueError(f"k and nprobe must be at least 1, not {k} and {nprobe}")
    return vectors
