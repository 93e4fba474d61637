"""Whether the lists of Milvus are used: by a server they are, by Milvus Lite they are not."""

import numpy as np

from encoder.arrays import Float32
from index.vectors.exact_index import ExactIndex
from index.vectors.milvus.engine import MilvusEngine
from index.vectors.recall import share_found
from index.vectors.vector_index import VectorIndex
from tests.tools.index_fixtures import unit_vectors

LISTS = 50
COUNT = 6_000  # of fewer than 1,024 vectors a server makes no lists


def recall(index: VectorIndex, queries: Float32, exact: Float32, nprobe: int) -> float:
    return share_found(index.search(queries, 10, nprobe=nprobe).scores, exact)


def test_a_visit_to_all_lists_is_exact_and_to_one_is_not(milvus_engine: MilvusEngine) -> None:
    vectors, queries = unit_vectors(COUNT, seed=1), unit_vectors(50, seed=2)
    index = milvus_engine.backend.train(vectors[:0], LISTS)
    for start in range(0, COUNT, 1_000):
        index.change(np.arange(start, start + 1_000), vectors[start : start + 1_000])
    milvus_engine.backend.settle(index)
    exact = ExactIndex(np.arange(COUNT), vectors).search(queries, 10).scores
    if milvus_engine.connection.is_lite:
        assert index.nlist == 1
        assert recall(index, queries, exact, nprobe=1) == 1.0
        return
    assert index.nlist == LISTS
    found = [recall(index, queries, exact, nprobe) for nprobe in (1, 10, LISTS)]
    assert 0.05 < found[0] < 0.7 < found[1] <= found[2] == 1.0, found
    for query, scores in zip(queries, exact, strict=True):
        np.testing.assert_allclose(index.exact_scores(query, 10)[0], scores, atol=1e-5)
