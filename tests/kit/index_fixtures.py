"""What the tests of `index` share: documents with vectors, and stores that are closed again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.blocks import Receipt, SentenceBlocks
from evaluation.block_archive import ArchiveKey, BlockArchiveWriter, read_block_archive
from evaluation.encoded_corpus import EncodedCorpus
from index.document import Document
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from index.vectors.live_index import LiveIndex

FINGERPRINT = "a" * 64
DIMENSION = 16
ARCHIVE_KEY = ArchiveKey("a" * 64, "b" * 64, 16, "split", "en", 64, DIMENSION, "uint16")

MakeEntry = Callable[..., EncodedDocument]
OpenStore = Callable[..., DocumentStore]
MakeVectors = Callable[..., Float32]
Check = Callable[[LiveIndex, DocumentStore], None]
Fill = Callable[[DocumentStore, Float32], Changes]


def unit_vectors(count: int, *, seed: int, dimension: int = DIMENSION) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@pytest.fixture
def vectors() -> Callable[..., Float32]:
    return unit_vectors


def make_entry(
    document_id: str, text: str = "some text", title: str = "", **metadata: object
) -> EncodedDocument:
    """Make an entry whose vector depends on the text alone, as an encoder's does."""
    seed = int.from_bytes(text.encode("utf-8", "replace")[-8:].ljust(8, b"."), "big")
    return EncodedDocument(
        Document(document_id, text, title, metadata),
        unit_vectors(1, seed=seed)[0],
        Receipt(len(text), len(text), 1, 0, len(text)),
    )


@pytest.fixture
def entry() -> MakeEntry:
    return make_entry


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Open stores, by default one file in the test's own directory, closed after the test."""
    opened: list[DocumentStore] = []

    def open_one(path: Path = tmp_path / "store.sqlite3", **other: Any) -> DocumentStore:
        given = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, **other}
        opened.append(DocumentStore(path, **given))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> DocumentStore:
    return open_store()


@pytest.fixture
def assert_equals_store() -> Callable[[LiveIndex, DocumentStore], None]:
    """Check that an index holds exactly the store's vectors, each under its id."""

    def check(live: LiveIndex, store: DocumentStore) -> None:
        ids, vectors = store.vectors(store.log.added_after(0)[1])
        assert len(live) == len(store) == len(ids)
        assert live.sequence == store.sequence
        if len(ids):
            found = live.search(vectors, 1, nprobe=live.nlist)
            np.testing.assert_array_equal(found.ids[:, 0], ids)
            np.testing.assert_allclose(found.scores[:, 0], 1.0, atol=1e-5)

    return check


def fill_store(store: DocumentStore, vectors: Float32) -> Changes:
    """Put one document for each vector, with the ids d0, d1, and so on."""
    receipt = Receipt(1, 1, 1, 0, 1)
    return store.put(
        [
            EncodedDocument(Document(f"d{number}", f"d{number}"), vector, receipt)
            for number, vector in enumerate(vectors)
        ]
    )


@pytest.fixture
def fill() -> Callable[[DocumentStore, Float32], Changes]:
    """Put one document for each vector, with the ids d0, d1, and so on."""
    return fill_store


@pytest.fixture
def encode_texts(tmp_path: Path) -> Callable[..., EncodedCorpus]:
    """Make a corpus of texts by id with its archive; a sentence is a block, at random."""

    def encode(texts: dict[str, str], name: str = "corpus") -> EncodedCorpus:
        folder = tmp_path / name
        folder.mkdir()
        lines = (json.dumps({"id": key, "text": text}) + "\n" for key, text in texts.items())
        (folder / "corpus.jsonl").write_text("".join(lines))
        writer = BlockArchiveWriter(tmp_path / f"{name}-blocks", ARCHIVE_KEY)
        documents, vectors = {}, []
        for row, (key, text) in enumerate(texts.items()):
            blocks = tuple((7, 8, 9) for part in text.split(".") if part.strip())
            receipt = Receipt(3 * len(blocks), 3 * len(blocks), len(blocks), 0, 3 * len(blocks))
            documents[key] = SentenceBlocks(blocks, ((0, 1),) * len(blocks), receipt)
            vectors.append(unit_vectors(len(blocks), seed=row))
        writer.append(documents, vectors)
        archive = read_block_archive(tmp_path / f"{name}-blocks")
        return EncodedCorpus(
            ids=tuple(texts),
            rows=np.arange(len(texts), dtype=np.int64),
            hashes=tuple(Document(key, text).content_hash.hex() for key, text in texts.items()),
            archive=archive,
            skipped=0,
        )

    return encode
