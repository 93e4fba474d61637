"""All stores that play the roles of `index.store.ports`, and all engines of vectors."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import pytest

from index.postgres.address import parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from index.replica.copied_store import CopiedDocumentStore
from index.store.document_store import SQLiteDocumentStore
from index.store.ports import DocumentStore, VectorSource
from index.vectors.milvus.engine import MilvusEngine
from tests.tools.postgresql import PostgreSQLServer
from tests.tools.vector_engines import ENGINES, FP16, MILVUS, OTHERS, Engine

OpenStore = Callable[..., "Store"]

FINGERPRINT = "a" * 64
DIMENSION = 16


class Store(DocumentStore, VectorSource, Protocol):
    """All roles of one store."""

    def close(self) -> None: ...


@pytest.fixture(params=["sqlite", "postgresql", "copied"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open stores, by default always the same one; all are closed after the test."""
    opened: list[Store] = []

    def make(path: Path, **options: Any) -> Store:
        if request.param == "sqlite":
            return SQLiteDocumentStore(path.with_suffix(".sqlite3"), **options)
        server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
        schema = f"s{sha256(str(path).encode()).hexdigest()[:20]}"
        database = PostgreSQLDocumentStore(parse_postgresql_url(server.url, schema), **options)
        if request.param == "postgresql":
            return database
        return CopiedDocumentStore(path.with_suffix(".copy.sqlite3"), database)

    def open_one(
        path: Path = tmp_path / "store",
        *,
        fingerprint: str = FINGERPRINT,
        dimension: int = DIMENSION,
        **options: Any,
    ) -> Store:
        opened.append(make(path, fingerprint=fingerprint, dimension=dimension, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


@pytest.fixture(params=[*OTHERS, *FP16, *MILVUS])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param in MILVUS:
        milvus: MilvusEngine = request.getfixturevalue("milvus_engine")
        return Engine(milvus.backend, MILVUS[request.param], rounds=1)
    return ENGINES[request.param]
