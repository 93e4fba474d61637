"""The words of a store in one collection of a Milvus: a sparse vector for each document.

    dimension   the id of the term in the store
    weight      sqrt(count / number of the terms of the document)

A row depends on its document alone, so that nothing in it ages as the collection grows. Document
frequencies come with the query, whose terms weigh `weight in the query * idf`: the inner product is
then the cosine, but for the norm of the document, which is estimated by the root of the number of
its terms. It finds candidates; their scores are computed from the store.

A collection belongs to one store: another one gives other ids to its terms.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder.arrays import Float32, Float64, Int64, UInt32
from index.errors import VectorEngineError
from index.id_set import IdSet
from index.lexical.tables import JoinedTerms
from index.vectors.milvus.connection import MilvusConnection, translated_errors
from index.vectors.milvus.id_filters import ID_FIELD, IDS_A_REQUEST, MOST_FOUND, id_filters
from index.vectors.rwlock import ReadersWriterLock

TERMS_A_REQUEST = 2**19  # some 6 MiB

_CHANGE_FIELD, _WORDS_FIELD = "change", "words"
_ROWS_A_READ = 100
# The algorithm is the default of the server; a Milvus Lite has only one. No weight is dropped.
_KIND, _METRIC = "SPARSE_INVERTED_INDEX", "IP"


class WordCollection:
    """One collection, which may be missing. Safe to use from many threads."""

    def __init__(self, connection: MilvusConnection, name: str) -> None:
        """Name a collection; `make` or `load` it before anything else."""
        self.name = name
        self._connection = connection
        self._level = "Bounded"  # until the first write of this process
        self._flushing = ReadersWriterLock()

    def exists(self) -> bool:
        """Return whether Milvus has it.

        Raises:
            VectorEngineError: it does not answer.
        """
        return bool(self._call("has_collection"))

    def make(self) -> None:
        """Make it, empty.

        Raises:
            VectorEngineError: it cannot be made.
        """
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(ID_FIELD, DataType.INT64, is_primary=True)
        schema.add_field(_CHANGE_FIELD, DataType.INT64)
        schema.add_field(_WORDS_FIELD, DataType.SPARSE_FLOAT_VECTOR)
        terms = MilvusClient.prepare_index_params()
        terms.add_index(_WORDS_FIELD, index_type=_KIND, metric_type=_METRIC, params={})
        self._call("create_collection", schema=schema, consistency_level="Session")
        self._connection.call("create_index", self.name, terms, sync=False)
        self.load()

    def load(self) -> None:
        """Let Milvus search it.

        Raises:
            VectorEngineError: it cannot, or the collection has other fields.
        """
        fields = {one["name"] for one in self._call("describe_collection")["fields"]}
        if fields != {ID_FIELD, _CHANGE_FIELD, _WORDS_FIELD}:
            problem = f"the collection {self.name} was not made by Longmatch"
            raise VectorEngineError(f"{self._connection.address}: {problem}", answered=True)
        self._call("load_collection", seconds=self._connection.address.load_seconds)

    def drop(self) -> None:
        """Drop it, if it exists.

        Raises:
            VectorEngineError: it could not be dropped.
        """
        self._call("drop_collection")

    def held(self) -> tuple[Int64, Int64]:
        """Return the ids of its documents, ascending, and the change that each is of; Int64[N].

        Raises:
            VectorEngineError: they cannot be read.
        """
        rows = self._read(
            "query_iterator",
            batch_size=IDS_A_REQUEST,
            filter=f"{ID_FIELD} >= 0",
            output_fields=[ID_FIELD, _CHANGE_FIELD],
            consistency_level="Strong",
        )
        found: dict[int, int] = {}
        with translated_errors(self._connection.address):
            while batch := rows.next():
                found |= {int(row[ID_FIELD]): int(row[_CHANGE_FIELD]) for row in batch}
            rows.close()
        ids = np.sort(np.fromiter(found, np.int64, len(found)))
        return ids, np.array([found[one] for one in ids.tolist()], dtype=np.int64)

    def put(self, documents: JoinedTerms, changes: Int64) -> None:
        """Add or replace documents, each with the change Int64[N] of the store that it is of.

        Those without terms are left out: Milvus has no empty vectors.

        Raises:
            VectorEngineError: Milvus did not confirm it; it can be repeated.
        """
        rows: list[dict[str, Any]] = []
        size = 0
        starts = np.append(0, documents.ends[:-1])
        for row, (start, end) in enumerate(
            zip(starts.tolist(), documents.ends.tolist(), strict=True)
        ):
            if start == end:
                continue
            own = slice(start, end)
            weights = document_weights(documents.counts[own])
            words = dict(zip(documents.term_ids[own].tolist(), weights.tolist(), strict=True))
            key = {ID_FIELD: int(documents.vector_ids[row]), _CHANGE_FIELD: int(changes[row])}
            rows.append(key | {_WORDS_FIELD: words})
            size += end - start
            if size >= TERMS_A_REQUEST:
                self._write("upsert", data=rows)
                rows, size = [], 0
        if rows:
            self._write("upsert", data=rows)

    def remove(self, ids: Int64) -> None:
        """Remove documents Int64[N]; those that are not there are ignored.

        Raises:
            VectorEngineError: Milvus did not confirm it; it can be repeated.
        """
        for start in range(0, len(ids), IDS_A_REQUEST):
            some = ids[start : start + IDS_A_REQUEST].tolist()
            self._write("delete", filter=f"{ID_FIELD} in {some}")

    def best(
        self,
        term_ids: Int64,
        weights: Float64,
        k: int,
        among: IdSet | None,
        all_ids: Callable[[], Int64],
    ) -> Int64:
        """Return the k documents of the greatest inner products, Int64[N], in any order.

        Fewer if fewer have one of the terms.

        Args:
            term_ids: Int64[K].
            weights: Float64[K], above 0.
            k: how many.
            among: only these documents.
            all_ids: returns all ids, ascending; called where k exceeds what Milvus returns at once.

        Raises:
            VectorEngineError: Milvus did not answer.
        """
        if not len(term_ids):
            return np.zeros(0, dtype=np.int64)
        query = dict(zip(term_ids.tolist(), weights.tolist(), strict=True))
        found = [np.zeros(0, dtype=np.int64)]
        scores = [np.zeros(0)]
        for where in id_filters(among, k, all_ids):
            hits = self._search(query, min(k, MOST_FOUND), where)
            found.append(np.array([hit[ID_FIELD] for hit in hits], dtype=np.int64))
            scores.append(np.array([hit["distance"] for hit in hits], dtype=np.float64))
        ids, sums = np.concatenate(found), np.concatenate(scores)
        order = np.lexsort((ids, -sums))
        best: Int64 = ids[order[sums[order] > 0][:k]]
        return best

    def _search(self, query: dict[int, float], limit: int, where: str) -> list[dict[str, Any]]:
        with self._flushing.reading():
            answer = self._read(
                "search",
                data=[query],
                anns_field=_WORDS_FIELD,
                limit=limit,
                filter=where,
                output_fields=[ID_FIELD],
                search_params={"metric_type": _METRIC, "params": {}},
                consistency_level=self._level,
            )
        return list(answer[0])

    def rows(self, ids: Int64) -> dict[int, tuple[UInt32, Float32]]:
        """Return the terms and weights of documents Int64[N], by id; missing ones are absent.

        Raises:
            VectorEngineError: they cannot be read.
        """
        found = {}
        for start in range(0, len(ids), _ROWS_A_READ):
            some = ids[start : start + _ROWS_A_READ].tolist()
            rows = self._read(
                "query",
                filter=f"{ID_FIELD} in {some}",
                output_fields=[ID_FIELD, _WORDS_FIELD],
                consistency_level="Strong",
            )
            for row in rows:
                words = sorted(row[_WORDS_FIELD].items())
                term_ids = np.array([one for one, _ in words], dtype=np.uint32)
                weights = np.array([weight for _, weight in words], dtype=np.float32)
                found[int(row[ID_FIELD])] = (term_ids, weights)
        return found

    def flush(self) -> None:
        """Let Milvus write the words to its disk.

        Raises:
            VectorEngineError: it did not confirm it.
        """
        self._connection.flush(self.name, self._flushing)

    def _write(self, name: str, **named: Any) -> None:
        self._call(name, **named)
        self._level = "Session"

    def _call(self, name: str, *, seconds: float | None = None, **named: Any) -> Any:
        return self._connection.call(name, self.name, seconds=seconds, **named)

    def _read(self, name: str, **named: Any) -> Any:
        try:
            return self._call(name, **named)
        except VectorEngineError as error:
            if not error.answered:
                raise
        self.load()  # a Milvus that was started again may have it on its disk only
        return self._call(name, **named)


def document_weights(counts: Any) -> Float32:
    """Return the weights Float32[U] of the terms of a document from their counts [U]."""
    weights: Float32 = np.sqrt(counts.astype(np.float32) / np.float32(max(1, len(counts))))
    return weights
