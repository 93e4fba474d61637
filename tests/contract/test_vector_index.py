"""What every vector index holds when it is changed, saved and loaded again."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32
from index.id_set import IdSet
from index.vectors.faiss.faiss_index import train_faiss_index
from index.vectors.vector_index import NO_VECTOR
from tests.kit.vector_kinds import (
    ALL_LISTS,
    DIMENSION,
    NO_IDS,
    BruteForce,
    IndexKind,
    assert_same,
    remove,
    saved,
    unit_vectors,
)


@pytest.mark.parametrize(
    ("ids", "vectors", "complaint"),
    [
        ([1], unit_vectors(1, seed=1), "id 1 is already there"),
        ([5, 1], unit_vectors(2, seed=1), "id 1 is already there"),
        ([5, 5], unit_vectors(2, seed=1), "different"),
        ([-1], unit_vectors(1, seed=1), "not below 0"),
        ([5, 6], unit_vectors(1, seed=1), "1 vectors need as many ids"),
        ([5], unit_vectors(1, seed=1)[:, :7], r"shape \(N, 8\), not \(1, 7\)"),
        ([5], unit_vectors(1, seed=1)[0], r"shape \(N, 8\), not \(8,\)"),
        ([5], np.full((1, DIMENSION), np.nan, dtype=np.float32), "not finite"),
    ],
)
def test_bad_additions_are_refused(
    kind: IndexKind, ids: list[int], vectors: Float32, complaint: str
) -> None:
    index, oracle = kind.make(), BruteForce()
    stored = unit_vectors(1, seed=3)
    kind.add(index, oracle, np.array([1]), stored)
    with pytest.raises(ValueError, match=complaint):
        index.change(np.array(ids), vectors)
    assert_same(index, oracle, unit_vectors(2, seed=4), k=3)


def test_a_saved_index_is_the_same_and_can_be_changed(kind: IndexKind) -> None:
    index, oracle = kind.make(), BruteForce()
    ids, vectors = np.arange(0, 3_000, 10), unit_vectors(300, seed=1)
    kind.add(index, oracle, ids, vectors)
    remove(index, ids[:150])
    held = index.vectors(ids[200:])
    oracle.vectors = dict(zip(ids[150:].tolist(), index.vectors(ids[150:]), strict=True))
    loaded = saved(index)
    assert_same(loaded, oracle, unit_vectors(10, seed=2), k=300)
    assert remove(loaded, ids[:200]) == 50
    oracle.vectors = dict(zip(ids[200:].tolist(), held, strict=True))
    kind.add(loaded, oracle, ids[:1], vectors[:1])
    assert_same(loaded, oracle, unit_vectors(10, seed=2), k=300)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 40), max_size=12, unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 40), max_size=12)),
        st.tuples(st.just("search"), st.lists(st.integers(1, 50), min_size=1, max_size=1)),
        st.tuples(st.just("save"), st.just([])),
    ),
    max_size=25,
)


@given(steps=STEPS, seed=st.integers(0, 2**32 - 1))
def test_any_order_of_steps_equals_brute_force(
    kind: IndexKind, steps: list[tuple[str, list[int]]], seed: int
) -> None:
    index, oracle = kind.make(), BruteForce()
    for number, (step, values) in enumerate(steps):
        ids = np.array(values, dtype=np.int64)
        if step == "add":
            ids = ids[[value not in oracle.vectors for value in values]]
            vectors = unit_vectors(len(ids), seed=seed + number)
            kind.add(index, oracle, ids, vectors)
        elif step == "remove":
            there = {value for value in values if oracle.vectors.pop(value, None) is not None}
            assert remove(index, ids) == len(there)
        elif step == "search":
            assert_same(index, oracle, unit_vectors(3, seed=seed + number), values[0])
        else:
            index = saved(index)
    assert_same(index, oracle, unit_vectors(3, seed=seed), k=5)


def test_a_new_index_is_empty(kind: IndexKind) -> None:
    index = kind.make()
    assert (len(index), index.sequence, index.dimension) == (0, 0, DIMENSION)
    assert index.nlist == kind.nlist
    assert index.list_sizes().tolist() == [0] * kind.nlist
    assert index.held.ids.tolist() == []
    assert index.held.contains(np.array([0, 5])).tolist() == [False, False]
    assert index.vectors(NO_IDS).shape == (0, DIMENSION)


def test_what_is_added_can_be_read_back(kind: IndexKind) -> None:
    index = kind.make()
    ids, vectors = np.array([40, 7, 10**12]), unit_vectors(3, seed=1)
    index.change(ids, vectors)
    assert index.held.ids.tolist() == [7, 40, 10**12]
    assert index.held.contains(np.array([7, 8, 40, -1])).tolist() == [True, False, True, False]
    held = index.vectors(ids)
    np.testing.assert_allclose(held, vectors, rtol=0, atol=kind.rounding)
    assert index.exact == (held == vectors).all() == (kind.rounding == 0)
    index.change(NO_IDS, unit_vectors(0, seed=0), removed=ids[:1])
    mixed = index.vectors(np.append(ids, 10**9))
    np.testing.assert_array_equal(mixed[1:-1], held[1:])
    assert np.isnan(mixed[[0, -1]]).all()


def test_a_change_adds_removes_and_names_its_sequence(kind: IndexKind) -> None:
    index = kind.make()
    vectors = unit_vectors(4, seed=1)
    index.change(np.arange(3), vectors[:3], sequence=4)
    assert index.sequence == index.search(vectors[:1], 1).sequence == 4
    index.change(np.array([3]), vectors[3:], removed=np.array([0, 2, 99]), sequence=6)
    assert index.held.ids.tolist() == [1, 3]
    assert index.sequence == 6
    index.change(NO_IDS, vectors[:0], removed=np.array([1]))  # of the same sequence
    assert (index.held.ids.tolist(), index.sequence) == ([3], 6)
    with pytest.raises(ValueError, match="id 3 is already there"):
        index.change(np.array([3]), vectors[3:], removed=np.array([3]), sequence=9)
    assert (index.held.ids.tolist(), index.sequence) == ([3], 6)


def test_vectors_beyond_the_trained_ranges_are_clipped() -> None:
    """Ranges come from a sample; what lies outside is still found, by a smaller value."""
    sample = unit_vectors(400, seed=99)
    sample[:, 0] = np.abs(sample[:, 0])
    index = train_faiss_index(sample, 20, "int8")
    outside = np.eye(1, DIMENSION, dtype=np.float32) * -1
    index.change(np.arange(2), np.concatenate([outside, sample[:1]]))
    held = index.vectors(np.arange(1))
    assert -0.2 < held[0, 0] < -0.05
    assert index.search(outside, 1, nprobe=ALL_LISTS).ids.tolist() == [[0]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_more_neighbours_than_vectors_end_in_no_vector(kind: IndexKind, count: int) -> None:
    index = kind.make()
    index.change(np.arange(count), unit_vectors(count, seed=1))
    found = index.search(unit_vectors(2, seed=2), 5, nprobe=ALL_LISTS)
    assert np.sort(found.ids[:, :count]).tolist() == [list(range(count))] * 2
    assert (found.ids[:, count:] == NO_VECTOR).all()
    assert np.isneginf(found.scores[:, count:]).all()
    assert np.isfinite(found.scores[:, :count]).all()
    nothing = index.search(unit_vectors(0, seed=2), 5)
    assert nothing.ids.shape == nothing.scores.shape == (0, 5)


@pytest.mark.parametrize(
    ("queries", "k", "nprobe"),
    [
        (unit_vectors(1, seed=1), 0, None),
        (unit_vectors(1, seed=1), 3, 0),
        (unit_vectors(1, seed=1)[:, :7], 3, None),
        (np.full((1, DIMENSION), np.inf, dtype=np.float32), 3, None),
    ],
)
def test_bad_queries_fail(kind: IndexKind, queries: Float32, k: int, nprobe: int | None) -> None:
    with pytest.raises(ValueError, match=r"must|not finite"):
        kind.make().search(queries, k, nprobe=nprobe)


def test_searches_beside_changes_see_only_whole_changes(kind: IndexKind) -> None:
    """Groups of vectors come and go together; the stable ones are always found."""
    index = kind.make()
    stable = unit_vectors(50, seed=1)
    index.change(np.arange(50), stable)
    group = 200
    changing = threading.Event()
    changing.set()

    def change(worker: int) -> None:
        ids = 1_000 * (worker + 1) + np.arange(group)
        vectors = np.repeat(unit_vectors(1, seed=worker + 10), group, axis=0)
        for _ in range(25):
            index.change(ids, vectors)
            assert index.held.contains(ids).all()
            index.change(NO_IDS, vectors[:0], removed=ids)
            assert not index.held.contains(ids).any()

    def search(worker: int) -> None:
        query = unit_vectors(1, seed=worker + 10)
        while changing.is_set():
            found = index.search(np.concatenate([stable, query]), 700, nprobe=ALL_LISTS).ids
            assert found[:50, 0].tolist() == list(range(50))
            assert np.sum(found[-1] // 1_000 == worker + 1) in (0, group)

    with ThreadPoolExecutor(6) as threads:
        searchers = [threads.submit(search, worker) for worker in range(3)]
        changers = [threads.submit(change, worker) for worker in range(3)]
        wait(changers)
        changing.clear()
    for done in changers + searchers:
        done.result()
    assert len(index) == 50


def among_of(oracle: BruteForce, selection: IdSet) -> BruteForce:
    """Return an oracle that knows the selected vectors only."""
    kept = BruteForce()
    ids = np.array(list(oracle.vectors), dtype=np.int64)
    kept.vectors = {
        int(vector_id): oracle.vectors[int(vector_id)] for vector_id in ids[selection.contains(ids)]
    }
    return kept


@given(
    stored=st.sets(st.integers(0, 60), max_size=50),
    listed=st.sets(st.integers(0, 60), max_size=60),
    inverted=st.booleans(),
    end=st.integers(61, 75),
    factor=st.sampled_from([1, 10**13]),
    k=st.integers(1, 60),
)
def test_a_search_among_some_equals_brute_force_over_them(
    kind: IndexKind,
    stored: set[int],
    listed: set[int],
    inverted: bool,
    end: int,
    factor: int,
    k: int,
) -> None:
    index, oracle = kind.make(), BruteForce()
    ids = factor * np.array(sorted(stored), dtype=np.int64)
    kind.add(index, oracle, ids, unit_vectors(len(ids), seed=1))
    selection = IdSet(factor * end, factor * np.array(sorted(listed), np.int64), inverted)
    queries = unit_vectors(3, seed=2)
    found = index.search(queries, k, among=selection)
    expected = among_of(oracle, selection).search(queries, k)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize(
    ("share", "inverted"),
    [
        *((0.01, True), (0.5, False), (1.0, False)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((0.01, False), (0.5, True), (0.9, False), (0.9, True), (1.0, True))
        ),
    ],
)
def test_selected_vectors_far_from_the_query_are_found(
    kind: IndexKind, share: float, inverted: bool
) -> None:
    """The selected are the farthest of all: no list near the query has any of them."""
    index, oracle = kind.make(), BruteForce()
    vectors, query = unit_vectors(6_000, seed=1), unit_vectors(1, seed=2)
    ids = 3 * np.arange(6_000)
    index.change(ids, vectors)
    oracle.add(ids, index.vectors(ids))
    order = np.argsort(vectors @ query[0])
    kept = np.sort(ids[order[: round(share * len(ids))]])
    listed = np.setdiff1d(ids, kept) if inverted else kept
    selection = IdSet(18_000, listed, inverted)
    for nprobe in (None, 1):
        found = index.search(query, 50, nprobe=nprobe, among=selection)
        assert np.isin(found.ids, kept).all()
        assert len(set(found.ids[0].tolist())) == 50
        scores = [
            float(query[0] @ oracle.vectors[vector_id]) for vector_id in found.ids[0].tolist()
        ]
        np.testing.assert_allclose(found.scores[0], scores, atol=1e-5)
        assert (np.diff(found.scores[0]) <= 0).all()
    exact = index.search(query, 50, nprobe=ALL_LISTS, among=selection)
    expected = among_of(oracle, selection).search(query, 50)
    np.testing.assert_allclose(exact.scores, expected.scores, atol=1e-5)


def test_exact_scores_equal_brute_force(kind: IndexKind) -> None:
    index, oracle = kind.make(), BruteForce()
    query = unit_vectors(1, seed=2)
    assert np.isneginf(index.exact_scores(query[0], 2)[0]).all()
    vectors = unit_vectors(300, seed=1)
    kind.add(index, oracle, np.arange(300), vectors)
    index.change(NO_IDS, vectors[:0], sequence=3)
    for k in (1, 10, 400):
        scores, sequence = index.exact_scores(query[0], k)
        np.testing.assert_allclose(scores, oracle.search(query, k).scores[0], atol=1e-5)
        assert sequence == 3
