"""Stores and vector indexes under the contracts."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from index.store.document_store import DocumentStore
from index.store.schema import COLLECTIONS_DIRECTORY, LOCK_FILE
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, OpenStore
from tests.kit.postgresql import run_postgresql
from tests.kit.vector_kinds import KINDS, IndexKind


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> IndexKind:
    return KINDS[request.param]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a running PostgreSQL."""
    with run_postgresql() as server:
        yield server.url


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open stores, in files or in schemas of a PostgreSQL, closed after the test."""
    opened: list[DocumentStore] = []
    in_file = request.param == "SQLite"
    database = None if in_file else request.getfixturevalue("postgresql")

    def open_one(path: Path = tmp_path / "store.sqlite3", **other: Any) -> DocumentStore:
        if not in_file:  # a collection has a schema
            (tmp_path / LOCK_FILE).touch()
            name = hashlib.sha256(str(path).encode()).hexdigest()
            path = tmp_path / COLLECTIONS_DIRECTORY / name / "store.sqlite3"
            path.parent.mkdir(exist_ok=True, parents=True)
        given = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, **other}
        opened.append(DocumentStore(path, database=database, **given))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
