"""Copies of one PostgreSQL: they hold what the database holds, whichever server wrote it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import numpy as np
import psycopg
import pytest

import index.postgres.history
from encoder.alignment.space import MIN_DOCUMENTS, neutral_space
from index.directory.data_directory import DataDirectory, open_data_directory
from index.errors import StoreError
from index.postgres.address import Database, parse_postgresql_url
from index.progress import SilentProgress
from index.replica.copied_store import CopiedDocumentStore
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry, unit_vectors
from tests.tools.postgresql import PostgreSQLServer

Open = Callable[..., CopiedDocumentStore]


@pytest.fixture
def database(postgresql_server: PostgreSQLServer) -> Database:
    return Database(parse_postgresql_url(postgresql_server.url, f"r{uuid4().hex}"))


@pytest.fixture
def open_copy(tmp_path: Path, database: Database) -> Iterator[Open]:
    """Open copies of one database by their names, each in a data directory of its own."""
    with ExitStack() as directories:

        def make(name: str = "one") -> CopiedDocumentStore:
            store = directories.enter_context(opened(tmp_path / name, database)).store
            assert isinstance(store, CopiedDocumentStore)
            return store

        yield make


def opened(path: Path, database: Database) -> closing[DataDirectory]:
    return closing(
        open_data_directory(path, fingerprint=FINGERPRINT, dimension=DIMENSION, database=database)
    )


def execute(database: Database, statement: str) -> None:
    named = statement.replace("{s}", f'"{database.address.schema}"')
    with psycopg.connect(database.address.conninfo, autocommit=True) as connection:
        connection.execute(named.encode())


def texts(store: CopiedDocumentStore, names: list[str]) -> dict[str, tuple[str, str]]:
    found = store.find(names)
    return {n: (one.document.text, one.document.title) for n, one in found.items()}


def test_a_copy_follows_texts_titles_and_removals(open_copy: Open, entry: MakeEntry) -> None:
    one, other = open_copy("one"), open_copy("other")
    one.put([entry("a", "first text", "A"), entry("b", "second text"), entry("c", "third text")])
    assert other.follow()
    assert not other.follow()
    one.put([entry("a", "first text", "B", year=2020), entry("b", "other text")])
    one.delete(["c"])
    other.follow()
    for store in (one, other):
        assert texts(store, ["a", "b", "c"]) == {"a": ("first text", "B"), "b": ("other text", "")}
        assert store.changes_since(0).added.tolist() == [1, 4]
        assert (store.sequence, len(store)) == (3, 2)
        words = store.lexical.search(store.lexical.read("other text"), 5)
        assert words.vector_ids.tolist()[0] == 4
    assert other.get([1])[1].metadata == {"year": 2020}


def test_writes_of_many_at_once_are_neither_lost_nor_doubled(
    open_copy: Open, entry: MakeEntry
) -> None:
    stores = [open_copy("one"), open_copy("other")]
    names = [f"d{n}" for n in range(40)]
    start = threading.Barrier(len(stores))

    def write(store: CopiedDocumentStore) -> None:
        start.wait()
        for n in range(0, len(names), 4):
            store.put([entry(name, f"text of {name}") for name in names[n : n + 4]])

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, stores))
    for store in stores:
        store.follow()
        assert texts(store, names) == {name: (f"text of {name}", "") for name in names}
        assert len(store) == store.log.last_vector_id == len(names)


def test_a_copying_that_was_interrupted_goes_on(
    open_copy: Open, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_copy("one")
    one.put([entry(f"d{n}", f"text {n}") for n in range(10)])
    monkeypatch.setattr("index.replica.changes.ROWS_A_STEP", 4)
    insert, calls = CopiedDocumentStore._insert, []

    def fail_at_the_third(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise StoreError("killed")
        insert(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CopiedDocumentStore, "_insert", fail_at_the_third)
    with pytest.raises(StoreError, match="killed"):
        open_copy("other")
    one.delete(["d1", "d9"])
    one.put([entry("d2", "text 2", "titled"), entry("d10", "text 10")])
    other = open_copy("other")
    assert len(calls) == 5  # two before, two after
    names = [f"d{n}" for n in range(11)]
    assert texts(other, names) == texts(one, names)
    assert other.changes_since(0).added.tolist() == one.changes_since(0).added.tolist()


def test_a_database_of_another_history_is_copied_anew(
    open_copy: Open, entry: MakeEntry, database: Database, tmp_path: Path
) -> None:
    one = open_copy("one")
    with opened(tmp_path / "other", database) as other:
        one.put([entry("a")])
        assert isinstance(other.store, CopiedDocumentStore)
        other.store.follow()
        # As after a restore: the same numbers, other documents.
        execute(database, "UPDATE {s}.writes SET stamp = 'another'")
        one.database.delete(["a"])
        one.database.put([entry("b")])
        execute(database, "UPDATE {s}.meta SET revision = 2")
        execute(database, "UPDATE {s}.writes SET stamp = 'one more'")
        with pytest.raises(StoreError, match="of another history"):
            other.store.follow()
        assert "of another history" in str(other.store.problem)
    with opened(tmp_path / "other", database) as other:
        assert list(other.store.find(["a", "b"])) == ["b"]
        assert len(other.index) == 1


def test_a_copy_too_far_behind_is_made_anew(
    database: Database, entry: MakeEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.postgres.history, "KEPT_WRITES", 2)
    monkeypatch.setattr(index.postgres.history, "_BETWEEN_FORGETTING", 1)

    with opened(tmp_path / "late", database) as late:
        late.store.put([entry("a"), entry("z", "another text")])
    with opened(tmp_path / "one", database) as one:
        for n in range(6):
            one.store.put([entry("a", f"text {n}")])
        one.store.delete(["z"])
    with opened(tmp_path / "late", database) as late:
        assert [late.store.find(["a"])["a"].document.text, len(late.store)] == ["text 5", 1]
        assert len(late.index) == 1


def test_a_damaged_document_is_left_out_until_it_is_put_again(
    open_copy: Open, entry: MakeEntry, database: Database, tmp_path: Path
) -> None:
    one = open_copy("one")
    one.put([entry("a"), entry("b", "another text")])
    execute(database, "UPDATE {s}.documents SET title = 'changed' WHERE id = 'a'")
    with opened(tmp_path / "other", database) as other:
        assert list(other.store.find(["a", "b"])) == ["b"]
    with opened(tmp_path / "other", database) as other:  # which knows of it
        other.store.put([entry("a")])
        assert sorted(other.store.find(["a", "b"])) == ["a", "b"]
    one.follow()
    assert one.find(["a"])["a"].vector_id == 3


def test_all_copies_align_in_one_space(open_copy: Open, entry: MakeEntry) -> None:
    one, other = open_copy("one"), open_copy("other")
    one.alignment.start_with(neutral_space(DIMENSION))
    other.alignment.start_with(neutral_space(DIMENSION))  # which takes that of the first one
    blocks = unit_vectors(64, seed=5)
    offsets = np.arange(128, dtype=np.uint32).reshape(64, 2)

    def with_blocks(n: int) -> EncodedDocument:
        made = entry(f"d{n}", f"text {n}")
        rows = unit_vectors(64, seed=n) + blocks
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return EncodedDocument(
            made.document, made.vector, made.receipt, BlockVectors(offsets, rows)
        )

    one.put([with_blocks(n) for n in range(MIN_DOCUMENTS)])
    for store in (one, other):  # the second one wants to fit one, too, and takes the first
        store.follow()
        assert store.alignment.has_next() == (store is other)
        store.alignment.refresh(SilentProgress(), fit=store.alignment.drift() > 0.5)
        assert not store.alignment.pending()
        assert not store.alignment.has_next()
    spaces = [store.alignment.space() for store in (one, other)]
    assert spaces[0] is not None
    assert spaces[1] is not None
    assert np.array_equal(spaces[0].space.mean, spaces[1].space.mean)
    ids = one.changes_since(0).added.tolist()
    aligned = [store.alignment.read(ids) for store in (one, other)]
    assert aligned[0] is not None
    assert aligned[1] is not None
    for vector_id in ids:
        ours, theirs = (found.blocks[vector_id] for found in aligned if found is not None)
        assert np.array_equal(ours.codes, theirs.codes)
