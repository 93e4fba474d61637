"""The kinds of vector indexes under test, and brute force over the same vectors.

Those of an index that rounds vectors are rounded in two steps: what is read back is near what was
added, as near as the format allows (`IndexKind.rounding`), and every search equals brute force over
what can be read back, as exactly as in an index that does not round.
"""

import io
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from index.vectors.faiss.faiss_index import FaissIndex, load_faiss_index, train_faiss_index
from index.vectors.vector_index import NO_VECTOR, Precision, SearchResult

DIMENSION = 8
ALL_LISTS = 1_000_000
NO_IDS = np.zeros(0, dtype=np.int64)


def unit_vectors(count: int, seed: int) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    unit: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A precision of FAISS under test, with the lists that its indexes have.

    `rounding` is the largest difference of a value of a vector, from -1 to 1, to what is held:
    fp16 has 11 significant bits. The range of an int8 dimension is 1.2 times that of the 400
    vectors of `make`, so at most 2.4, in 255 steps; hardly any vector lies outside of it.
    """

    precision: Precision
    nlist: int = 1
    rounding: float = 0.0

    def make(self) -> FaissIndex:
        sample = unit_vectors(400 if self.nlist > 1 else 0, seed=99)
        return train_faiss_index(sample, self.nlist, self.precision)

    def add(self, index: FaissIndex, oracle: "BruteForce", ids: Int64, vectors: Float32) -> None:
        """Add vectors to an index, and what it holds of them to its oracle."""
        index.change(ids, vectors)
        held = index.vectors(ids)
        np.testing.assert_allclose(held, vectors, rtol=0, atol=self.rounding)
        oracle.add(ids, held)


KINDS = {
    "one-list": IndexKind("int8"),
    "fp32-many-lists": IndexKind("fp32", 20),
    "fp16-many-lists": IndexKind("fp16", 20, rounding=2**-12),
    "int8-many-lists": IndexKind("int8", 20, rounding=1.2 / 255),
}


def remove(index: FaissIndex, ids: Int64) -> int:
    """Remove ids and return how many of them were there."""
    before = len(index)
    index.change(NO_IDS, unit_vectors(0, seed=0), removed=ids)
    return before - len(index)


def saved(index: FaissIndex) -> FaissIndex:
    """Save an index, and load it again."""
    file = io.BytesIO()
    index.save(file)
    file.seek(0)
    return load_faiss_index(file)


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


def assert_same(index: FaissIndex, oracle: BruteForce, queries: Float32, k: int) -> None:
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
    assert index.held.ids.tolist() == sorted(oracle.vectors)
