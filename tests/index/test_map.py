"""The map of a collection: near documents lie together, and any collection has one."""

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from index.id_set import IdSet
from index.map import MOST_DOCUMENTS, lay_out
from tests.kit.index_fixtures import unit_vectors


class Stored:
    """Vectors Float32[N, D] under the ids of their rows times two: others were deleted."""

    def __init__(self, vectors: Float32) -> None:
        self._vectors = vectors

    def select(self, where: None) -> IdSet:
        return IdSet(2 * len(self._vectors))

    def vectors(self, vector_ids: Int64) -> tuple[Int64, Float32]:
        found = vector_ids[(vector_ids % 2 == 0) & (vector_ids < 2 * len(self._vectors))]
        return found, self._vectors[found // 2]


def topics(documents: int, number: int) -> tuple[Float32, Int64]:
    random = np.random.default_rng(2)
    of = random.integers(0, number, documents)
    vectors = random.standard_normal((number, 32))[of] + 0.5 * random.standard_normal(
        (documents, 32)
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), of


def test_documents_of_a_topic_lie_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.map._LANDMARKS", 200)  # of 400 documents
    vectors, topic = topics(400, 6)
    layout = lay_out(Stored(vectors))
    assert layout.vector_ids.tolist() == list(range(0, 800, 2))
    assert layout.points.min() >= 0
    assert layout.points.max() <= 1
    distances = ((layout.points[:, None] - layout.points) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :10]
    assert (topic[nearest] == topic[:, None]).mean() > 0.98
    near = layout.nearest_to_centres(5)
    assert len(near) == len(layout.centres) == layout.groups.max() + 1
    same = [len(set(topic[ids // 2].tolist())) == 1 for ids in near]
    assert np.mean(same) > 0.9
    assert (lay_out(Stored(vectors)).points == layout.points).all()


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7])
def test_few_documents_have_places_of_their_own(number: int) -> None:
    layout = lay_out(Stored(unit_vectors(number, seed=3, dimension=8)))
    assert layout.points.shape == (number, 2)
    assert len(np.unique(layout.points, axis=0)) == number
    assert len(layout.centres) == min(number, 1)


def test_equal_documents_are_one_group() -> None:
    layout = lay_out(Stored(np.tile(unit_vectors(1, seed=3, dimension=8), (60, 1))))
    assert np.isfinite(layout.points).all()
    assert layout.groups.max() == len(layout.centres) - 1


def test_a_large_collection_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_DOCUMENTS == 100_000
    monkeypatch.setattr("index.map.MOST_DOCUMENTS", 50)
    layout = lay_out(Stored(unit_vectors(300, seed=3, dimension=8)))
    assert len(set(layout.vector_ids.tolist())) == 50
    assert layout.vector_ids.max() > 300
