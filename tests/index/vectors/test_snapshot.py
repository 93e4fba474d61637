import hashlib
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.arrays import Float32
from index.errors import SnapshotError
from index.vectors import snapshot
from index.vectors.faiss.faiss_index import FaissIndex, train_faiss_index

FINGERPRINT = "c" * 64


@pytest.fixture
def index(vectors: Callable[..., Float32]) -> FaissIndex:
    index = train_faiss_index(vectors(100, seed=1), 4)
    index.change(np.arange(0, 1_000, 10), vectors(100, seed=1))
    return index


def publish(root: Path, index: FaissIndex, sequence: int = 7) -> snapshot.Manifest:
    about = snapshot.Manifest(
        FINGERPRINT, "ours", "fp32", trained_sequence=1, trained_vectors=90, nprobe=4, space=0
    )
    none = np.zeros(0, dtype=np.int64)
    index.change(none, np.zeros((0, index.dimension), dtype=np.float32), sequence=sequence)
    return snapshot.publish_snapshot(root, index.save, about)


def read(root: Path) -> tuple[snapshot.Manifest, FaissIndex]:
    return snapshot.read_current_snapshot(root, "fp32", FINGERPRINT)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_published_snapshot_is_read(
    root: Path, index: FaissIndex, vectors: Callable[..., Float32]
) -> None:
    published = publish(root, index)
    manifest, loaded = read(root)
    assert manifest == published
    assert (manifest.generation, manifest.sequence) == (1, 7)
    queries = vectors(5, seed=2)
    assert loaded.search(queries, 9).ids.tolist() == index.search(queries, 9).ids.tolist()


def test_the_newest_two_generations_are_kept(root: Path, index: FaissIndex) -> None:
    for sequence in range(4):
        publish(root, index, sequence)
    assert names(root) == ["0000000003.index", "0000000004.index", "CURRENT"]
    assert (read(root)[0].generation, read(root)[0].sequence) == (4, 3)


def test_leftovers_of_killed_publishes_are_removed(root: Path, index: FaissIndex) -> None:
    publish(root, index)
    (root / ".publishing").write_bytes(b"half")
    (root / "CURRENT.partial").write_text("half")
    shutil.copy(root / "0000000001.index", root / "0000000005.index")  # never made current
    (root / "notes of the user").write_text("stay")
    assert read(root)[0].generation == 1
    assert publish(root, index).generation == 6
    assert names(root) == ["0000000005.index", "0000000006.index", "CURRENT", "notes of the user"]
    assert read(root)[0].generation == 6


def test_a_failed_publish_leaves_the_old_generation_current(root: Path, index: FaissIndex) -> None:
    publish(root, index, sequence=1)
    before = (root / "CURRENT").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(3):
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
        try:
            with pytest.raises(SnapshotError, match="snapshots: no snapshot could be published"):
                publish(root, index, sequence=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(root) == ["0000000001.index", "CURRENT"]
    assert (root / "CURRENT").read_bytes() == before
    assert read(root)[0].sequence == 1


def test_a_publish_that_cannot_become_current(root: Path, index: FaissIndex) -> None:
    publish(root, index, sequence=1)
    blocked = root / "CURRENT.partial"  # where the new pointer is written first
    blocked.mkdir()
    for _ in range(3):
        with pytest.raises(SnapshotError, match="no snapshot could be published"):
            publish(root, index, sequence=2)
        assert read(root)[0].sequence == 1
    assert names(root) == ["0000000001.index", "CURRENT", "CURRENT.partial"]
    blocked.rmdir()
    assert publish(root, index, sequence=3).sequence == read(root)[0].sequence == 3


def test_a_file_in_place_of_the_directory_is_an_error(root: Path, index: FaissIndex) -> None:
    root.write_text("a file")
    with pytest.raises(SnapshotError, match="snapshots: no snapshot could be published"):
        publish(root, index)
    with pytest.raises(SnapshotError, match="CURRENT: cannot be read"):
        read(root)
    assert root.read_text() == "a file"


@pytest.mark.parametrize("name", ["CURRENT", "0000000001.index"])
def test_any_changed_byte_is_found(root: Path, index: FaissIndex, name: str) -> None:
    publish(root, index)
    path = root / name
    whole = path.read_bytes()
    random = np.random.default_rng(5)
    for place in random.integers(0, len(whole), size=min(len(whole), 150)):
        flip = bytes([whole[place] ^ (1 << random.integers(0, 8))])
        path.write_bytes(whole[:place] + flip + whole[place + 1 :])
        with pytest.raises(SnapshotError):
            read(root)
    for size in random.integers(0, len(whole), size=20):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotError):
            read(root)
    path.write_bytes(whole + b"x")
    with pytest.raises(SnapshotError):
        read(root)
    path.write_bytes(whole)
    assert len(read(root)[1]) == 100


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"surprise": 1}, "CURRENT: cannot be read"),
        ({"sha256": "0" * 64}, "index: the file has changed"),
        ({"fingerprint": "d" * 64}, "index: made with another checkpoint, dddddddddddd"),
        ({"precision": "int8"}, "index: holds vectors in int8, not in fp32"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    root: Path, index: FaissIndex, changes: dict[str, Any], complaint: str
) -> None:
    publish(root, index)
    fields = json.loads((root / "CURRENT").read_text().partition("\n")[2])
    content = json.dumps(fields | changes)
    digest = hashlib.sha256(content.encode()).hexdigest()
    (root / "CURRENT").write_text(f"{digest}\n{content}")
    with pytest.raises(SnapshotError, match=complaint):
        read(root)
