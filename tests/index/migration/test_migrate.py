"""Documents that go to a PostgreSQL and come back are the same, and found by the same queries."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.directory.data_directory import DataDirectory
from index.errors import DamagedDocumentError, DataDirectoryInUseError, StoreError
from index.migration.migrate import migrate_from, migrate_to
from index.postgres.address import PostgreSQLAddress
from index.postgres.document_store import PostgreSQLDocumentStore
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import AlignmentOptions, EncodedQuery, Mode, SearchOptions
from index.search.search import search
from index.store.filters import Bound, Range
from tests.index.migration.conftest import SILENT, WIDTH, entry_of, opened, state, text_of
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, unit_vectors

QUERIES = 50
RULE = LinearFusion(0.25, 0.5, 0.75, expected_slope=0.5, expected_intercept=0.1)


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
