"""How good vectors are against judgements, and an index against exact search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from index.faiss_index import choose_nlist, default_nprobe, train_faiss_index
from index.qrels import Qrels
from index.retrieval_metrics import MEASURES, judge_each
from index.systems import Ranking, rank, vector_system
from index.vector_index import Float32, VectorIndex


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """Share of the 10 exact neighbours that an index of this size finds at its own nprobe."""

    recall_at_10: float
    nlist: int
    nprobe: int


def rank_exactly(
    ids: Sequence[str], vectors: Float32, query_ids: Sequence[str], queries: Float32
) -> Ranking:
    """Rank a corpus for each query by cosine; a query that is in the corpus is left out of its own.

    Args:
        ids: N document ids.
        vectors: Float32[N, dimension], unit norm.
        query_ids: Q ids.
        queries: Float32[Q, dimension], unit norm.
    """
    asked = np.concatenate([vectors, queries])
    rows = np.arange(len(vectors), len(asked), dtype=np.int64)
    return rank(vector_system("vectors", "", asked, len(vectors)), ids, query_ids, rows)


def judge(ranking: Ranking, ids: Sequence[str], qrels: Qrels) -> dict[str, float]:
    """Return the means of `MEASURES` over the queries that have judgements.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or no query has a judgement.
    """
    means = judge_each(ranking, ids, qrels).values.mean(0)
    return dict(zip(MEASURES, means.tolist(), strict=True))


def measure_index(vectors: Float32, queries: Float32) -> IndexRecall:
    """Measure the recall@10 of an index of these vectors against exact search.

    Args:
        vectors: Float32[N, dimension], unit norm.
        queries: Float32[Q, dimension], unit norm.
    """
    index = train_faiss_index(vectors, choose_nlist(len(vectors)))
    index.add(np.arange(len(vectors), dtype=np.int64), vectors)
    return IndexRecall(
        recall_against_exact(index, queries, index.nlist), index.nlist, default_nprobe(index.nlist)
    )


def recall_against_exact(index: VectorIndex, queries: Float32, nlist: int, k: int = 10) -> float:
    """Return the share of the k exact neighbours that the index finds at its default nprobe.

    Visiting every list is exact search: IVF_FLAT keeps the vectors as they are.
    """
    k = min(k, len(index))
    exact = index.search(queries, k, nprobe=nlist)
    found = index.search(queries, k)
    # By score, so that equal neighbours count whichever of them was found.
    worst = exact.scores[:, -1:] - 1e-6
    return float((found.scores >= worst).mean())
