"""Examine the words of a store that are in a Milvus: do they follow from the store?"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64, UInt32
from index.doctor.findings import Finding, Remedy
from index.lexical.tables import (
    StoredTerms,
    read_changed,
    read_statistics,
    read_stored_terms,
)
from index.sqlite.connections import SQLiteConnections
from index.vectors.milvus.connection import MilvusAddress
from index.vectors.milvus.engine import open_milvus
from index.vectors.milvus.word_collection import WordCollection, document_weights
from index.vectors.milvus.word_follower import differing

_WHAT = "words in Milvus"
_ROUNDING = 1e-6  # of a weight
_DOCUMENTS_A_READ = 100


def examine_milvus_words(store: Path, milvus: MilvusAddress) -> Iterator[Finding]:
    """Compare the words of a data directory in a Milvus with the store.

    Raises:
        StoreError: the store cannot be read.
        VectorEngineError: the Milvus cannot be used.
    """
    with (
        closing(SQLiteConnections(store, read_only=True)) as connections,
        closing(open_milvus(milvus, store.parent, read_only=True)) as engine,
    ):
        with connections.reading() as connection:
            identity = read_statistics(connection).identity
            ids, changes = read_changed(connection, -1)
        collection = engine.words.collection(identity)
        if not collection.exists():
            if len(ids):
                yield Finding(_WHAT, "there are none of this store", Remedy.FILL_WORDS)
            return
        collection.load()
        missing, superfluous = differing(ids, changes, *collection.held())
        if len(missing):
            problem = f"{len(missing)} documents are missing or old, vector id {missing[0]} for one"
            yield Finding(_WHAT, problem, Remedy.FILL_WORDS)
        if len(superfluous):
            problem = f"{len(superfluous)} documents are not in the store"
            yield Finding(_WHAT, problem, Remedy.FILL_WORDS)
        wrong = _count_different(connections, collection, np.setdiff1d(ids, missing))
        if wrong:
            problem = f"those of {wrong} documents differ from the store"
            yield Finding(_WHAT, problem, Remedy.FILL_WORDS)


def _count_different(
    connections: SQLiteConnections, collection: WordCollection, vector_ids: Int64
) -> int:
    """Count the documents Int64[N] whose words in Milvus are not those of the store."""
    wrong = 0
    for start in range(0, len(vector_ids), _DOCUMENTS_A_READ):
        some = vector_ids[start : start + _DOCUMENTS_A_READ]
        with connections.reading() as connection:
            stored = read_stored_terms(connection, some.tolist())
        held = collection.rows(some)
        wrong += sum(not _is_same(own, held.get(one)) for one, own in _expected(stored))
    return wrong


def _expected(stored: StoredTerms) -> Iterator[tuple[int, tuple[UInt32, Float32]]]:
    documents = stored.documents
    starts = np.append(0, documents.ends[:-1]).tolist()
    for one, start, end in zip(
        documents.vector_ids.tolist(), starts, documents.ends.tolist(), strict=False
    ):
        yield one, (documents.term_ids[start:end], document_weights(documents.counts[start:end]))


def _is_same(expected: tuple[UInt32, Float32], held: tuple[UInt32, Float32] | None) -> bool:
    if held is None or not np.array_equal(expected[0], held[0]):
        return False
    return bool(np.abs(expected[1] - held[1]).max(initial=0.0) <= _ROUNDING * expected[1].max())
