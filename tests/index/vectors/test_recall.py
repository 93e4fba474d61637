import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32
from index.vectors import lists
from index.vectors.faiss.faiss_index import train_faiss_index
from index.vectors.recall import HeldOutQueries, share_found
from tests.kit.index_fixtures import MakeVectors

INF = np.inf


def scores(*rows: list[float]) -> Float32:
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("found", "exact", "share"),
    [
        (scores([0.9, 0.8]), scores([0.8, 0.9]), 1.0),
        (scores([0.9, 0.7]), scores([0.9, 0.8]), 0.5),
        (scores([0.9, 0.7], [0.5, 0.4]), scores([0.9, 0.8], [0.5, 0.4]), 0.75),
        (scores([0.9, 0.9]), scores([0.9, 0.9]), 1.0),  # equal neighbours count whichever it was
        (scores([0.9, -INF]), scores([0.9, -INF]), 1.0),  # no more vectors than one
        (scores([-INF, -INF]), scores([0.9, -INF]), 0.0),
        (scores([-INF]), scores([-INF]), 1.0),
    ],
)
def test_share_found(found: Float32, exact: Float32, share: float) -> None:
    assert share_found(found, exact) == pytest.approx(share)


def test_held_out_vectors_are_compared_by_brute_force(vectors: MakeVectors) -> None:
    stored = vectors(400, seed=1)
    ids = np.arange(0, 800, 2)
    index = train_faiss_index(stored, 16)
    index.change(ids, stored)
    held_out = HeldOutQueries(ids[:40], stored[:40], lambda some: (some, stored[some // 2]))
    for start in range(0, 400, 130):
        held_out.compare_with(ids[start : start + 130], stored[start : start + 130])
    assert held_out.recall(index, 16) == 1.0
    cosines = stored[:40] @ stored.T
    np.fill_diagonal(cosines, -1)
    exact = [set(ids[row].tolist()) for row in np.argsort(-cosines, axis=1)[:, :10]]
    found = index.search(stored[:40], 11, nprobe=3).ids
    hits = sum(len(some & set(row.tolist())) for some, row in zip(exact, found, strict=True))
    assert held_out.recall(index, 3) == pytest.approx(hits / 400)
    assert 0.2 < held_out.recall(index, 1) < held_out.recall(index, 3) < 1.0


def test_vectors_that_an_index_has_lost_count_against_it(vectors: MakeVectors) -> None:
    stored = vectors(200, seed=1)
    ids = np.arange(200)
    index = train_faiss_index(stored, 1)
    index.change(ids[:100], stored[:100])
    held_out = HeldOutQueries(ids[:20], stored[:20], lambda some: (some, stored[some]))
    held_out.compare_with(ids, stored)
    assert held_out.recall(index, 1) < 0.8


@given(nlist=st.integers(1, 10_000))
def test_steps_go_from_the_default_to_half_of_the_lists(nlist: int) -> None:
    steps = lists.nprobe_steps(nlist)
    assert steps == sorted(set(steps))
    assert 1 <= steps[0] == lists.default_nprobe(nlist) <= steps[-1] <= nlist
    assert steps[-1] == max(steps[0], nlist // 2)
    assert all(larger <= 1.25 * nprobe + 1 for nprobe, larger in itertools.pairwise(steps))


def test_nprobe_is_the_smallest_that_reaches_the_target() -> None:
    asked: list[int] = []

    def recall(nprobe: int) -> float:
        asked.append(nprobe)
        return nprobe / 50

    assert lists.choose_nprobe(128, 0.8, recall) == (44, 44 / 50)
    assert asked == [22, 28, 35, 44]
    assert lists.choose_nprobe(128, 2.0, recall) == (64, 64 / 50)  # the bound


@pytest.mark.parametrize(
    ("mean", "noise", "expected"),
    [
        (0.90, 0.0, 35),  # under the target: more
        (0.949, 0.1, 35),
        (0.95, 0.0, 28),  # held: nothing changes
        (0.97, 0.02, 28),
        (0.98, 0.1, 28),  # over, but that may be chance
        (0.99, 0.0, 22),  # well over: fewer
    ],
)
def test_nprobe_follows_recall_and_does_not_swing(mean: float, noise: float, expected: int) -> None:
    recalls = [mean - noise, mean + noise] * 25
    assert lists.adapted_nprobe(recalls, 28, 128, 0.95) == expected


@given(recalls=st.lists(st.floats(0, 1), min_size=2, max_size=60), nlist=st.integers(1, 5_000))
def test_nprobe_stays_within_its_bounds(recalls: list[float], nlist: int) -> None:
    steps = lists.nprobe_steps(nlist)
    for nprobe in steps:
        assert lists.adapted_nprobe(recalls, nprobe, nlist, 0.95) in steps
