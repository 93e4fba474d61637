"""Documents that go to a PostgreSQL and come back are the same, and found by the same queries."""

import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pytest

from encoder.alignment.space import neutral_space
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.errors import (
    DamagedDocumentError,
    DatabaseUnavailableError,
    DataDirectoryInUseError,
    StoreError,
)
from index.migration.migrate import MIGRATING, CopyDiffersError, migrate_from, migrate_to
from index.postgres.address import PostgreSQLAddress, parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from index.progress import SilentProgress
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import AlignmentOptions, EncodedQuery, Mode, SearchOptions
from index.search.search import search
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import Bound, Range
from index.store.records import EncodedDocument
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, unit_vectors
from tests.tools.postgresql import PostgreSQLServer, run_postgresql
from tests.tools.tiers import Tier

WIDTH = 16
QUERIES = 50
RULE = LinearFusion(0.25, 0.5, 0.75, expected_slope=0.5, expected_intercept=0.1)
WORDS = ("heron", "egret", "marsh", "court", "appeal", "motor", "bolt", "violin", "basalt", "queen")
SILENT = SilentProgress()
PROGRAM = """
import sys
from pathlib import Path
from index.migration import migrate
from index.postgres.address import parse_postgresql_url
from index.progress import SilentProgress
_, way, path, url, schema = sys.argv
print("ready", flush=True)
getattr(migrate, way)(Path(path), parse_postgresql_url(url, schema), SilentProgress())
"""


class Interrupting(SilentProgress):
    """Interrupts a migration when so many documents were copied."""

    def __init__(self, after: int) -> None:
        self.steps: list[str] = []
        self.copied: list[int] = []
        self._after = after

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        self.steps.append(step)

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        if self.steps[-1] == "copying":
            self.copied.append(count)
            if sum(self.copied) >= self._after:
                raise KeyboardInterrupt


@pytest.fixture
def address(postgresql_server: PostgreSQLServer) -> PostgreSQLAddress:
    return parse_postgresql_url(postgresql_server.url, f"m{uuid4().hex}")


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[DataDirectory]:
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, **options}
    with closing(open_data_directory(path, **about)) as directory:
        yield directory


def text_of(number: int) -> str:
    chance = np.random.default_rng(number)
    return " ".join(chance.choice(WORDS, 12)) + f" word{number} \x00 😀"


def entry_of(number: int) -> EncodedDocument:
    blocks = BlockVectors(
        np.array([[0, 4], [4, 9], [9, 20]]), unit_vectors(3, seed=number, dimension=WIDTH)
    )
    document = Document(
        f"d{number}/ü",
        text_of(number),
        "" if number % 3 else f"A title of {WORDS[number % 10]} \x00 {number}",
        {"year": 1990 + number % 30, "n": [number, None, {"x": "\x00é"}]},
    )
    vector = unit_vectors(1, seed=10_000 + number)[0]
    return EncodedDocument(
        document, vector, Receipt(number + 1, number, 3, 1, 2), blocks if number % 7 else None
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A closed data directory of several sequences, with gaps, copies and an alignment space."""
    path = tmp_path / "data"
    with opened(path, alignment=neutral_space(WIDTH)) as directory:
        store = directory.store
        for start in range(0, 420, 140):
            store.put([entry_of(number) for number in range(start, start + 140)])
        store.delete([f"d{number}/ü" for number in range(0, 420, 9)])
        twin = entry_of(1)
        copy = Document("copy of d1", twin.document.text, "A copy")
        store.put([EncodedDocument(copy, twin.vector, twin.receipt, twin.blocks)])
        store.delete(["d419/ü"])
        store.put([entry_of(419)])
        store.delete(["d419/ü"])  # the last vector id that was given is gone
        store.refresh_titles(SILENT)
        store.alignment.refresh(SILENT, fit=True)
        directory.index.catch_up()
        directory.index.publish()
        store.lexical.publish()
    (path / "fusion.json").write_text('{"of": "the vectors"}')
    return path


def answers(directory: DataDirectory) -> list[Any]:
    """What 50 queries find in each mode, with a filter and without."""
    found = []
    vectors = unit_vectors(QUERIES, seed=3)
    nothing = ScoreCalibrator(None, None, None)
    modes: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")
    for mode in modes:
        for where in (None, Range("/year", Bound(1992, True), Bound(1999, False))):
            options = SearchOptions(
                top_k=10,
                mode=mode,
                where=where,
                collapse=where is None,
                alignment=AlignmentOptions(budget_seconds=math.inf),
            )
            for number, vector in enumerate(vectors):
                blocks = unit_vectors(4, seed=50_000 + number, dimension=WIDTH)
                query = EncodedQuery(text_of(10**6 + number), vector, blocks=blocks)
                among = None if where is None else directory.store.select(where)
                answer = search(
                    directory, query, options, fusion=RULE, calibrator=nothing, among=among
                )
                found.append([(one.id, one.score, one.alignment_score) for one in answer.hits])
    return found


def state(path: Path) -> list[Any]:
    with opened(path) as directory:
        store = directory.store
        ids = store.changes_since(0).added
        summaries = store.get(ids.tolist())
        return [
            *(ids.tolist(), summaries, store.find([one.id for one in summaries.values()])),
            *(store.vectors(ids)[1].tolist(), store.sequence, store.log.last_vector_id),
            {n: b.vectors.tolist() for n, b in store.block_vectors(ids.tolist()).items()},
            store.select(Range("/year", Bound(1995, True))).ids.tolist(),
            store.families.totals(),
        ]


def test_there_and_back_answers_the_same(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    with opened(data) as directory:
        expected = answers(directory)
    assert sum(map(len, expected)) > 5 * QUERIES * 6
    before = state(data)
    assert migrate_to(data, address, SILENT) == len(before[0])
    assert migrate_from(tmp_path / "new", address, SILENT) == len(before[0])
    assert state(tmp_path / "new") == before
    with opened(tmp_path / "new") as directory:
        assert answers(directory) == expected
        last = directory.store.log.last_vector_id
        assert directory.store.put([entry_of(999)]).added.tolist() == [last + 1]
    assert (tmp_path / "new" / "fusion.json").read_text() == '{"of": "the vectors"}'
    left = {path.name for path in (tmp_path / "new").iterdir() if path.name.startswith(".")}
    assert left == {".store-digest"}


def test_the_store_in_postgresql_is_the_one_that_was_copied(
    data: Path, address: PostgreSQLAddress
) -> None:
    migrate_to(data, address, SILENT)
    with (
        opened(data, read_only=True) as directory,
        closing(
            PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
        ) as copy,
    ):
        store = directory.store
        ids = store.changes_since(0).added
        assert copy.changes_since(0).added.tolist() == ids.tolist()
        names = [one.id for one in store.get(ids.tolist()).values()]
        assert copy.find(names) == store.find(names)
        assert copy.get(ids.tolist()) == store.get(ids.tolist())
        np.testing.assert_array_equal(copy.vectors(ids)[1], store.vectors(ids)[1])
        where = Range("/n", Bound(100, True), Bound(200, False))
        np.testing.assert_array_equal(copy.select(where).ids, store.select(where).ids)
        assert copy.sequence == copy.log.start == store.sequence
        assert copy.changes_since(copy.sequence).added.size == 0
        assert copy.put([entry_of(999)]).added.tolist() == [store.log.last_vector_id + 1]


def test_what_was_copied_is_not_copied_again(
    data: Path, address: PostgreSQLAddress, tmp_path: Path, postgresql_server: PostgreSQLServer
) -> None:
    with pytest.raises(KeyboardInterrupt):
        migrate_to(data, address, Interrupting(200))

    def versions() -> dict[int, str]:
        with psycopg.connect(postgresql_server.url) as connection:
            rows = connection.execute(
                f"SELECT vector_id, xmin::text FROM {address.schema}.documents".encode()
            )
            return dict(rows.fetchall())

    copied = versions()
    assert 200 <= len(copied) < 370
    with pytest.raises(StoreError, match="a migration into this store is unfinished: repeat it"):
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
    with pytest.raises(StoreError, match="a migration into this store is unfinished: repeat it"):
        migrate_from(tmp_path / "new", address, SILENT)
    documents = migrate_to(data, address, SILENT)
    assert copied.items() <= versions().items()
    assert len(versions()) == documents
    assert migrate_to(data, address, SILENT) == documents  # once more: it is only verified

    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    watching = Interrupting(10**6)
    assert migrate_from(tmp_path / "new", address, watching) == documents
    assert watching.copied[0] == 256
    assert sum(watching.copied) == documents
    assert state(tmp_path / "new") == state(data)


@pytest.mark.slow
def test_a_database_that_dies_on_the_way_is_filled_after_its_start(
    data: Path, tmp_path: Path
) -> None:
    class Killing(Interrupting):
        def advanced(self, count: int, *, tokens: int = 0) -> None:
            try:
                super().advanced(count, tokens=tokens)
            except KeyboardInterrupt:
                server.kill()

    with run_postgresql() as server:
        address = parse_postgresql_url(server.url)
        with pytest.raises(DatabaseUnavailableError):
            migrate_to(data, address, Killing(200))
        server.start()
        watching = Interrupting(10**6)
        assert migrate_to(data, address, watching) == 373
        assert watching.copied[0] == 256
        with pytest.raises(DatabaseUnavailableError):
            migrate_from(tmp_path / "new", address, Killing(200))
        server.start()
        migrate_from(tmp_path / "new", address, SILENT)
    assert state(tmp_path / "new") == state(data)


@pytest.mark.slow
def test_a_database_that_dies_while_it_is_verified_costs_no_copying(
    data: Path, tmp_path: Path
) -> None:
    class KillingLater(Interrupting):
        def advanced(self, count: int, *, tokens: int = 0) -> None:
            super().advanced(count, tokens=tokens)
            if self.steps[-1].startswith("verifying"):
                server.kill()

    with run_postgresql() as server:
        address = parse_postgresql_url(server.url)
        migrate_to(data, address, SILENT)
        with pytest.raises(DatabaseUnavailableError):
            migrate_from(tmp_path / "new", address, KillingLater(10**6))
        server.start()
        watching = Interrupting(10**6)
        migrate_from(tmp_path / "new", address, watching)
        assert watching.copied == [373]
    assert state(tmp_path / "new") == state(data)


def test_a_copy_in_a_folder_that_differs_is_made_anew(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    migrate_to(data, address, SILENT)
    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    store = tmp_path / "new" / MIGRATING / "store.sqlite3"
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE vectors SET sequence = 9 WHERE vector_id = 3")
    with pytest.raises(CopyDiffersError, match="one of them was changed"):
        migrate_from(tmp_path / "new", address, SILENT)
    migrate_from(tmp_path / "new", address, SILENT)
    assert state(tmp_path / "new") == state(data)


def test_a_change_between_two_attempts_starts_the_way_back_anew(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    migrate_to(data, address, SILENT)
    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    with closing(
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
    ) as store:
        store.delete(["d1/ü"])
        store.put([entry_of(5), entry_of(1_000)])
    migrate_from(tmp_path / "new", address, SILENT)
    with opened(tmp_path / "new") as directory:
        found = directory.store.find(["d1/ü", "d5/ü", "d1000/ü"])
        assert found.keys() == {"d5/ü", "d1000/ü"}


def test_what_does_not_fit_is_refused_before_the_work(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    with opened(data), pytest.raises(DataDirectoryInUseError):
        migrate_to(data, address, SILENT)
    migrate_to(data, address, SILENT)
    with opened(tmp_path / "other") as directory:
        directory.store.put([entry_of(1)])
    with pytest.raises(StoreError, match="holds 373 other documents: name another schema"):
        migrate_to(tmp_path / "other", address, SILENT)
    with opened(tmp_path / "another", fingerprint="b" * 64):
        pass
    with pytest.raises(StoreError, match=r"has vectors of checkpoint aaaaaaaaaaaa .* not of bbbb"):
        migrate_to(tmp_path / "another", address, SILENT)
    assert migrate_from(data, address, SILENT) == 373  # the same documents: nothing to do
    with pytest.raises(StoreError, match="holds documents already: name a new data directory"):
        migrate_from(tmp_path / "other", address, SILENT)
    elsewhere = PostgreSQLAddress(address.conninfo, address.shown, "elsewhere")
    with pytest.raises(StoreError, match="there is no document store here"):
        migrate_from(tmp_path / "new", elsewhere, SILENT)
    assert not (tmp_path / "new").exists()
    with opened(data) as directory:
        directory.store.delete(["d1/ü"])
    with pytest.raises(StoreError, match="holds 373 other documents"):
        migrate_to(data, address, SILENT)


def test_documents_that_were_put_into_postgresql_are_not_overwritten(
    data: Path, address: PostgreSQLAddress
) -> None:
    with closing(
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
    ) as store:
        store.put([entry_of(1)])
        with pytest.raises(StoreError, match="holds 1 other documents"):
            migrate_to(data, address, SILENT)
        assert len(store) == 1


def test_an_empty_directory_and_an_empty_store(tmp_path: Path, address: PostgreSQLAddress) -> None:
    with opened(tmp_path / "data"):
        pass
    with closing(PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)):
        pass
    assert migrate_to(tmp_path / "data", address, SILENT) == 0
    assert migrate_from(tmp_path / "new", address, SILENT) == 0
    with opened(tmp_path / "new") as directory:
        assert directory.store.put([entry_of(1)]).added.tolist() == [1]


@pytest.mark.parametrize("column", ["title", "text", "metadata"])
def test_a_damaged_document_is_named_and_not_copied(
    data: Path, address: PostgreSQLAddress, column: str
) -> None:
    with closing(sqlite3.connect(data / "store.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE documents SET {column} = '{{}}' WHERE vector_id = 3")
    (data / ".store-digest").unlink()
    with pytest.raises(DamagedDocumentError, match="document 'd2/ü' is damaged"):
        migrate_to(data, address, SILENT)


@pytest.mark.parametrize("table", ["documents SET title = 'x'", "vectors SET sequence = 9"])
def test_a_copy_that_differs_is_not_finished(
    data: Path, address: PostgreSQLAddress, postgresql_server: PostgreSQLServer, table: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        migrate_to(data, address, Interrupting(200))
    with psycopg.connect(postgresql_server.url) as connection:
        connection.execute(
            f"UPDATE {address.schema}.{table} WHERE vector_id = 3; "
            f"DELETE FROM {address.schema}.checksums".encode()
        )
    with pytest.raises(StoreError, match=r"the copy has 373 documents .* begin again"):
        migrate_to(data, address, SILENT)
    with pytest.raises(StoreError, match="unfinished"):
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_migration_that_is_killed_goes_on(
    data: Path, address: PostgreSQLAddress, tmp_path: Path, tier: Tier, kills: int
) -> None:
    chance = np.random.default_rng(tier.seed)
    expected = state(data)

    def run(path: Path, way: str, seconds: float | None) -> int:
        command = [sys.executable, "-c", PROGRAM, way, path, address.shown, address.schema]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        process.communicate()
        return process.returncode

    for way, path in (("migrate_to", data), ("migrate_from", tmp_path / "new")):
        for _ in range(kills):
            run(path, way, chance.uniform(0.0, 0.4))
        assert run(path, way, None) == 0
    assert state(tmp_path / "new") == expected
    assert not (tmp_path / "new" / MIGRATING).exists()
