"""The words of a store in a Milvus, where that fails or was changed from outside."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from index.errors import VectorEngineError
from index.lexical.lexical_index import LexicalIndex
from index.store.document_store import SQLiteDocumentStore
from index.vectors.milvus import connection as connections
from index.vectors.milvus.connection import MilvusAddress
from index.vectors.milvus.engine import MilvusEngine
from index.vectors.milvus.word_index import MilvusWordIndex, open_words
from tests.tools.index_fixtures import MakeEntry, OpenStore

Open = Callable[..., SQLiteDocumentStore]


@pytest.fixture
def open_one(milvus_engine: MilvusEngine, open_store: OpenStore) -> Open:
    def make(*, read_only: bool = False) -> SQLiteDocumentStore:
        words = partial(open_words, engine=milvus_engine.words, read_only=read_only)
        return open_store(read_only=read_only, make_words=words)

    return make


def found(store: SQLiteDocumentStore, text: str) -> int:
    return len(store.lexical.search(store.lexical.read(text), 5).vector_ids)


def only_collection(engine: MilvusEngine) -> str:
    names = engine.connection.call("list_collections")
    [name] = [one for one in names if engine.owner in one]
    return str(name)


def test_a_collection_that_was_dropped_is_filled_again(
    open_one: Open, milvus_engine: MilvusEngine, entry: MakeEntry
) -> None:
    store = open_one()
    store.put([entry(f"d{n}", f"heron {n} {'marsh' if n else 'fen'}") for n in range(4)])
    assert found(store, "marsh") == 3
    milvus_engine.connection.call("drop_collection", only_collection(milvus_engine))
    with pytest.raises(VectorEngineError):
        found(store, "marsh")
    assert store.lexical.problem is not None
    store.lexical.check()
    assert store.lexical.problem is None
    assert found(store, "marsh") == 3


def test_opening_repairs_rows_that_are_missing_old_or_not_of_the_store(
    open_one: Open, milvus_engine: MilvusEngine, entry: MakeEntry
) -> None:
    store = open_one()
    store.put([entry(f"d{n}", f"heron {n} {'marsh' if n else 'fen'}") for n in range(4)])
    assert found(store, "marsh") == 3
    store.close()
    name, call = only_collection(milvus_engine), milvus_engine.connection.call
    call("delete", name, ids=[2])
    old = {"id": 3, "change": 0, "words": {1: 1.0}}
    call("upsert", name, data=[old, old | {"id": 99}])
    again = open_one()
    assert found(again, "marsh") == 3
    ids, _ = milvus_engine.words.collection(name.rsplit("_", 1)[1]).held()
    np.testing.assert_array_equal(ids, again.changes_since(0).added)


def test_a_collection_of_another_form_is_made_again(
    open_one: Open, milvus_engine: MilvusEngine, entry: MakeEntry
) -> None:
    store = open_one()
    store.put([entry(f"d{n}", f"heron {n} {'marsh' if n else 'fen'}") for n in range(4)])
    store.close()
    name = only_collection(milvus_engine)
    milvus_engine.connection.call("drop_collection", name)
    milvus_engine.connection.call("create_collection", name, dimension=4)
    assert found(open_one(), "marsh") == 3


def test_a_process_that_reads_uses_the_words_of_the_one_that_writes(
    open_one: Open, milvus_engine: MilvusEngine, entry: MakeEntry
) -> None:
    writer = open_one()
    without_words = open_one(read_only=True)
    assert isinstance(without_words.lexical, LexicalIndex)
    writer.put([entry(f"d{n}", f"heron {n} {'marsh' if n else 'fen'}") for n in range(4)])
    reader = open_one(read_only=True)
    assert isinstance(reader.lexical, MilvusWordIndex)
    assert found(reader, "marsh") == found(without_words, "marsh") == 3
    writer.delete(["d1"])
    assert found(reader, "marsh") == 2


def test_a_milvus_without_sparse_vectors_is_refused(
    milvus_address: MilvusAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = MilvusAddress(milvus_address.uri, words=True)
    for version, refused in (("v2.3.5", True), ("v2.4.0-rc.1", False), ("2.5.4", False)):
        if refused:
            with pytest.raises(VectorEngineError, match=r"2\.4 or later is needed for words"):
                connections._check_version(address, version)
        else:
            connections._check_version(address, version)
    connections._check_version(MilvusAddress(milvus_address.uri), "v2.3.5")


def test_what_closing_interrupts_is_written_by_the_next_opening(
    open_one: Open, open_store: OpenStore, entry: MakeEntry
) -> None:
    local = open_store()
    local.put([entry(f"d{n}", f"heron {n} {'marsh' if n else 'fen'}") for n in range(4)])
    local.close()
    store = open_one()
    store.lexical.close()
    with pytest.raises(VectorEngineError, match="is being closed"):
        found(store, "marsh")
    assert found(open_one(), "marsh") == 3
