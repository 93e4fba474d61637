import io
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32
from index.id_set import IdSet
from index.vectors.faiss import faiss_index
from index.vectors.faiss.faiss_index import FaissIndex, train_faiss_index
from index.vectors.lists import ONE_LIST_BELOW, choose_nlist, default_nprobe
from tests.kit.index_fixtures import unit_vectors
from tests.kit.vector_kinds import saved


@pytest.fixture(scope="module")
def vectors() -> Float32:
    return unit_vectors(ONE_LIST_BELOW, seed=1)


@pytest.fixture(scope="module")
def index(vectors: Float32) -> FaissIndex:
    index = train_faiss_index(vectors, choose_nlist(len(vectors)))
    index.change(np.arange(len(vectors)), vectors)
    return index


def recall(index: FaissIndex, vectors: Float32, nprobe: int | None) -> float:
    """Recall@10 against exact search."""
    queries = unit_vectors(200, seed=2)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    found = index.search(queries, 10, nprobe=nprobe).ids
    hits = [
        len(set(first) & set(second))
        for first, second in zip(exact.tolist(), found.tolist(), strict=True)
    ]
    return sum(hits) / exact.size


@pytest.mark.parametrize(
    ("count", "nlist"),
    [(0, 1), (4_999, 1), (5_000, 128), (20_000, 512), (24_336, 624), (1_000_000, 4_000)],
)
def test_lists_grow_with_the_vectors(count: int, nlist: int) -> None:
    assert choose_nlist(count) == nlist


def test_the_share_of_lists_that_is_visited_falls() -> None:
    assert [default_nprobe(nlist) for nlist in (1, 2, 4, 128, 4_000)] == [1, 2, 4, 22, 126]


@given(count=st.integers(0, 10**9))
def test_lists_hold_enough_vectors_to_be_trained(count: int) -> None:
    nlist = choose_nlist(count)
    assert nlist == 1 or 39 * nlist <= count
    assert nlist <= choose_nlist(count + 1)
    assert 1 <= default_nprobe(nlist) <= nlist


def test_nprobe_holds_for_its_call_only(index: FaissIndex, vectors: Float32) -> None:
    alone = {nprobe: recall(index, vectors, nprobe) for nprobe in (1, 4, 128)}
    together: dict[int, set[float]] = {nprobe: set() for nprobe in alone}

    def search(nprobe: int) -> None:
        for _ in range(3):
            together[nprobe].add(recall(index, vectors, nprobe))

    threads = [threading.Thread(target=search, args=(nprobe,)) for nprobe in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == {nprobe: {value} for nprobe, value in alone.items()}


def test_searches_and_changes_of_lists_wait_for_each_other(index: FaissIndex) -> None:
    many = unit_vectors(64, seed=8)
    ids = np.arange(9_000_000, 9_000_064)
    work: list[Callable[[], object]] = [
        *(lambda: index.change(ids, many), lambda: index.search(many[:1], 1)),
        *(lambda: index.vectors(ids), lambda: index.change(ids[:0], many[:0], removed=ids)),
    ]
    for step in work:
        with index._lock.writing():
            waiting = threading.Thread(target=step, daemon=True)
            waiting.start()
            waiting.join(0.05)  # a moment to go wrong in
            assert waiting.is_alive()
        waiting.join()
    for step in (work[0], work[3]):
        with index._lock.reading():
            waiting = threading.Thread(target=step, daemon=True)
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
        waiting.join()


def test_training_twice_gives_the_same_index(vectors: Float32) -> None:
    files = io.BytesIO(), io.BytesIO()
    for file in files:
        index = train_faiss_index(vectors[:2_000], 32)
        index.change(np.arange(2_000), vectors[:2_000])
        index.save(file)
    assert files[0].getvalue() == files[1].getvalue()


@pytest.mark.parametrize(("count", "nlist"), [(10, 11), (0, 2), (10, 0), (10, -1)])
def test_more_lists_than_vectors_cannot_be_trained(count: int, nlist: int) -> None:
    with pytest.raises(ValueError, match=f"{count} vectors cannot be divided into {nlist} lists"):
        train_faiss_index(unit_vectors(count, seed=1), nlist)


def test_training_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    train_faiss_index(unit_vectors(40, seed=1), 20)
    assert capfd.readouterr() == ("", "")


def test_the_threads_of_the_caller_are_left_as_they_were(vectors: Float32) -> None:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        index = train_faiss_index(vectors[:200], 4)
        index.change(np.arange(3), vectors[:3])
        index.search(vectors[:50], 3)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


def test_a_full_disk_is_an_error(index: FaissIndex, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    try:
        with (
            pytest.raises(OSError, match="File too large"),
            (tmp_path / "index.faiss").open("wb") as file,
        ):
            index.save(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(saved(index)) == len(index)


@pytest.mark.parametrize("most", [100, 700, 1_000_000])
def test_exact_scores_are_those_of_every_list(
    index: FaissIndex, vectors: Float32, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("index.vectors.faiss.faiss_index.EXACT_SLICE", most)
    for query in unit_vectors(10, seed=3):
        scores, sequence = index.exact_scores(query, 10)
        assert sequence == index.sequence
        np.testing.assert_allclose(scores, np.sort(vectors @ query)[:-11:-1], atol=1e-6)


@pytest.mark.parametrize("exact_up_to", [0, 2_000])
@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_filtered_recall_is_at_least_that_without_a_filter(
    index: FaissIndex,
    vectors: Float32,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    inverted: bool,
    exact_up_to: int,
) -> None:
    """Whether lists are visited or not."""
    monkeypatch.setattr(faiss_index, "EXACT_UP_TO", exact_up_to)
    kept = np.sort(np.random.default_rng(3).permutation(len(vectors))[: int(share * len(vectors))])
    listed = np.setdiff1d(np.arange(len(vectors)), kept) if inverted else kept
    selection = IdSet(len(vectors), listed, inverted)
    queries = unit_vectors(50, seed=2)
    found = index.search(queries, 10, among=selection)
    exact = np.sort(queries @ vectors[kept].T, axis=1)[:, ::-1][:, :10]
    count = exact.shape[1]  # fewer where fewer are selected
    assert np.isin(found.ids[:, :count], kept).all()
    assert (found.ids[:, count:] == -1).all()
    hits = (found.scores[:, :count] >= exact[:, -1:] - 1e-6).mean()
    assert hits >= recall(index, vectors, None) - 0.02


def test_few_selected_vectors_use_no_lists(index: FaissIndex, vectors: Float32) -> None:
    faiss.cvar.indexIVF_stats.reset()
    index.search(vectors[:1], 10, among=IdSet(len(vectors), np.arange(100)))
    assert faiss.cvar.indexIVF_stats.nlist == 0
    index.search(vectors[:1], 10, among=IdSet(len(vectors), np.arange(0, 5_000, 2)))
    assert faiss.cvar.indexIVF_stats.nlist == 2 * default_nprobe(index.nlist)
