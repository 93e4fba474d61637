"""What every vector index finds, shown against brute force over the same vectors."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder.arrays import Float32
from index.id_set import IdSet
from index.vectors.vector_index import NO_VECTOR
from tests.tools.vector_kinds import (
    ALL_LISTS,
    DIMENSION,
    NO_IDS,
    BruteForce,
    IndexKind,
    unit_vectors,
)


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
def test_bad_queries_are_refused(
    kind: IndexKind, queries: Float32, k: int, nprobe: int | None
) -> None:
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
        for _ in range(60):
            index.change(ids, vectors)
            assert index.contains(ids).all()
            index.change(NO_IDS, vectors[:0], removed=ids)
            assert not index.contains(ids).any()

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
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((0.01, False), (0.5, True), (0.9, False), (0.9, True), (1.0, True))
        ),
    ],
)
def test_what_lies_far_from_the_query_is_found_all_the_same(
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


def test_a_selection_of_nothing_finds_nothing(kind: IndexKind) -> None:
    index = kind.make()
    index.change(np.arange(5), unit_vectors(5, seed=1))
    for selection in (IdSet(5), IdSet(0, inverted=True), IdSet(9, np.array([7]))):
        found = index.search(unit_vectors(2, seed=2), 3, among=selection)
        assert (found.ids == NO_VECTOR).all()
        assert np.isneginf(found.scores).all()


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
