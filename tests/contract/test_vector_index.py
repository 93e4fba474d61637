"""What every vector index does, shown against brute force over the same vectors."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder.arrays import Float32, Int64
from index.id_set import IdSet
from index.vectors.faiss_index import load_faiss_index, train_faiss_index
from index.vectors.vector_index import NO_VECTOR, SearchResult, VectorIndex

DIMENSION = 8
ALL_LISTS = 1_000_000


def unit_vectors(count: int, seed: int) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine under test: how to make an empty index, how to open a saved one."""

    make: Callable[[], VectorIndex]
    load: Callable[[Path], VectorIndex]


ENGINES = {
    "faiss-one-list": Engine(
        lambda: train_faiss_index(np.empty((0, DIMENSION), dtype=np.float32), 1), load_faiss_index
    ),
    "faiss-many-lists": Engine(
        lambda: train_faiss_index(unit_vectors(400, seed=99), 20), load_faiss_index
    ),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


class BruteForce:
    """The oracle: every vector in a dict, every score computed."""

    def __init__(self) -> None:
        self.vectors: dict[int, Float32] = {}

    def add(self, ids: Int64, vectors: Float32) -> None:
        self.vectors |= dict(zip(ids.tolist(), vectors, strict=True))

    def search(self, queries: Float32, k: int) -> SearchResult:
        ids = np.full((len(queries), k), NO_VECTOR, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        if self.vectors:
            stored = np.array(list(self.vectors), dtype=np.int64)
            cosines = queries @ np.stack(list(self.vectors.values())).T
            order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
            ids[:, : order.shape[1]] = stored[order]
            scores[:, : order.shape[1]] = np.take_along_axis(cosines, order, axis=1)
        return SearchResult(ids, scores)


def assert_same(index: VectorIndex, oracle: BruteForce, queries: Float32, k: int) -> None:
    found = index.search(queries, k, nprobe=ALL_LISTS)
    expected = oracle.search(queries, k)
    assert found.ids.shape == found.scores.shape == (len(queries), k)
    assert found.ids.dtype == np.int64
    assert found.scores.dtype == np.float32
    # Scores in the same order, and each id with its own score: ties may come in either order.
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    np.testing.assert_array_equal(found.ids == NO_VECTOR, expected.ids == NO_VECTOR)
    for query, ids, scores in zip(queries, found.ids, found.scores, strict=True):
        there = ids[ids != NO_VECTOR].tolist()
        assert len(set(there)) == len(there)
        for vector_id, score in zip(there, scores, strict=False):
            assert abs(float(query @ oracle.vectors[vector_id]) - float(score)) < 1e-5
    assert len(index) == len(oracle.vectors)


def test_search_equals_brute_force(engine: Engine) -> None:
    index, oracle = engine.make(), BruteForce()
    ids = np.random.default_rng(1).choice(10**15, 500, replace=False)
    vectors = unit_vectors(500, seed=2)
    index.add(ids, vectors)
    oracle.add(ids, vectors)
    assert_same(index, oracle, unit_vectors(30, seed=3), k=10)
    assert index.dimension == DIMENSION


@pytest.mark.parametrize("count", [0, 1, 3])
def test_more_neighbours_than_vectors_end_in_no_vector(engine: Engine, count: int) -> None:
    index = engine.make()
    index.add(np.arange(count), unit_vectors(count, seed=1))
    found = index.search(unit_vectors(2, seed=2), 5, nprobe=ALL_LISTS)
    assert np.sort(found.ids[:, :count]).tolist() == [list(range(count))] * 2
    assert (found.ids[:, count:] == NO_VECTOR).all()
    assert np.isneginf(found.scores[:, count:]).all()
    assert np.isfinite(found.scores[:, :count]).all()


def test_no_query_gives_no_row(engine: Engine) -> None:
    index = engine.make()
    index.add(np.arange(3), unit_vectors(3, seed=1))
    found = index.search(unit_vectors(0, seed=2), 5)
    assert found.ids.shape == found.scores.shape == (0, 5)


def test_an_id_can_be_replaced_by_removing_it_first(engine: Engine) -> None:
    index = engine.make()
    old, new = unit_vectors(2, seed=1)
    index.add(np.array([7]), old[None])
    assert index.remove(np.array([7])) == 1
    index.add(np.array([7]), new[None])
    found = index.search(new[None], 2, nprobe=ALL_LISTS)
    assert found.ids.tolist() == [[7, NO_VECTOR]]
    assert found.scores[0, 0] == pytest.approx(1.0, abs=1e-5)


def test_removing_counts_what_was_there(engine: Engine) -> None:
    index = engine.make()
    index.add(np.arange(10), unit_vectors(10, seed=1))
    assert index.remove(np.array([3, 3, 5, 99, -1])) == 2
    assert index.remove(np.array([3, 5])) == 0
    assert index.remove(np.array([], dtype=np.int64)) == 0
    assert len(index) == 8


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
def test_bad_additions_are_refused_whole(
    engine: Engine, ids: list[int], vectors: Float32, complaint: str
) -> None:
    index, oracle = engine.make(), BruteForce()
    stored = unit_vectors(1, seed=3)
    index.add(np.array([1]), stored)
    oracle.add(np.array([1]), stored)
    with pytest.raises(ValueError, match=complaint):
        index.add(np.array(ids), vectors)
    assert_same(index, oracle, unit_vectors(2, seed=4), k=3)


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
    engine: Engine, queries: Float32, k: int, nprobe: int | None
) -> None:
    with pytest.raises(ValueError, match=r"must|not finite"):
        engine.make().search(queries, k, nprobe=nprobe)


def test_a_saved_index_is_the_same_and_can_be_changed(engine: Engine, tmp_path: Path) -> None:
    index, oracle = engine.make(), BruteForce()
    ids, vectors = np.arange(0, 3_000, 10), unit_vectors(300, seed=1)
    index.add(ids, vectors)
    oracle.add(ids[150:], vectors[150:])
    index.remove(ids[:150])
    index.save(tmp_path / "saved")

    loaded = engine.load(tmp_path / "saved")

    assert_same(loaded, oracle, unit_vectors(10, seed=2), k=300)
    assert loaded.remove(ids[:200]) == 50
    loaded.add(ids[:1], vectors[:1])
    oracle.vectors = {int(ids[0]): vectors[0]} | dict(
        zip(ids[200:].tolist(), vectors[200:], strict=True)
    )
    assert_same(loaded, oracle, unit_vectors(10, seed=2), k=300)
    with pytest.raises(FileExistsError):
        loaded.save(tmp_path / "saved")


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
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_order_of_steps_equals_brute_force(
    engine: Engine, tmp_path: Path, steps: list[tuple[str, list[int]]], seed: int
) -> None:
    index, oracle = engine.make(), BruteForce()
    for number, (step, values) in enumerate(steps):
        ids = np.array(values, dtype=np.int64)
        if step == "add":
            ids = ids[[one not in oracle.vectors for one in values]]
            vectors = unit_vectors(len(ids), seed=seed + number)
            index.add(ids, vectors)
            oracle.add(ids, vectors)
        elif step == "remove":
            there = {one for one in values if oracle.vectors.pop(one, None) is not None}
            assert index.remove(ids) == len(there)
        elif step == "search":
            assert_same(index, oracle, unit_vectors(3, seed=seed + number), values[0])
        else:
            (tmp_path / "saved").unlink(missing_ok=True)
            index.save(tmp_path / "saved")
            index = engine.load(tmp_path / "saved")
    assert_same(index, oracle, unit_vectors(3, seed=seed), k=5)


def test_searches_beside_changes_see_only_whole_changes(engine: Engine) -> None:
    """Groups of vectors come and go together; the stable ones are always found."""
    index = engine.make()
    stable = unit_vectors(50, seed=1)
    index.add(np.arange(50), stable)
    group = 200
    changing = threading.Event()
    changing.set()

    def change(worker: int) -> None:
        ids = 1_000 * (worker + 1) + np.arange(group)
        vectors = np.repeat(unit_vectors(1, seed=worker + 10), group, axis=0)
        for _ in range(60):
            index.add(ids, vectors)
            assert index.remove(ids) == group

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
    kept.vectors = {int(one): oracle.vectors[int(one)] for one in ids[selection.contains(ids)]}
    return kept


@given(
    stored=st.sets(st.integers(0, 60), max_size=50),
    listed=st.sets(st.integers(0, 60), max_size=60),
    inverted=st.booleans(),
    end=st.integers(61, 75),
    factor=st.sampled_from([1, 10**13]),
    k=st.integers(1, 60),
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_search_among_some_equals_brute_force_over_them(
    engine: Engine,
    stored: set[int],
    listed: set[int],
    inverted: bool,
    end: int,
    factor: int,
    k: int,
) -> None:
    index, oracle = engine.make(), BruteForce()
    ids = factor * np.array(sorted(stored), dtype=np.int64)
    index.add(ids, unit_vectors(len(ids), seed=1))
    oracle.add(ids, unit_vectors(len(ids), seed=1))
    selection = IdSet(factor * end, factor * np.array(sorted(listed), np.int64), inverted)
    queries = unit_vectors(3, seed=2)
    found = index.search(queries, k, among=selection)
    expected = among_of(oracle, selection).search(queries, k)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 1.0])
def test_what_lies_far_from_the_query_is_found_all_the_same(
    engine: Engine, share: float, inverted: bool
) -> None:
    """The selected are the farthest of all: no list near the query has any of them."""
    index, oracle = engine.make(), BruteForce()
    vectors, query = unit_vectors(6_000, seed=1), unit_vectors(1, seed=2)
    ids = 3 * np.arange(6_000)
    index.add(ids, vectors)
    oracle.add(ids, vectors)
    order = np.argsort(vectors @ query[0])
    kept = np.sort(ids[order[: round(share * len(ids))]])
    listed = np.setdiff1d(ids, kept) if inverted else kept
    selection = IdSet(18_000, listed, inverted)
    for nprobe in (None, 1):
        found = index.search(query, 50, nprobe=nprobe, among=selection)
        assert np.isin(found.ids, kept).all()
        assert len(set(found.ids[0].tolist())) == 50
        scores = [float(query[0] @ oracle.vectors[one]) for one in found.ids[0].tolist()]
        np.testing.assert_allclose(found.scores[0], scores, atol=1e-5)
        assert (np.diff(found.scores[0]) <= 0).all()
    exact = index.search(query, 50, nprobe=ALL_LISTS, among=selection)
    expected = among_of(oracle, selection).search(query, 50)
    np.testing.assert_allclose(exact.scores, expected.scores, atol=1e-5)


def test_a_selection_of_nothing_finds_nothing(engine: Engine) -> None:
    index = engine.make()
    index.add(np.arange(5), unit_vectors(5, seed=1))
    for selection in (IdSet(5), IdSet(0, inverted=True), IdSet(9, np.array([7]))):
        found = index.search(unit_vectors(2, seed=2), 3, among=selection)
        assert (found.ids == NO_VECTOR).all()
        assert np.isneginf(found.scores).all()
