"""One collection of a Milvus behind the vector index port.

The collection holds the vectors, and Milvus keeps them on its disk. This process, the only one that
changes the collection, knows which ids are in it: an id counts as there when Milvus has confirmed
it, and no more as soon as it is to be removed. What Milvus finds besides, such as a half of a
change that failed, is left out.

Consistency. A request names the time of the last write of this process, and Milvus answers it as of
then ("Session"). Where it finds a vector that was removed all the same, which servers before 2.4
do just after a removal, it is asked again for an answer as of now ("Strong").

Lists. They are those of an IVF_FLAT index, which Milvus trains by itself for each segment; it does
not tell how many vectors each has. Vectors that came lately are in no list yet, and are all
compared. One list is a FLAT index, which compares all vectors.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.errors import VectorEngineError
from index.id_set import IdSet
from index.vectors.lists import default_nprobe
from index.vectors.milvus.connection import MilvusConnection, translated_errors
from index.vectors.milvus.id_filters import ID_FIELD, IDS_A_REQUEST, MOST_FOUND, id_filters
from index.vectors.rwlock import ReadersWriterLock
from index.vectors.vector_index import (
    NO_VECTOR,
    SearchResult,
    check_additions,
    check_queries,
    check_vectors,
)

ROWS_A_REQUEST = 1_000  # with their vectors
QUERIES_A_REQUEST = 256
LEAST_INDEXED = 1_024  # rows of a segment; for fewer a server makes no lists
EXACT_UP_TO = 2_000  # selected vectors that all lists are visited for

_POLL_SECONDS = 0.1

VECTOR_FIELD = "vector"


class MilvusIndex:
    """Vectors in one collection; the `VectorIndex` port over the network."""

    exact = True

    def __init__(self, connection: MilvusConnection, name: str, dimension: int, nlist: int) -> None:
        """Use a collection; `milvus.engine` makes and loads one.

        Raises:
            VectorEngineError: its ids cannot be read.
        """
        self.name = name
        self._connection = connection
        self._dimension = dimension
        self._nlist = nlist
        self._sequence = 0
        self._ids: set[int] = set()
        self._unconfirmed: set[int] = set()  # not in `_ids`; perhaps in the collection
        self._level = "Bounded"  # until the first write of this process
        self._lock = ReadersWriterLock()

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._dimension

    @property
    def nlist(self) -> int:
        """How many lists, or cells, each segment is divided into."""
        return self._nlist

    @property
    def sequence(self) -> int:
        """The sequence of the last `change` that gave one; 0 before the first."""
        return self._sequence

    def __len__(self) -> int:
        return len(self._ids)

    def list_sizes(self) -> Int64:
        """Return Int64[nlist], as if all lists had the same size: Milvus does not tell it."""
        sizes = np.full(self._nlist, len(self) // self._nlist, dtype=np.int64)
        sizes[: len(self) % self._nlist] += 1
        return sizes

    def contains(self, ids: Int64) -> Bool:
        """Return for each of ids Int64[N] whether its vector is there."""
        with self._lock.reading():
            return self._known(ids)

    def _known(self, ids: Int64) -> Bool:
        return np.fromiter((one in self._ids for one in ids.tolist()), np.bool_, len(ids))

    def ids(self) -> Int64:
        """Return the ids of all vectors, ascending Int64[N]."""
        with self._lock.reading():
            return self._all_ids()

    def _all_ids(self) -> Int64:
        return np.sort(np.fromiter(self._ids, np.int64, len(self._ids)))

    def read_ids(self) -> None:
        """Learn which ids the collection has.

        Raises:
            VectorEngineError: they cannot be read.
        """
        with self._lock.writing():
            rows = self._read(
                "query_iterator",
                batch_size=IDS_A_REQUEST,
                filter=f"{ID_FIELD} >= 0",
                output_fields=[ID_FIELD],
                consistency_level="Strong",
            )
            found: set[int] = set()
            with translated_errors(self._connection.address):
                while batch := rows.next():
                    found.update(int(row[ID_FIELD]) for row in batch)
                rows.close()
            self._ids = found

    def vectors(self, ids: Int64) -> Float32:
        """Return the vectors Float32[N, dimension] of ids Int64[N]; NaN for those not there.

        Raises:
            VectorEngineError: they cannot be read.
        """
        vectors = np.full((len(ids), self._dimension), np.nan, dtype=np.float32)
        with self._lock.reading():
            places = np.flatnonzero(self._known(ids))
            for start in range(0, len(places), ROWS_A_REQUEST):
                part = places[start : start + ROWS_A_REQUEST]
                read = self._read_vectors(ids[part].tolist())
                for place in part.tolist():
                    vectors[place] = read.get(int(ids[place]), np.nan)
        return vectors

    def _read_vectors(self, ids: list[int]) -> dict[int, Any]:
        level = self._level
        while True:
            rows = self._read(
                "query",
                filter=f"{ID_FIELD} in {ids}",
                output_fields=[ID_FIELD, VECTOR_FIELD],
                consistency_level=level,
            )
            read = {int(row[ID_FIELD]): row[VECTOR_FIELD] for row in rows}
            if level == "Strong" or all(one in read for one in ids):
                return read
            level = "Strong"

    def change(
        self,
        ids: Int64,
        vectors: Float32,
        *,
        removed: Int64 | None = None,
        sequence: int | None = None,
    ) -> None:
        """Add and remove vectors at once; see `VectorIndex.change`.

        After an error of Milvus nothing has changed for searches, and the same change can be
        repeated.

        Raises:
            ValueError: as `VectorIndex.change`; nothing was changed.
            VectorEngineError: Milvus did not confirm it.
        """
        ids, vectors = check_additions(ids, vectors, self._dimension)
        with self._lock.writing():
            new = set(ids.tolist())
            if known := self._ids & new:
                raise ValueError(f"vector id {min(known)} is already there")
            gone = set() if removed is None else set(removed.tolist()) & (self._ids | new)
            stale = self._unconfirmed - new
            self._unconfirmed |= new
            self._write(ids, vectors, sorted(gone | stale))
            self._ids = (self._ids | new) - gone if len(new) + len(gone) else self._ids
            self._unconfirmed.clear()
            if sequence is not None:
                self._sequence = sequence

    def _write(self, ids: Int64, vectors: Float32, gone: list[int]) -> None:
        """Add vectors first: an error between the two leaves what is removed to be removed."""
        for start in range(0, len(ids), ROWS_A_REQUEST):
            rows = slice(start, start + ROWS_A_REQUEST)
            pairs = zip(ids[rows].tolist(), vectors[rows], strict=True)
            # Not an insertion: one that is repeated after a lost answer would be there twice.
            self._call(
                "upsert", data=[{ID_FIELD: one, VECTOR_FIELD: vector} for one, vector in pairs]
            )
            self._level = "Session"
        for start in range(0, len(gone), IDS_A_REQUEST):
            self._call("delete", filter=f"{ID_FIELD} in {gone[start : start + IDS_A_REQUEST]}")
            self._level = "Session"

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
            VectorEngineError: Milvus did not answer.
        """
        vectors = check_queries(vectors, self._dimension, k, nprobe)
        nprobe = default_nprobe(self._nlist) if nprobe is None else min(nprobe, self._nlist)
        with self._lock.reading():
            count = len(self._ids)
            if not len(vectors) or not count:
                return _nothing(len(vectors), k, self._sequence)
            if among is not None:
                most = max(1, among.most(count))
                nprobe = self._nlist if most <= EXACT_UP_TO else -(-nprobe * count // most)
                nprobe = min(nprobe, self._nlist)
            found = self._search(vectors, k, nprobe, among)
            if among is not None and nprobe < self._nlist and (found.ids == NO_VECTOR).any():
                # The selected vectors lie in few lists, and not in those near a query.
                found = self._search(vectors, k, self._nlist, among)
            return found

    def _search(self, vectors: Float32, k: int, nprobe: int, among: IdSet | None) -> SearchResult:
        filters = id_filters(among, k, self._all_ids)
        parts = [self._search_part(vectors, k, nprobe, one) for one in filters]
        if not parts:
            return _nothing(len(vectors), k, self._sequence)
        ids = np.concatenate([part.ids for part in parts], axis=1)
        scores = np.concatenate([part.scores for part in parts], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return SearchResult(
            np.take_along_axis(ids, order, axis=1),
            np.take_along_axis(scores, order, axis=1),
            self._sequence,
        )

    def _search_part(self, vectors: Float32, k: int, nprobe: int, where: str) -> SearchResult:
        found = _nothing(len(vectors), k, self._sequence)
        for start in range(0, len(vectors), QUERIES_A_REQUEST):
            rows = slice(start, start + QUERIES_A_REQUEST)
            ids, scores = self._ask(vectors[rows], k, nprobe, where, self._level)
            stale = (ids != NO_VECTOR) & ~self._known(ids.ravel()).reshape(ids.shape)
            if stale.any():
                ids, scores = self._ask(vectors[rows], k, nprobe, where, "Strong")
                stale = (ids != NO_VECTOR) & ~self._known(ids.ravel()).reshape(ids.shape)
                ids[stale], scores[stale] = NO_VECTOR, -np.inf
            found.ids[rows], found.scores[rows] = ids, scores
        return found

    def _ask(
        self, vectors: Float32, k: int, nprobe: int, where: str, level: str
    ) -> tuple[Int64, Float32]:
        """Return the ids Int64[Q, k] and scores Float32[Q, k] that Milvus finds."""
        parameters = {"nprobe": nprobe} if self._nlist > 1 else {}
        answer = self._read(
            "search",
            data=vectors,
            anns_field=VECTOR_FIELD,
            limit=min(k, MOST_FOUND),
            filter=where,
            search_params={"metric_type": "IP", "params": parameters},
            consistency_level=level,
        )
        found = _nothing(len(vectors), k, self._sequence)
        for row, hits in enumerate(answer):
            found.ids[row, : len(hits)] = [hit[ID_FIELD] for hit in hits]
            found.scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return found.ids, found.scores

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Score the k nearest vectors of one query in all lists; see `VectorIndex.exact_scores`.

        Raises:
            VectorEngineError: Milvus did not answer.
        """
        query = check_vectors(vector[np.newaxis], self._dimension)
        found = self.search(query, k, nprobe=self._nlist)
        return found.scores[0], found.sequence

    def save(self, path: Path) -> None:
        """Let Milvus write the vectors to its disk, and name the collection in a new file.

        Raises:
            OSError: the file cannot be written whole.
            VectorEngineError: Milvus did not confirm it.
        """
        with path.open("x", encoding="utf-8") as file:
            self.flush()
            json.dump({"collection": self.name, "nlist": self._nlist}, file)

    def flush(self) -> None:
        """Let Milvus write the vectors to its disk.

        Raises:
            VectorEngineError: it did not confirm it.
        """
        self._connection.flush(self.name, self._lock)

    def settle(self) -> None:
        """Let Milvus write the vectors to its disk, and wait until it searches them in lists.

        Until then a server searches with an interim index, which `nprobe` does not change.

        Raises:
            VectorEngineError: it did not do so in time.
        """
        self.flush()
        if self._nlist == 1:
            return
        seconds = self._connection.address.load_seconds
        end = time.monotonic() + seconds
        while self._rows_in_lists() < len(self):
            if time.monotonic() > end:
                address = self._connection.address
                raise VectorEngineError(f"{address}: made no lists of {self.name} in {seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def _rows_in_lists(self) -> int:
        """Count the rows that are in lists, or in segments too small for lists."""
        segments = self._call("list_loaded_segments")
        return sum(
            one.num_rows for one in segments if one.index_name or one.num_rows < LEAST_INDEXED
        )

    def _call(self, name: str, *, seconds: float | None = None, **named: Any) -> Any:
        return self._connection.call(name, self.name, seconds=seconds, **named)

    def _read(self, name: str, **named: Any) -> Any:
        try:
            return self._call(name, **named)
        except VectorEngineError as error:
            if not error.answered:
                raise
        # A Milvus that was started again may have the collection on its disk only.
        self._call("load_collection", seconds=self._connection.address.load_seconds)
        return self._call(name, **named)


def _nothing(queries: int, k: int, sequence: int) -> SearchResult:
    return SearchResult(
        np.full((queries, k), NO_VECTOR, dtype=np.int64),
        np.full((queries, k), -np.inf, dtype=np.float32),
        sequence,
    )
