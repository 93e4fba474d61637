"""Vectors that wait beside the lists until many of them are assigned to their lists together."""

from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from index.id_set import IdSet
from index.vectors.faiss.faiss_index import (
    PENDING,
    FaissIndex,
    load_faiss_index,
    train_faiss_index,
)
from index.vectors.vector_index import Precision
from tests.tools.index_fixtures import unit_vectors

LISTS = 32
STORED = 2_000


def filled(precision: Precision = "int8") -> FaissIndex:
    stored = unit_vectors(STORED, seed=1)
    index = train_faiss_index(stored, LISTS, precision)
    index.change(np.arange(STORED), stored)
    return index


def pending(index: FaissIndex) -> int:
    return len(index._content.waiting)


def add(index: FaissIndex, vectors: Float32, together: int, first: int = STORED) -> None:
    for start in range(0, len(vectors), together):
        some = vectors[start : start + together]
        index.change(np.arange(first + start, first + start + len(some)), some)


def test_few_wait_and_are_found_at_once_wherever_they_are() -> None:
    index, new = filled(), unit_vectors(60, seed=2)
    add(index, new, together=7)
    assert pending(index) == 60
    found = index.search(new, 1, nprobe=1)
    assert found.ids[:, 0].tolist() == list(range(STORED, STORED + 60))
    # Among others, too, by their ids alone and by lists.
    only = index.search(new, 1, nprobe=1, among=IdSet(STORED + 60, np.arange(STORED, STORED + 3)))
    assert set(only.ids[:, 0].tolist()) <= {STORED, STORED + 1, STORED + 2}
    without = IdSet(STORED + 60, np.arange(STORED, STORED + 60), inverted=True)
    assert (index.search(new, 5, nprobe=1, among=without).ids < STORED).all()


def test_all_that_wait_are_among_the_neighbours() -> None:
    index, new = train_faiss_index(unit_vectors(STORED, seed=1), LISTS), unit_vectors(9, seed=2)
    add(index, new, together=3, first=0)
    assert pending(index) == 9
    assert np.sort(index.search(new, 9).ids, axis=1).tolist() == [list(range(9))] * 9


def test_many_are_assigned_at_once() -> None:
    index = filled()
    index.change(np.arange(STORED, STORED + PENDING), unit_vectors(PENDING, seed=2))
    assert pending(index) == 0


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_scores_are_the_same_while_they_wait_and_afterwards(precision: Precision) -> None:
    index, new, queries = filled(precision), unit_vectors(PENDING, seed=2), unit_vectors(50, seed=3)
    add(index, new, together=50)
    assert pending(index) == PENDING
    before = index.search(queries, 20, nprobe=LISTS)
    index.change(np.array([9_000]), -queries[:1])
    assert pending(index) == 0
    after = index.search(queries, 20, nprobe=LISTS)
    assert after.ids.tolist() == before.ids.tolist()
    assert after.scores == pytest.approx(before.scores, abs=1e-6)  # sums in another order


def test_the_sizes_of_lists_count_them_where_they_belong() -> None:
    stored = unit_vectors(STORED, seed=1)
    together, apart = train_faiss_index(stored, LISTS), train_faiss_index(stored, LISTS)
    together.change(np.arange(STORED), stored)
    add(apart, stored, together=9, first=0)
    assert pending(apart) > 0
    assert apart.list_sizes().tolist() == together.list_sizes().tolist()
    assert pending(apart) == 0


def test_those_that_are_removed_while_they_wait_stay_away(tmp_path: Path) -> None:
    index, new = filled(), unit_vectors(40, seed=2)
    add(index, new, together=10)
    gone = np.arange(STORED, STORED + 40, 2)
    index.change(gone[:0], new[:0], removed=gone)
    assert pending(index) == 20
    index.save(tmp_path / "index.bin")
    loaded = load_faiss_index(tmp_path / "index.bin", "int8")
    index.list_sizes()  # assigns them
    for each in (index, loaded):
        assert len(each) == STORED + 20
        assert not each.contains(gone).any()
        found = each.search(new, 1, nprobe=LISTS).ids[:, 0]
        assert found[1::2].tolist() == list(range(STORED + 1, STORED + 40, 2))
        assert not np.isin(found, gone).any()
        assert each.exact_scores(new[1], 1)[0][0] == pytest.approx(1.0, abs=0.02)


def test_what_a_search_began_with_stays_as_it_is() -> None:
    index, new = filled("fp32"), unit_vectors(PENDING + 1, seed=2)
    contents = []
    for number in range(PENDING + 1):
        index.change(np.array([STORED + number]), new[number : number + 1])
        contents.append(index._content)
    assert pending(index) == 0  # assigned together
    index.change(np.array([9_000, 9_001]), unit_vectors(2, seed=3))
    index.change(np.array([9_002]), unit_vectors(1, seed=4), removed=np.array([9_000]))
    for number, content in enumerate(contents[:PENDING], 1):
        assert content.waiting.tolist() == list(range(STORED, STORED + number))
        assert (content.pending == new[:number]).all()


def test_an_index_of_one_list_has_none_that_wait() -> None:
    index, new = train_faiss_index(unit_vectors(10, seed=1), 1), unit_vectors(10, seed=1)
    add(index, new, together=3, first=0)
    assert pending(index) == 0
    assert index.search(new, 1).ids[:, 0].tolist() == list(range(10))
