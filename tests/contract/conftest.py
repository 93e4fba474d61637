"""Stores and vector indexes under the contracts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from index.store.document_store import SQLiteDocumentStore
from tests.tools.vector_kinds import KINDS, IndexKind

OpenStore = Callable[..., SQLiteDocumentStore]

FINGERPRINT = "a" * 64
DIMENSION = 16


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Open stores, by default always the same one; all are closed after the test."""
    opened: list[SQLiteDocumentStore] = []

    def open_one(
        path: Path = tmp_path / "store.sqlite3",
        *,
        fingerprint: str = FINGERPRINT,
        dimension: int = DIMENSION,
        **options: Any,
    ) -> SQLiteDocumentStore:
        store = SQLiteDocumentStore(path, fingerprint=fingerprint, dimension=dimension, **options)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> SQLiteDocumentStore:
    return open_store()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> IndexKind:
    return KINDS[request.param]
