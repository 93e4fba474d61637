"""Block vectors in the store: with the document, in one transaction, apart from ordinary reads."""

from dataclasses import replace

import numpy as np
import pytest

from encoder.blocks import Receipt, SentenceBlocks
from index.errors import StoreError
from index.sqlite.block_vectors import BlockVectors, as_stored, block_vectors_of
from index.store.document_store import DocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import MakeEntry

WIDTH = 384


def find_blocks(count: int, seed: int = 1) -> BlockVectors:
    vectors = np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    offsets = tuple((10 * row, 10 * row + 9) for row in range(count))
    sentences = SentenceBlocks(((7,),) * count, offsets, Receipt(count, count, count, 0, count))
    return block_vectors_of(sentences, vectors)


def test_block_vectors_come_back(store: DocumentStore, entry: MakeEntry) -> None:
    first, second = find_blocks(3), find_blocks(70, seed=2)
    change = store.put([replace(entry("a"), blocks=first), replace(entry("b", "x"), blocks=second)])
    found = store.block_vectors([*change.changed, 99])
    assert found.keys() == set(change.changed)
    for kept, given in zip(found.values(), (first, second), strict=True):
        np.testing.assert_array_equal(kept.offsets, given.offsets)
        np.testing.assert_allclose(kept.vectors, given.vectors, atol=1e-3)
        cosines = given.vectors @ given.vectors.T
        np.testing.assert_allclose(kept.vectors @ kept.vectors.T, cosines, atol=2e-3)
        np.testing.assert_array_equal(kept.vectors, as_stored(given.vectors))
        np.testing.assert_array_equal(kept.vectors, as_stored(kept.vectors))


def test_they_go_with_the_document(store: DocumentStore, entry: MakeEntry) -> None:
    old = store.put([replace(entry("a", "old"), blocks=find_blocks(2))]).changed
    new = store.put([replace(entry("a", "new"), blocks=find_blocks(5))]).changed
    assert [len(blocks.offsets) for blocks in store.block_vectors(old + new).values()] == [5]
    store.delete(["a"])
    assert sql(store.path, "SELECT count(*) FROM block_vectors") == [(0,)]


def test_a_match_reads_no_block_vectors(store: DocumentStore, entry: MakeEntry) -> None:
    """What answers and indexes read works in a store whose block vectors are gone or garbage."""
    change = store.put([replace(entry("a"), blocks=find_blocks(2))])
    sql(store.path, "ALTER TABLE block_vectors RENAME TO elsewhere")
    assert store.get(change.changed)[1].id == "a"
    assert store.find(["a"]).keys() == {"a"}
    assert len(store.vectors(change.changed)[0]) == 1
    with pytest.raises(StoreError, match="block_vectors"):
        store.block_vectors([1])


@pytest.mark.parametrize(
    "damage", ["vectors = x'0000'", "offsets = x'00'", "vectors = zeroblob(768)", "vectors = x''"]
)
def test_damaged_block_vectors_are_an_error_that_names_the_store(
    store: DocumentStore, entry: MakeEntry, damage: str
) -> None:
    store.put([replace(entry("a"), blocks=find_blocks(2))])
    sql(store.path, f"UPDATE block_vectors SET {damage}")
    with pytest.raises(StoreError, match=r"sqlite3: block vectors are damaged"):
        store.block_vectors([1])


def test_the_size_of_a_stored_block(store: DocumentStore, entry: MakeEntry) -> None:
    blocks = 40
    store.put([replace(entry(f"d{n}", f"text {n}"), blocks=find_blocks(blocks)) for n in range(50)])
    size = "SELECT avg(length(offsets) + length(vectors)) FROM block_vectors"
    assert sql(store.path, size) == [(blocks * (WIDTH + 8),)]
