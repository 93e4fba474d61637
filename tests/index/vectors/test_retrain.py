"""A new generation is proven before it is searched, and the old one stays where it is not."""

import shutil
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from index.errors import RetrainingStoppedError, SnapshotError, StoreError
from index.store.document_store import DocumentStore
from index.vectors.lists import ONE_LIST_BELOW, nprobe_steps
from index.vectors.live_index import LiveIndex
from index.vectors.snapshot import load_snapshot
from tests.kit.index_fixtures import (
    DIMENSION,
    FINGERPRINT,
    Check,
    MakeEntry,
    MakeVectors,
    OpenStore,
    fill_store,
    unit_vectors,
)

IMPOSSIBLE = 1.0  # random vectors have neighbours in every list


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more vectors than suit one list, and the index published before they came.

    Do not change it.
    """
    folder = tmp_path_factory.mktemp("grown")
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    with closing(DocumentStore(folder / "store.sqlite3", **about)) as store:
        LiveIndex(store, folder / "vectors.faiss", precision="fp32")
        fill_store(store, unit_vectors(ONE_LIST_BELOW, seed=1))
    return folder


@pytest.fixture
def live(grown: Path, tmp_path: Path, root: Path, request: pytest.FixtureRequest) -> LiveIndex:
    """An index of one list, which finds all neighbours, of more vectors than suit it."""
    shutil.copytree(grown, tmp_path, dirs_exist_ok=True)
    store = request.getfixturevalue("store")  # of the copied file
    return LiveIndex(store, root, precision="fp32")


def test_the_lists_are_really_in_use(
    live: LiveIndex, store: DocumentStore, root: Path, vectors: MakeVectors
) -> None:
    """R18: of random vectors one list holds only some neighbours, and the file says how many."""
    result = live.retrain(0.5)
    assert (result.swapped, live.nlist) == (True, 128)
    assert result.old_recall == 1.0
    assert 0.5 <= result.recall < 1.0
    assert (live.nlist, live.manifest.generation) == (128, 2)
    manifest, loaded = load_snapshot(root)
    assert manifest == live.manifest
    assert (manifest.trained_sequence, manifest.trained_vectors) == (1, ONE_LIST_BELOW)
    assert loaded.nlist == 128
    assert (loaded.list_sizes() > 0).sum() > 100
    queries = vectors(100, seed=9)
    exact = np.argsort(-(queries @ vectors(ONE_LIST_BELOW, seed=1).T), axis=1)[:, :10] + 1
    recalls = []
    for nprobe in (1, live.manifest.nprobe, 128):
        found = live.search(queries, 10, nprobe=nprobe).ids
        hits = [len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
        recalls.append(sum(hits) / 1_000)
    assert 0.02 < recalls[0] < 0.5 < recalls[1] < 1.0
    assert recalls[2] == 1.0


def test_a_generation_that_finds_less_is_refused(
    live: LiveIndex, store: DocumentStore, root: Path, assert_equals_store: Check
) -> None:
    before = root.read_bytes()
    result = live.retrain(IMPOSSIBLE)
    assert not result.swapped
    assert result.recall < result.old_recall == 1.0
    assert (live.nlist, live.manifest.generation, live.manifest.trained_vectors) == (1, 1, 0)
    assert root.read_bytes() == before
    assert_equals_store(live, store)


def test_one_that_misses_the_target_but_finds_no_less_is_taken(live: LiveIndex) -> None:
    assert live.retrain(0.5).swapped
    least, *_, most = nprobe_steps(128)
    assert live.set_nprobe(least, generation=live.manifest.generation)
    again = live.retrain(IMPOSSIBLE)
    assert again.swapped
    assert again.old_recall <= again.recall < IMPOSSIBLE
    assert live.manifest.nprobe == most


def test_it_can_be_given_up(live: LiveIndex, root: Path) -> None:
    with pytest.raises(RetrainingStoppedError):
        live.retrain(0.5, lambda: True)
    assert (live.nlist, live.manifest.generation) == (1, 1)
    assert live.retrain(0.5).swapped


def test_there_are_never_two_at_once(live: LiveIndex) -> None:
    inside: list[str] = []
    other: list[threading.Thread] = []

    def second() -> None:
        live.retrain(0.5, lambda: bool(inside.append("second")))

    def while_the_first_works() -> bool:
        if not other:
            other.append(threading.Thread(target=second))
            other[0].start()
        inside.append("first")
        return False

    live.retrain(0.5, while_the_first_works)
    other[0].join()
    assert inside == sorted(inside)


def test_one_that_cannot_be_published_is_not_taken(live: LiveIndex, root: Path) -> None:
    root.unlink()
    root.mkdir()
    with pytest.raises(SnapshotError):
        live.retrain(0.5)
    assert (live.nlist, live.manifest.generation) == (1, 1)


def test_reading_only_trains_nothing(open_store: OpenStore, root: Path) -> None:
    open_store()
    live = LiveIndex(open_store(read_only=True), root, read_only=True)
    with pytest.raises(StoreError, match="opened for reading only"):
        live.retrain(0.5)


def test_nprobe_is_set_for_one_generation_and_within_bounds(live: LiveIndex) -> None:
    live.retrain(0.5)
    least, *_, most = nprobe_steps(128)
    assert live.set_nprobe(most, generation=2)
    assert live.manifest.nprobe == most
    for nprobe, generation in [(least, 1), (least, 3), (most + 1, 2), (least - 1, 2)]:
        assert not live.set_nprobe(nprobe, generation=generation)
    assert live.manifest.nprobe == most


def test_a_restart_knows_nprobe_and_training(
    live: LiveIndex, store: DocumentStore, root: Path, entry: MakeEntry
) -> None:
    assert live.retrain(0.98).swapped
    live.apply(store.put([entry(f"new {number}", f"{number}") for number in range(50)]))
    live.apply(store.delete([f"d{number}" for number in range(30)]))
    assert live.unpublished() == 80
    live.publish()
    assert live.unpublished() == 0
    again = LiveIndex(store, root)
    assert again.manifest == live.manifest
    assert again.manifest.nprobe > nprobe_steps(128)[0]
    drift = again.measure_drift()
    assert (drift.added, drift.removed) == (50 / ONE_LIST_BELOW, 30 / ONE_LIST_BELOW)
    assert drift == live.measure_drift()
