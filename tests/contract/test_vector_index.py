"""What every vector index does, shown against brute force over the same vectors.

Those of an index that rounds vectors are rounded in two steps: what is read back is near what was
added, as near as the format allows (`Engine.rounding`), and every search equals brute force over
what can be read back, as exactly as in an index that does not round.
"""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder.arrays import Float32, Int64
from index.errors import SnapshotError
from index.id_set import IdSet
from index.vectors.backends import EXACT, FAISS_BACKENDS, Backend
from index.vectors.milvus.engine import MilvusEngine
from index.vectors.vector_index import NO_VECTOR, Precision, SearchResult, VectorIndex
from tests.tools.milvus import MILVUS_SERVER

DIMENSION = 8
ALL_LISTS = 1_000_000
NO_IDS = np.zeros(0, dtype=np.int64)


def unit_vectors(count: int, seed: int) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine under test, with the lists that its indexes have.

    `rounding` is the largest difference of a value of a vector, from -1 to 1, to what is held:
    fp16 has 11 significant bits. The range of an int8 dimension is 1.2 times that of the 400
    vectors of `make`, so at most 2.4, in 255 steps; hardly any vector lies outside of it.
    """

    backend: Backend
    nlist: int = 1
    rounding: float = 0.0
    rounds: int = 60  # of changes beside searches; those of Milvus Lite take seconds

    @property
    def score_rounding(self) -> float:
        """The largest difference of a cosine: the values of a query sum up to sqrt(D) at most."""
        return self.rounding * DIMENSION**0.5

    def make(self) -> VectorIndex:
        return self.backend.train(unit_vectors(400 if self.nlist > 1 else 0, seed=99), self.nlist)

    def load(self, path: Path) -> VectorIndex:
        return self.backend.load(path)

    def add(self, index: VectorIndex, oracle: "BruteForce", ids: Int64, vectors: Float32) -> None:
        """Add vectors to an index, and what it holds of them to its oracle."""
        index.change(ids, vectors)
        held = index.vectors(ids)
        np.testing.assert_allclose(held, vectors, rtol=0, atol=self.rounding)
        oracle.add(ids, held)


ENGINES = {
    "exact": Engine(EXACT),
    "faiss-one-list": Engine(FAISS_BACKENDS["fp32"]),
    "faiss-many-lists": Engine(FAISS_BACKENDS["fp32"], 20),
    "faiss-fp16-one-list": Engine(FAISS_BACKENDS["fp16"]),
    "faiss-fp16-many-lists": Engine(FAISS_BACKENDS["fp16"], 20, rounding=2**-12),
    "faiss-int8-one-list": Engine(FAISS_BACKENDS["int8"]),
    "faiss-int8-many-lists": Engine(FAISS_BACKENDS["int8"], 20, rounding=1.2 / 255),
}

MILVUS = {"milvus-one-list": 1, **({"milvus-many-lists": 20} if MILVUS_SERVER else {})}


# Between the other two in every way: their tests find what would be wrong with it.
FP16 = [pytest.param(name, marks=pytest.mark.slow) for name in ENGINES if "fp16" in name]
OTHERS = [name for name in ENGINES if "fp16" not in name]


@pytest.fixture(params=[*OTHERS, *FP16, *MILVUS])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param in MILVUS:
        milvus: MilvusEngine = request.getfixturevalue("milvus_engine")
        return Engine(milvus.backend, MILVUS[request.param], rounds=1)
    return ENGINES[request.param]


def remove(index: VectorIndex, ids: Int64) -> int:
    """Remove ids and return how many of them were there."""
    before = len(index)
    index.change(NO_IDS, unit_vectors(0, seed=0), removed=ids)
    return before - len(index)


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
    assert len(index) == len(oracle.vectors) == int(index.list_sizes().sum())
    assert index.ids().tolist() == sorted(oracle.vectors)


def test_the_port_is_small() -> None:
    methods = [
        name
        for name, member in vars(VectorIndex).items()
        if callable(member) and not name.startswith("_")
    ]
    assert len(methods) <= 8


def test_search_equals_brute_force(engine: Engine) -> None:
    index, oracle = engine.make(), BruteForce()
    ids = np.random.default_rng(1).choice(10**15, 500, replace=False)
    vectors = unit_vectors(500, seed=2)
    engine.add(index, oracle, ids, vectors)
    assert_same(index, oracle, unit_vectors(30, seed=3), k=10)
    assert index.dimension == DIMENSION


@pytest.mark.parametrize("count", [0, 1, 3])
def test_more_neighbours_than_vectors_end_in_no_vector(engine: Engine, count: int) -> None:
    index = engine.make()
    index.change(np.arange(count), unit_vectors(count, seed=1))
    found = index.search(unit_vectors(2, seed=2), 5, nprobe=ALL_LISTS)
    assert np.sort(found.ids[:, :count]).tolist() == [list(range(count))] * 2
    assert (found.ids[:, count:] == NO_VECTOR).all()
    assert np.isneginf(found.scores[:, count:]).all()
    assert np.isfinite(found.scores[:, :count]).all()


def test_no_query_gives_no_row(engine: Engine) -> None:
    index = engine.make()
    index.change(np.arange(3), unit_vectors(3, seed=1))
    found = index.search(unit_vectors(0, seed=2), 5)
    assert found.ids.shape == found.scores.shape == (0, 5)


def test_an_id_can_be_replaced_by_removing_it_first(engine: Engine) -> None:
    index = engine.make()
    old, new = unit_vectors(2, seed=1)
    index.change(np.array([7]), old[None])
    assert remove(index, np.array([7])) == 1
    index.change(np.array([7]), new[None])
    found = index.search(new[None], 2, nprobe=ALL_LISTS)
    assert found.ids.tolist() == [[7, NO_VECTOR]]
    assert found.scores[0, 0] == pytest.approx(1.0, abs=1e-5 + engine.score_rounding)


def test_removing_counts_what_was_there(engine: Engine) -> None:
    index = engine.make()
    index.change(np.arange(10), unit_vectors(10, seed=1))
    assert remove(index, np.array([3, 3, 5, 99, -1])) == 2
    assert remove(index, np.array([3, 5])) == 0
    assert remove(index, np.array([], dtype=np.int64)) == 0
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
    engine.add(index, oracle, np.array([1]), stored)
    with pytest.raises(ValueError, match=complaint):
        index.change(np.array(ids), vectors)
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
    engine.add(index, oracle, ids, vectors)
    remove(index, ids[:150])
    held = index.vectors(ids[200:])
    oracle.vectors = dict(zip(ids[150:].tolist(), index.vectors(ids[150:]), strict=True))
    index.save(tmp_path / "saved")

    loaded = engine.load(tmp_path / "saved")

    assert_same(loaded, oracle, unit_vectors(10, seed=2), k=300)
    assert remove(loaded, ids[:200]) == 50
    oracle.vectors = dict(zip(ids[200:].tolist(), held, strict=True))
    engine.add(loaded, oracle, ids[:1], vectors[:1])
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
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_steps_equals_brute_force(
    engine: Engine, tmp_path: Path, steps: list[tuple[str, list[int]]], seed: int
) -> None:
    index, oracle = engine.make(), BruteForce()
    for number, (step, values) in enumerate(steps):
        ids = np.array(values, dtype=np.int64)
        if step == "add":
            ids = ids[[one not in oracle.vectors for one in values]]
            vectors = unit_vectors(len(ids), seed=seed + number)
            engine.add(index, oracle, ids, vectors)
        elif step == "remove":
            there = {one for one in values if oracle.vectors.pop(one, None) is not None}
            assert remove(index, ids) == len(there)
        elif step == "search":
            assert_same(index, oracle, unit_vectors(3, seed=seed + number), values[0])
        else:
            (tmp_path / "saved").unlink(missing_ok=True)
            index.save(tmp_path / "saved")
            index = engine.load(tmp_path / "saved")
    assert_same(index, oracle, unit_vectors(3, seed=seed), k=5)


@pytest.mark.parametrize(
    "engine",
    [*OTHERS, *FP16, *(pytest.param(name, marks=pytest.mark.slow) for name in MILVUS)],
    indirect=True,
)
def test_searches_beside_changes_see_only_whole_changes(engine: Engine) -> None:
    """Groups of vectors come and go together; the stable ones are always found."""
    index = engine.make()
    stable = unit_vectors(50, seed=1)
    index.change(np.arange(50), stable)
    group = 200
    changing = threading.Event()
    changing.set()

    def change(worker: int) -> None:
        ids = 1_000 * (worker + 1) + np.arange(group)
        vectors = np.repeat(unit_vectors(1, seed=worker + 10), group, axis=0)
        for _ in range(engine.rounds):
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
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    engine.add(index, oracle, ids, unit_vectors(len(ids), seed=1))
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
    engine: Engine, share: float, inverted: bool
) -> None:
    """The selected are the farthest of all: no list near the query has any of them."""
    index, oracle = engine.make(), BruteForce()
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
        scores = [float(query[0] @ oracle.vectors[one]) for one in found.ids[0].tolist()]
        np.testing.assert_allclose(found.scores[0], scores, atol=1e-5)
        assert (np.diff(found.scores[0]) <= 0).all()
    exact = index.search(query, 50, nprobe=ALL_LISTS, among=selection)
    expected = among_of(oracle, selection).search(query, 50)
    np.testing.assert_allclose(exact.scores, expected.scores, atol=1e-5)


def test_a_selection_of_nothing_finds_nothing(engine: Engine) -> None:
    index = engine.make()
    index.change(np.arange(5), unit_vectors(5, seed=1))
    for selection in (IdSet(5), IdSet(0, inverted=True), IdSet(9, np.array([7]))):
        found = index.search(unit_vectors(2, seed=2), 3, among=selection)
        assert (found.ids == NO_VECTOR).all()
        assert np.isneginf(found.scores).all()


def test_a_new_index_is_empty(engine: Engine) -> None:
    index = engine.make()
    assert (len(index), index.sequence, index.dimension) == (0, 0, DIMENSION)
    assert index.nlist == engine.nlist
    assert index.list_sizes().tolist() == [0] * engine.nlist
    assert index.ids().tolist() == []
    assert index.contains(np.array([0, 5])).tolist() == [False, False]
    assert index.vectors(NO_IDS).shape == (0, DIMENSION)


def test_what_is_added_can_be_read_back(engine: Engine) -> None:
    index = engine.make()
    ids, vectors = np.array([40, 7, 10**12]), unit_vectors(3, seed=1)
    index.change(ids, vectors)
    assert index.ids().tolist() == [7, 40, 10**12]
    assert index.contains(np.array([7, 8, 40, -1])).tolist() == [True, False, True, False]
    held = index.vectors(ids)
    np.testing.assert_allclose(held, vectors, rtol=0, atol=engine.rounding)
    assert index.exact == (held == vectors).all() == (engine.rounding == 0)
    index.change(NO_IDS, unit_vectors(0, seed=0), removed=ids[:1])
    mixed = index.vectors(np.append(ids, 10**9))
    np.testing.assert_array_equal(mixed[1:-1], held[1:])
    assert np.isnan(mixed[[0, -1]]).all()


def test_a_change_adds_removes_and_names_its_sequence(engine: Engine) -> None:
    index = engine.make()
    vectors = unit_vectors(4, seed=1)
    index.change(np.arange(3), vectors[:3], sequence=4)
    assert index.sequence == index.search(vectors[:1], 1).sequence == 4
    index.change(np.array([3]), vectors[3:], removed=np.array([0, 2, 99]), sequence=6)
    assert index.ids().tolist() == [1, 3]
    assert index.sequence == 6
    index.change(NO_IDS, vectors[:0], removed=np.array([1]))  # of the same sequence
    assert (index.ids().tolist(), index.sequence) == ([3], 6)
    with pytest.raises(ValueError, match="id 3 is already there"):
        index.change(np.array([3]), vectors[3:], removed=np.array([3]), sequence=9)
    assert (index.ids().tolist(), index.sequence) == ([3], 6)


def test_exact_scores_equal_brute_force(engine: Engine) -> None:
    index, oracle = engine.make(), BruteForce()
    query = unit_vectors(1, seed=2)
    assert np.isneginf(index.exact_scores(query[0], 2)[0]).all()
    vectors = unit_vectors(300, seed=1)
    engine.add(index, oracle, np.arange(300), vectors)
    index.change(NO_IDS, vectors[:0], sequence=3)
    for k in (1, 10, 400):
        scores, sequence = index.exact_scores(query[0], k)
        np.testing.assert_allclose(scores, oracle.search(query, k).scores[0], atol=1e-5)
        assert sequence == 3


@pytest.mark.parametrize(
    ("saved", "loading"), [("fp32", "int8"), ("int8", "fp32"), ("fp16", "int8"), ("int8", "fp16")]
)
def test_an_index_of_another_precision_is_not_loaded(
    tmp_path: Path, saved: Precision, loading: Precision
) -> None:
    index = Engine(FAISS_BACKENDS[saved], 20).make()
    index.save(tmp_path / "saved")
    with pytest.raises(SnapshotError, match=f"does not hold vectors in {loading}"):
        FAISS_BACKENDS[loading].load(tmp_path / "saved")


def test_vectors_beyond_the_trained_ranges_are_held_at_their_ends() -> None:
    """Ranges come from a sample; what lies outside is still found, by a smaller value."""
    sample = unit_vectors(400, seed=99)
    sample[:, 0] = np.abs(sample[:, 0])
    index = FAISS_BACKENDS["int8"].train(sample, 20)
    outside = np.eye(1, DIMENSION, dtype=np.float32) * -1
    index.change(np.arange(2), np.concatenate([outside, sample[:1]]))
    held = index.vectors(np.arange(1))
    assert -0.2 < held[0, 0] < -0.05
    assert index.search(outside, 1, nprobe=ALL_LISTS).ids.tolist() == [[0]]


@pytest.mark.parametrize("content", [b"", b"no index", b"PK\x03\x04 nor this"])
def test_another_file_is_not_loaded(engine: Engine, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "saved"
    with pytest.raises(SnapshotError, match="cannot be read"):
        engine.load(path)
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="saved: "):
        engine.load(path)


def test_a_cut_file_is_not_loaded(engine: Engine, tmp_path: Path) -> None:
    index = engine.make()
    index.change(np.arange(50), unit_vectors(50, seed=1))
    index.save(tmp_path / "saved")
    whole = (tmp_path / "saved").read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 40)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(SnapshotError):
            engine.load(tmp_path / "cut")
