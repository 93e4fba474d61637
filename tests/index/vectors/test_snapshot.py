import hashlib
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.arrays import Float32
from index.errors import SnapshotError
from index.store.document_store import DocumentStore
from index.vectors.faiss.faiss_index import FaissIndex, train_faiss_index
from index.vectors.live_index import LiveIndex, read_snapshot
from index.vectors.snapshot import Manifest, load_snapshot, publish_snapshot

ABOUT = Manifest("ours", "fp32", trained_sequence=1, trained_vectors=90, nprobe=4)


@pytest.fixture
def index(vectors: Callable[..., Float32]) -> FaissIndex:
    index = train_faiss_index(vectors(100, seed=1), 4)
    index.change(np.arange(0, 1_000, 10), vectors(100, seed=1))
    return index


def publish(root: Path, index: FaissIndex, sequence: int = 7, about: Manifest = ABOUT) -> Manifest:
    none = np.zeros(0, dtype=np.int64)
    index.change(none, np.zeros((0, index.dimension), dtype=np.float32), sequence=sequence)
    return publish_snapshot(root, index.save, about)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.parent.iterdir())


def test_a_published_snapshot_is_read(
    root: Path, index: FaissIndex, vectors: Callable[..., Float32]
) -> None:
    published = publish(root, index)
    manifest, loaded = load_snapshot(root)
    assert manifest == published
    assert (manifest.generation, manifest.sequence) == (1, 7)
    queries = vectors(5, seed=2)
    assert loaded.search(queries, 9).ids.tolist() == index.search(queries, 9).ids.tolist()
    assert publish(root, index, 8, published).generation == load_snapshot(root)[0].generation == 2


def test_leftovers_of_killed_publishes_are_removed(root: Path, index: FaissIndex) -> None:
    publish(root, index)
    root.with_name("vectors.faiss.partial").write_bytes(b"half" * 10_000)
    assert load_snapshot(root)[0].sequence == 7
    publish(root, index, 8)
    assert names(root) == ["vectors.faiss"]
    assert load_snapshot(root)[0].sequence == 8


def test_a_failed_publish_leaves_the_file_as_it_was(root: Path, index: FaissIndex) -> None:
    publish(root, index, sequence=1)
    before = root.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(3):
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        try:
            with pytest.raises(SnapshotError, match="faiss: no snapshot could be published"):
                publish(root, index, sequence=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(root) == ["vectors.faiss"]
    assert root.read_bytes() == before


def test_a_directory_in_place_of_the_file_is_an_error(root: Path, index: FaissIndex) -> None:
    root.mkdir()
    with pytest.raises(SnapshotError, match="faiss: no snapshot could be published"):
        publish(root, index)
    with pytest.raises(SnapshotError, match="faiss: cannot be read"):
        load_snapshot(root)
    assert names(root) == ["vectors.faiss"]


def test_any_changed_byte_is_found(root: Path, index: FaissIndex) -> None:
    publish(root, index)
    whole = root.read_bytes()
    random = np.random.default_rng(5)
    places = [*range(40), *range(-200, 0), *random.integers(0, len(whole), size=100)]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.integers(0, 8)
        root.write_bytes(flipped)
        with pytest.raises(SnapshotError):
            load_snapshot(root)
    for size in [0, 31, 32, *random.integers(0, len(whole), size=20)]:
        root.write_bytes(whole[:size])
        with pytest.raises(SnapshotError):
            load_snapshot(root)
    root.write_bytes(whole + b"x")
    with pytest.raises(SnapshotError):
        load_snapshot(root)
    root.write_bytes(whole)
    assert len(load_snapshot(root)[1]) == 100


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"surprise": 1}, "faiss: cannot be read"),
        ({"identity": "theirs"}, "faiss: the snapshot is of another document store"),
        ({"precision": "int8"}, "faiss: holds vectors in int8, not in fp32"),
        ({"sequence": 9}, "faiss: holds change 9 of the store"),
        ({"space": 3}, "faiss: holds vectors in another space"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    root: Path, store: DocumentStore, changes: dict[str, Any], complaint: str
) -> None:
    LiveIndex(store, root, precision="fp32")
    read_snapshot(store, root, "fp32")
    index, separator, fields = root.read_bytes()[32:].rpartition(b"{")
    content = index + json.dumps(json.loads(separator + fields) | changes).encode()
    root.write_bytes(hashlib.sha256(content).digest() + content)
    with pytest.raises(SnapshotError, match=complaint):
        read_snapshot(store, root, "fp32")
