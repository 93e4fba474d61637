"""The precision of the index: chosen at opening, remembered by the snapshot, built again."""

import logging
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from index.store.document_store import DocumentStore
from index.vectors.faiss.faiss_index import train_faiss_index
from index.vectors.live_index import LiveIndex
from index.vectors.recall import HeldOutQueries
from index.vectors.snapshot import load_snapshot
from index.vectors.vector_index import Precision
from tests.kit.index_fixtures import Fill, MakeVectors, OpenStore

DIMENSION = 384
BYTES = {"fp32": 4 * DIMENSION, "fp16": 2 * DIMENSION, "int8": DIMENSION}


@pytest.fixture(autouse=True)
def few_vectors_have_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose_nlist(count: int) -> int:
        return 8 if count >= 200 else 1

    monkeypatch.setattr("index.vectors.live_index.choose_nlist", choose_nlist)


@pytest.fixture
def store(open_store: OpenStore, vectors: MakeVectors, fill: Fill) -> DocumentStore:
    store = open_store(dimension=DIMENSION)
    fill(store, vectors(600, seed=1, dimension=DIMENSION))
    return store


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_snapshot_has_the_bytes_of_its_precision(
    store: DocumentStore, root: Path, precision: Precision, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveIndex(store, root, precision=precision)
    assert live.nlist == 8
    assert live.exact == (precision == "fp32")
    size = root.stat().st_size
    centroids = 4 * DIMENSION * live.nlist
    assert BYTES[precision] < (size - centroids) / len(store) < BYTES[precision] + 60
    caplog.set_level(logging.INFO)
    for given in (None, precision):
        again = LiveIndex(store, root, precision=given)
        assert (again.manifest.generation, again.exact) == (1, live.exact)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("before", "after"), [("fp32", "int8"), ("int8", "fp32"), ("fp16", "int8"), ("int8", "fp16")]
)
def test_a_snapshot_of_another_precision_is_rebuilt(
    store: DocumentStore,
    root: Path,
    before: Precision,
    after: Precision,
    caplog: pytest.LogCaptureFixture,
) -> None:
    LiveIndex(store, root, precision=before)
    again = LiveIndex(store, root, precision=after)
    assert f"holds vectors in {before}, not in {after}" in caplog.text
    assert again.manifest == load_snapshot(root)[0]
    assert again.manifest.precision == after
    ids, stored = store.vectors(store.log.added_after(0)[1])
    found = again.search(stored, 1, nprobe=again.nlist)
    np.testing.assert_array_equal(found.ids[:, 0], ids)
    largest = {"fp32": 1e-6, "fp16": 1e-4, "int8": 2e-2}[after]  # of a cosine, where ranges clip
    assert np.abs(found.scores - 1).max() < largest


def test_a_new_store_gets_the_default_precision(store: DocumentStore, root: Path) -> None:
    assert not LiveIndex(store, root).exact
    assert load_snapshot(root)[0].precision == "int8"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_few_vectors_are_exact(store: DocumentStore, root: Path, precision: Precision) -> None:
    store.delete([f"d{number}" for number in range(500)])
    live = LiveIndex(store, root, precision=precision)
    assert (live.nlist, live.exact) == (1, True)
    assert load_snapshot(root)[0].precision == precision
    assert LiveIndex(store, root).manifest.generation == 1


def test_recall_counts_neighbours_by_their_exact_cosines(vectors: MakeVectors) -> None:
    """Rounded scores are above and below the exact ones; only other neighbours cost recall."""
    stored = vectors(2_000, seed=1, dimension=DIMENSION)
    ids = np.arange(2_000)
    index = train_faiss_index(stored, 8, "int8")
    index.change(ids, stored)

    def read(some: Int64) -> tuple[Int64, Float32]:
        return some, stored[some]

    held_out = HeldOutQueries(ids[:100], stored[:100], read)
    held_out.compare_with(ids, stored)
    cosines = stored[:100] @ stored.T
    np.fill_diagonal(cosines, -1)
    exact = np.argsort(-cosines, axis=1)[:, :10]
    found = index.search(stored[:100], 11, nprobe=8).ids[:, 1:]
    assert (found[:, 0] != np.arange(100)).all()  # each found itself first
    hits = sum(len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True))
    assert held_out.recall(index, 8) == pytest.approx(hits / 1_000)
    assert 0.95 < hits / 1_000 < 1
