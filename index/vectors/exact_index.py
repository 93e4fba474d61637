"""Exact search with NumPy: every query is compared with every vector.

The reference that the recall of every other engine is measured against. Each change replaces the
arrays as a whole, so a search works on the arrays that it found and takes no lock.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.errors import SnapshotError
from index.id_set import IdSet
from index.vectors.bulk import nearest
from index.vectors.vector_index import (
    NO_VECTOR,
    SearchResult,
    check_additions,
    check_queries,
)


@dataclass(frozen=True, slots=True)
class _Content:
    """Vectors Float32[N, dimension] under ids Int64[N], ascending, as of `sequence`."""

    ids: Int64
    vectors: Float32
    sequence: int


class ExactIndex:
    """All vectors in one array; the `VectorIndex` port in one process."""

    exact = True
    nlist = 1

    def __init__(self, ids: Int64, vectors: Float32) -> None:
        """Hold vectors Float32[N, dimension] under ids Int64[N].

        Raises:
            ValueError: a wrong shape, a vector that is not finite, an id below 0 or given twice.
        """
        ids, vectors = check_additions(ids, vectors, vectors.shape[-1])
        order = np.argsort(ids)
        self._content = _Content(ids[order], vectors[order], 0)
        self._changing = threading.Lock()

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return int(self._content.vectors.shape[1])

    @property
    def sequence(self) -> int:
        """The sequence of the last `change` that gave one; 0 before the first."""
        return self._content.sequence

    def __len__(self) -> int:
        return len(self._content.ids)

    def list_sizes(self) -> Int64:
        """Return how many vectors the only list holds, Int64[1]."""
        return np.array([len(self)], dtype=np.int64)

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[N] whether its vector is there."""
        return np.isin(ids, self._content.ids)

    def ids(self) -> Int64:
        """Return the ids of all vectors, ascending Int64[N]."""
        return self._content.ids

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N]; NaN for those not there."""
        content = self._content
        vectors = np.full((len(ids), self.dimension), np.nan, dtype=np.float32)
        known = np.isin(ids, content.ids)
        vectors[known] = content.vectors[np.searchsorted(content.ids, ids[known])]
        return vectors

    def change(
        self,
        ids: Int64,
        vectors: Float32,
        *,
        removed: Int64 | None = None,
        sequence: int | None = None,
    ) -> None:
        """Add and remove vectors at once; see `VectorIndex.change`.

        Raises:
            ValueError: as `VectorIndex.change`; nothing was changed.
        """
        ids, vectors = check_additions(ids, vectors, self.dimension)
        with self._changing:
            before = self._content
            known = np.intersect1d(ids, before.ids)
            if len(known):
                raise ValueError(f"vector id {known[0]} is already there")
            all_ids = np.concatenate([before.ids, ids])
            order = np.argsort(all_ids)
            if removed is not None:
                order = order[~np.isin(all_ids[order], removed)]
            self._content = _Content(
                all_ids[order],
                np.concatenate([before.vectors, vectors])[order],
                before.sequence if sequence is None else sequence,
            )

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query; see `VectorIndex.search`.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        queries = check_queries(vectors, self.dimension, k, nprobe)
        content = self._content
        if among is None:
            return compare_all(queries, content.ids, content.vectors, k, content.sequence)
        kept = among.contains(content.ids)
        return compare_all(queries, content.ids[kept], content.vectors[kept], k, content.sequence)

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query; see `VectorIndex.exact_scores`."""
        found = self.search(vector[np.newaxis], k)
        return found.scores[0], found.sequence

    def save(self, path: Path) -> None:
        """Write the index to one new file.

        Raises:
            OSError: the file cannot be written whole.
        """
        content = self._content
        with path.open("xb") as file:
            np.savez(file, ids=content.ids, vectors=content.vectors)


def load_exact_index(path: Path) -> ExactIndex:
    """Read an index that `ExactIndex.save` wrote.

    Raises:
        SnapshotError: the file is missing, damaged or holds something else.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return ExactIndex(arrays["ids"], arrays["vectors"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, BadZipFile) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error


def compare_all(
    queries: Float32, ids: Int64, vectors: Float32, k: int, sequence: int = 0
) -> SearchResult:
    """Compare every query Float32[Q, D] with every vector Float32[N, D] under ids Int64[N]."""
    found = SearchResult(
        np.full((len(queries), k), NO_VECTOR, dtype=np.int64),
        np.full((len(queries), k), -np.inf, dtype=np.float32),
        sequence,
    )
    best = min(k, len(ids))
    if best and len(queries):
        scores, rows = nearest(queries, vectors, best)
        found.ids[:, :best] = ids[rows]
        found.scores[:, :best] = scores
    return found
