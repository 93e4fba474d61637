"""What the tests of `index` share: documents with vectors, and stores that are closed again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import Receipt
from index.document import Document
from index.sqlite_store import Entry, SQLiteDocumentStore
from index.vector_index import Float32

FINGERPRINT = "a" * 64
DIMENSION = 16

MakeEntry = Callable[..., Entry]
OpenStore = Callable[..., SQLiteDocumentStore]


def unit_vectors(count: int, *, seed: int, dimension: int = DIMENSION) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@pytest.fixture
def vectors() -> Callable[..., Float32]:
    return unit_vectors


@pytest.fixture
def entry() -> MakeEntry:
    """Make an entry whose vector depends on the text alone, as an encoder's does."""

    def make(
        document_id: str, text: str = "some text", title: str = "", **metadata: object
    ) -> Entry:
        seed = int.from_bytes(text.encode("utf-8", "replace")[-8:].ljust(8, b"."), "big")
        return Entry(
            Document(document_id, text, title, metadata),
            unit_vectors(1, seed=seed)[0],
            Receipt(tokens=len(text), tokens_read=len(text), blocks=1, blocks_left_out=0),
        )

    return make


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Open stores, by default one file in the test's own directory, closed after the test."""
    opened: list[SQLiteDocumentStore] = []

    def open_one(
        path: Path = tmp_path / "store.sqlite3",
        *,
        fingerprint: str = FINGERPRINT,
        dimension: int = DIMENSION,
        read_only: bool = False,
    ) -> SQLiteDocumentStore:
        opened.append(
            SQLiteDocumentStore(
                path, fingerprint=fingerprint, dimension=dimension, read_only=read_only
            )
        )
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> SQLiteDocumentStore:
    return open_store()
