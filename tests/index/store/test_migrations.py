"""A store of the format before the lexical index is brought up to date; a kill does no harm."""

import inspect
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from index.doctor.derived_checks import examine_families
from index.errors import FingerprintMismatchError, StoreError
from index.lexical.tables import LEXICAL_TABLES
from index.lexical.terms import count_terms
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import SQLiteDocumentStore
from index.store.filters import OneOf
from index.store.records import EncodedDocument
from index.store.schema import (
    SCHEMA_VERSION,
    VERSION_WITHOUT_BLOCKS,
    VERSION_WITHOUT_TITLES,
    VERSION_WITHOUT_WORDS,
)

MakeEntry = Callable[..., EncodedDocument]
OpenStore = Callable[..., SQLiteDocumentStore]

REPOSITORY = Path(__file__).parents[3]
DOCUMENTS = 600  # more than one transaction takes


def make_old(path: Path) -> None:
    """Give a store the former format: what it held, without the tables of the index."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in LEXICAL_TABLES:
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP TABLE block_vectors")
        connection.execute("DROP TABLE metadata_values")
        connection.execute("DROP TABLE checksums")
        connection.execute(f"PRAGMA user_version = {VERSION_WITHOUT_WORDS}")


def make_second(path: Path) -> None:
    """Give a store the format before the block vectors."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE block_vectors")
        connection.execute("DROP TABLE metadata_values")
        connection.execute("DROP TABLE checksums")
        connection.execute(f"PRAGMA user_version = {VERSION_WITHOUT_BLOCKS}")


def make_third(path: Path) -> None:
    """Give a store the format before the values of the metadata."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE metadata_values")
        connection.execute(f"PRAGMA user_version = {VERSION_WITHOUT_TITLES}")


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def counted_in(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT term, documents FROM terms"))


def found_by(store: SQLiteDocumentStore, text: str) -> set[str]:
    matches = store.lexical.search(store.lexical.read(text), 1000)
    return {one.id for one in store.get(matches.vector_ids.tolist()).values()}


@pytest.fixture
def old_store(open_store: OpenStore, entry: MakeEntry, tmp_path: Path) -> Path:
    store = open_store()
    store.put(
        [entry(f"d{n}", f"common {'even' if n % 2 == 0 else 'odd'} w{n}") for n in range(600)]
    )
    store.delete(["d1"])
    store.close()
    make_old(tmp_path / "store.sqlite3")
    return tmp_path / "store.sqlite3"


def test_an_old_store_is_brought_up_to_date(
    open_store: OpenStore, entry: MakeEntry, old_store: Path
) -> None:
    store = open_store()
    assert version_of(old_store) == SCHEMA_VERSION
    assert len(store) == DOCUMENTS - 1
    assert found_by(store, "w77") == {"d77"}
    assert len(found_by(store, "odd")) == DOCUMENTS // 2 - 1
    assert found_by(store, "w1") == set()
    store.put([entry("d77", "changed")])
    assert found_by(store, "w77") == set()
    store.close()
    assert found_by(open_store(read_only=True), "changed") == {"d77"}


def test_an_empty_old_store_is_brought_up_to_date(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    open_store().close()
    make_old(tmp_path / "store.sqlite3")
    store = open_store()
    store.put([entry("a", "first"), entry("b", "second")])
    assert found_by(store, "first") == {"a"}


def test_a_store_without_metadata_values_is_brought_up_to_date(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    store = open_store()
    blocks = BlockVectors(np.array([[0, 4]]), np.eye(1, 8, dtype=np.float32))
    store.put([replace(entry("a", "first", year=2020), blocks=blocks), entry("c", year=2021)])
    store.close()
    make_third(tmp_path / "store.sqlite3")
    with pytest.raises(StoreError, match=r"has format 3, .*open it for writing once"):
        open_store(read_only=True)
    store = open_store()
    assert version_of(tmp_path / "store.sqlite3") == SCHEMA_VERSION
    assert store.select(OneOf("/year", (2020,))).ids.tolist() == [1]
    assert store.block_vectors([1]).keys() == {1}  # they are kept
    store.put([entry("a", "first", year=2021)])
    assert store.select(OneOf("/year", (2021,))).ids.tolist() == [1, 2]


@pytest.mark.parametrize("damaged", ["[", "5", '["ab", "c"]'])
def test_a_store_of_damaged_metadata_stays_as_it_was(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path, damaged: str
) -> None:
    store = open_store()
    store.put([entry("a", year=2020), entry("b", year=2021)])
    store.close()
    path = tmp_path / "store.sqlite3"
    make_third(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE documents SET metadata = ? WHERE id = 'b'", (damaged,))
    with pytest.raises(StoreError, match="metadata of a document is damaged"):
        open_store()
    assert version_of(path) == VERSION_WITHOUT_TITLES


def test_a_store_without_block_vectors_is_brought_up_to_date(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    store = open_store()
    blocks = BlockVectors(np.array([[0, 4]]), np.eye(1, 8, dtype=np.float32))
    store.put([replace(entry("a", "first words"), blocks=blocks), entry("c", "other")])
    sequence = store.sequence
    store.close()
    make_second(tmp_path / "store.sqlite3")
    with pytest.raises(StoreError, match=r"has format 2, .*open it for writing once"):
        open_store(read_only=True)
    store = open_store()
    assert version_of(tmp_path / "store.sqlite3") == SCHEMA_VERSION
    assert store.block_vectors([1]) == {}  # its text would have to be encoded
    assert found_by(store, "first") == {"a"}
    assert store.sequence == sequence  # the index has nothing to catch up with
    change = store.put([replace(entry("b", "second"), blocks=blocks)])
    assert store.block_vectors(change.added.tolist()).keys() == {3}


def test_reading_only_says_what_to_do_and_changes_nothing(
    open_store: OpenStore, old_store: Path
) -> None:
    with pytest.raises(StoreError, match=r"has format 1, .*open it for writing once"):
        open_store(read_only=True)
    assert version_of(old_store) == VERSION_WITHOUT_WORDS


def test_a_store_of_another_checkpoint_is_left_as_it_is(
    open_store: OpenStore, old_store: Path
) -> None:
    with pytest.raises(FingerprintMismatchError):
        open_store(fingerprint="b" * 64)
    assert version_of(old_store) == VERSION_WITHOUT_WORDS


def test_half_a_migration_is_begun_again(
    open_store: OpenStore, entry: MakeEntry, old_store: Path
) -> None:
    """An earlier version of Longmatch may have changed the documents since."""
    open_store().close()
    with closing(sqlite3.connect(old_store)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA user_version = {VERSION_WITHOUT_WORDS}")
        connection.execute("DELETE FROM documents WHERE id = 'd77'")
    store = open_store()
    assert found_by(store, "w77") == set()
    assert counted_in(old_store)["common"] == DOCUMENTS - 2
    assert "w77" not in counted_in(old_store)


OPEN = """
import sys
from pathlib import Path
from index.store.document_store import SQLiteDocumentStore
print("begun", flush=True)
SQLiteDocumentStore(Path(sys.argv[1]), fingerprint="a" * 64, dimension=16)
print("done", flush=True)
"""


def begun(code: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def kill(process: subprocess.Popen[str], after: float) -> None:
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_a_kill_while_it_is_brought_up_to_date(
    open_store: OpenStore, old_store: Path, after: float
) -> None:
    kill(begun(OPEN, old_store), after)
    store = open_store()
    assert len(found_by(store, "odd")) == DOCUMENTS // 2 - 1
    assert counted_in(old_store)["common"] == DOCUMENTS - 1


def write_for_ever() -> None:
    import itertools
    import sys
    from pathlib import Path

    import numpy as np

    from encoder.blocks import Receipt
    from index.document import Document
    from index.store.document_store import SQLiteDocumentStore
    from index.store.records import EncodedDocument

    store = SQLiteDocumentStore(Path(sys.argv[1]), fingerprint="a" * 64, dimension=16)
    vector = np.eye(16, dtype=np.float32)[0]
    told = sys.stdout
    told.write("begun\n")
    told.flush()
    for number in itertools.count():
        names = [f"d{(number + n) % 40}" for n in range(8)]
        texts = [f"state{number} of {name} " + f"filler{number} " * 50 for name in names]
        documents = [Document(name, text) for name, text in zip(names, texts, strict=True)]
        store.put(
            [EncodedDocument(document, vector, Receipt(1, 1, 1, 0)) for document in documents]
        )
        told.write(f"{number}\n")
        told.flush()
        if number % 3 == 0:
            store.delete(names[:3])


def test_a_kill_while_writing_leaves_words_and_documents_alike(
    open_store: OpenStore, tmp_path: Path
) -> None:
    path = tmp_path / "killed" / "store.sqlite3"
    path.parent.mkdir()
    code = f"{inspect.getsource(write_for_ever)}\nwrite_for_ever()"
    acknowledged = -1
    for turn in range(3):
        process = begun(code, path)
        time.sleep(random.Random(turn).uniform(0.1, 0.4))
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[0].split()
        acknowledged = int(told[-1]) if told and told[-1].isdigit() else acknowledged
        store = open_store(path)
        with closing(sqlite3.connect(path)) as connection:
            texts = dict(connection.execute("SELECT id, text FROM documents"))
        frequencies: dict[str, int] = {}
        for text in texts.values():
            for term in count_terms(text):
                frequencies[term] = frequencies.get(term, 0) + 1
        assert counted_in(path) == frequencies
        assert list(examine_families(path)) == []
        assert store.families.pending() == 0
        for term in [term for term in frequencies if term.startswith(("state", "d"))]:
            assert found_by(store, term) == {n for n, t in texts.items() if term in count_terms(t)}
        store.close()
    assert acknowledged > 0
