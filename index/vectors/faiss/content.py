"""What an index of lists holds besides its lists: their ids, and the vectors that wait for a list.

Both are replaced, never changed: a search that has begun goes on with what it has. New pending
vectors may be written behind those that it has. Ids are a sorted array, eight bytes each, as a set
of Python's takes ten times as much.

Pending vectors. To find the list of a vector, FAISS reads all centroids, several megabytes, so ten
vectors take half as long as fifty; and searches wait while lists change. Small additions
therefore wait beside the lists, where every search compares them, and are assigned together. They
are rounded as in the lists.
"""

from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.id_set import IdSet
from index.vectors.exact_index import compare_all
from index.vectors.vector_index import SearchResult


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """The content of an index at one sequence of the store.

    Attributes:
        sequence: of the store.
        listed: ids of the vectors in lists, ascending Int64[N].
        waiting: ids of the others, Int64[P].
        rows: Float32[R, dimension], R >= P; the first are those vectors, the rest is room.
    """

    sequence: int
    listed: Int64
    waiting: Int64
    rows: Float32

    @property
    def pending(self) -> Float32:
        """The waiting vectors as the index holds them, Float32[P, dimension]."""
        return self.rows[: len(self.waiting)]

    @property
    def _last(self) -> int:
        """The highest id; -1 where there is none."""
        return int(max(self.waiting.max(initial=-1), self.listed[-1] if len(self.listed) else -1))

    def __len__(self) -> int:
        return len(self.listed) + len(self.waiting)

    @property
    def ids(self) -> Int64:
        """The ids of all vectors, ascending Int64[N + P]."""
        return np.sort(np.concatenate([self.listed, self.waiting]))

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[M] whether its vector is there."""
        if len(ids) and ids.min() > self._last:  # as new ones are
            return np.zeros(len(ids), dtype=np.bool_)
        found: Bool = self.is_listed(ids) | np.isin(ids, self.waiting)
        return found

    def is_listed(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[M] whether its vector is in a list."""
        if not len(self.listed):
            return np.zeros(len(ids), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self.listed, ids), len(self.listed) - 1)
        found: Bool = self.listed[places] == ids
        return found

    def with_pending(self, ids: Int64, vectors: Float32) -> "Content":
        """Return the content with more pending vectors, as the index holds them.

        Of the contents made of one, only the last may be used: they share the room behind its rows.
        """
        if not len(ids):
            return self
        rows, size = self.rows, len(self.waiting)
        if size + len(ids) > len(rows):
            rows = np.empty((2 * (size + len(ids)), rows.shape[1]), dtype=np.float32)
            rows[:size] = self.pending
        rows[size : size + len(ids)] = vectors
        return replace(self, waiting=np.concatenate([self.waiting, ids]), rows=rows)

    def with_listed(self, ids: Int64) -> "Content":
        """Return the content with the ids Int64[M] of vectors that come into lists."""
        new = np.sort(ids)
        last = self.listed[-1] if len(self.listed) else -1
        if len(new) and new[0] < last:
            return replace(self, listed=np.sort(np.concatenate([self.listed, new])))
        return replace(self, listed=np.concatenate([self.listed, new]))

    def without(self, ids: Int64) -> "Content":
        """Return the content without the vectors of ids Int64[M]; unknown ones are ignored."""
        if not len(ids):
            return self
        kept = ~np.isin(self.waiting, ids)
        places = np.searchsorted(self.listed, ids[self.is_listed(ids)])
        return replace(
            self,
            listed=np.delete(self.listed, places) if len(places) else self.listed,
            waiting=self.waiting if kept.all() else self.waiting[kept],
            rows=self.rows if kept.all() else self.pending[kept],
        )

    def without_pending(self) -> "Content":
        """Return the content without its pending vectors."""
        return replace(self, waiting=self.waiting[:0], rows=self.rows[:0].copy())

    def best_of(
        self, found: SearchResult, queries: Float32, among: IdSet | None = None
    ) -> SearchResult:
        """Return the best of those that were found in the lists, [Q, k], and the pending ones."""
        if not len(self.waiting):
            return found
        k = found.ids.shape[1]
        kept = slice(None) if among is None else among.contains(self.waiting)
        vectors = self.pending[kept]
        if not (queries @ vectors.T > found.scores[:, -1:]).any():  # mostly
            return found
        pending = compare_all(queries, self.waiting[kept], vectors, k)
        ids = np.concatenate([found.ids, pending.ids], axis=1)
        scores = np.concatenate([found.scores, pending.scores], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return SearchResult(
            np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        )
