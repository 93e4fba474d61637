"""The alignment index: it follows the documents, and refitting never disturbs a search."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from encoder.alignment.space import (
    MIN_DOCUMENTS,
    AlignedBlocks,
    AlignmentSpace,
    fit_space,
    neutral_space,
)
from encoder.arrays import Float32
from index.alignment.alignment_index import AlignableDocuments, ProjectedBlocks
from index.engine.channels import BlockAlignment
from index.engine.port import EncodedQuery
from index.errors import StoreError
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry, OpenStore

WIDTH = 12
PER_DOCUMENT = 20  # blocks, so that `MIN_DOCUMENTS` are enough for a space
QUIET = SilentProgress()


def block_vectors(count: int, seed: int) -> BlockVectors:
    rows = np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32) + 0.5
    unit: Float32 = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return BlockVectors(np.stack([np.arange(count), np.arange(count) + 1], axis=1), unit)


@pytest.fixture
def with_blocks(entry: MakeEntry) -> MakeEntry:
    """Make an entry with block vectors that depend on a seed."""

    def make(name: str, seed: int, count: int = PER_DOCUMENT, text: str = "") -> EncodedDocument:
        made = entry(name, text or f"text {seed}")
        return replace(made, blocks=block_vectors(count, seed))

    return make


@pytest.fixture
def store(open_store: OpenStore) -> DocumentStore:
    opened = open_store()
    opened.alignment.start_with(neutral_space(WIDTH))
    return opened


def fill(store: DocumentStore, make: MakeEntry, count: int) -> list[int]:
    return store.put([make(f"d{n}", n) for n in range(count)]).changed


def read(store: DocumentStore, vector_ids: list[int]) -> dict[int, AlignedBlocks]:
    found = store.alignment.read(vector_ids)
    assert found is not None
    return dict(found.blocks)


def space_of(store: DocumentStore) -> AlignmentSpace:
    used = store.alignment.space()
    assert used is not None
    return used.space


def assert_holds_all_stored_blocks(store: DocumentStore) -> None:
    """Compare every row with the projection of the stored block vectors."""
    ids = store.log.added_after(0)[1].tolist()
    stored, held = store.block_vectors(ids), read(store, ids)
    assert held.keys() == stored.keys()
    assert store.alignment.pending() == 0
    for vector_id, blocks in stored.items():
        expected = space_of(store).project(blocks.vectors)
        assert np.array_equal(held[vector_id].codes, expected.codes)
        assert np.allclose(held[vector_id].hubness, expected.hubness, atol=1e-6)


def test_a_store_without_a_space(open_store: OpenStore, with_blocks: MakeEntry) -> None:
    store = open_store()
    ids = fill(store, with_blocks, 2)
    assert store.alignment.read(ids) is None
    assert store.alignment.space() is None
    store.alignment.refresh(QUIET, fit=False)
    assert store.alignment.pending() == 0
    store.alignment.start_with(neutral_space(WIDTH))
    assert store.alignment.pending() == 2
    store.alignment.refresh(QUIET, fit=False)
    assert_holds_all_stored_blocks(store)


def test_the_first_space_stays_until_another_is_fitted(store: DocumentStore) -> None:
    other = fit_space(block_vectors(2_000, 1).vectors)
    store.alignment.start_with(other)
    assert not len(space_of(store).background)


def test_a_small_corpus_is_not_fitted(store: DocumentStore, with_blocks: MakeEntry) -> None:
    fill(store, with_blocks, 5)
    store.alignment.refresh(QUIET, fit=True)
    assert not len(space_of(store).background)
    assert_holds_all_stored_blocks(store)
    assert store.alignment.drift() == float("inf")


def test_a_fitted_space_drifts(store: DocumentStore, with_blocks: MakeEntry) -> None:
    fill(store, with_blocks, MIN_DOCUMENTS)
    store.alignment.refresh(QUIET, fit=True)
    assert len(space_of(store).background)
    assert_holds_all_stored_blocks(store)
    spaces = sql(store.path, "SELECT space_id FROM alignment_spaces WHERE current = 1")
    assert spaces == sql(store.alignment.path, "SELECT DISTINCT space_id FROM aligned_blocks")
    assert store.alignment.drift() == 0.0
    first = space_of(store)
    store.alignment.refresh(QUIET, fit=True)
    assert space_of(store) is not first
    assert np.array_equal(space_of(store).projection, first.projection)
    assert np.array_equal(space_of(store).background, first.background)
    store.put([with_blocks(f"new{n}", 500 + n) for n in range(10)])
    assert store.alignment.drift() == pytest.approx(10 / MIN_DOCUMENTS)
    store.delete([f"d{n}" for n in range(20)])
    assert store.alignment.drift() == pytest.approx(30 / MIN_DOCUMENTS)


def test_a_refit_is_used_when_it_ends(store: DocumentStore, with_blocks: MakeEntry) -> None:
    ids = fill(store, with_blocks, MIN_DOCUMENTS)
    calls = 0

    def stop_later() -> bool:
        nonlocal calls
        calls += 1
        assert read(store, ids).keys() == set(ids)
        assert not len(space_of(store).background)
        return calls > 1  # after the first batch

    store.alignment.refresh(QUIET, fit=True, stop=stop_later)
    assert calls == 3
    (late,) = store.put([with_blocks("late", 999)]).changed  # between the two passes
    assert late in read(store, [late])
    former = store.alignment.space()
    store.alignment.refresh(QUIET, fit=False)  # continues
    assert len(space_of(store).background)
    found = store.alignment.read(ids, former)  # as a search reads that began before
    assert found is not None
    assert (found.used, found.blocks.keys()) == (store.alignment.space(), set(ids))
    assert_holds_all_stored_blocks(store)


def test_writes_during_a_refit_are_kept(store: DocumentStore, with_blocks: MakeEntry) -> None:
    fill(store, with_blocks, MIN_DOCUMENTS)
    turns = iter(range(1_000))

    def meddle() -> bool:
        turn = next(turns)
        store.put([with_blocks(f"during{turn}", 2_000 + turn)])
        store.delete([f"d{turn}"])
        return False

    store.alignment.refresh(QUIET, fit=True, stop=meddle)
    store.alignment.refresh(QUIET, fit=False)
    assert_holds_all_stored_blocks(store)


@pytest.mark.parametrize("damage", ["x'00'", "7"])
def test_a_row_that_cannot_be_read_lets_the_file_be_made_again(
    store: DocumentStore, with_blocks: MakeEntry, damage: str
) -> None:
    first, second = fill(store, with_blocks, 2)
    sql(store.alignment.path, f"UPDATE aligned_blocks SET content = {damage} WHERE vector_id = 1")
    with pytest.raises(StoreError, match=r"blocks.sqlite3: aligned blocks are damaged"):
        read(store, [first, second])
    assert_holds_all_stored_blocks(store)


def test_a_damaged_space_is_an_error_that_names_the_way_out(
    open_store: OpenStore, store: DocumentStore, with_blocks: MakeEntry
) -> None:
    ids = fill(store, with_blocks, 2)
    sql(store.path, "UPDATE alignment_spaces SET content = substr(content, 9)")
    with pytest.raises(StoreError, match=r"alignment space .* longmatch doctor --repair"):
        open_store().alignment.read(ids)


def test_block_vectors_of_another_width(store: DocumentStore, with_blocks: MakeEntry) -> None:
    wrong = replace(with_blocks("d0", 1), blocks=BlockVectors(np.zeros((1, 2), int), np.eye(1, 5)))
    with pytest.raises(ValueError, match=f"block vectors of 5 numbers in a space for {WIDTH}"):
        store.put([with_blocks("sound", 2), wrong])
    assert len(store) == 0


class Projecting(BlockAlignment):
    """Aligns with blocks that are projected at each call, as an engine without them does."""

    def __init__(self, store: DocumentStore, query: EncodedQuery) -> None:
        super().__init__(store, query)
        self._projected = ProjectedBlocks(store.connections, store.common_text)

    def read_blocks(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        return self._projected.read(vector_ids)


def test_projected_blocks_are_aligned_in_several_calls(
    store: DocumentStore, with_blocks: MakeEntry
) -> None:
    ids = np.array(fill(store, with_blocks, 5))
    query = EncodedQuery("", np.zeros(0, dtype=np.float32), vector_id=int(ids[0]))
    projecting, whole = Projecting(store, query), BlockAlignment(store, query)
    for some in (ids[1:3], ids[3:]):
        expected, found = whole.align(some), projecting.align(some)
        assert expected is not None
        assert found is not None
        np.testing.assert_allclose(found, expected, atol=1e-6)
