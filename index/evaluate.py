"""How good vectors are against judgements, and an index against exact search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from index.errors import CorpusError
from index.faiss_index import choose_nlist, default_nprobe, train_faiss_index
from index.qrels import Qrels
from index.vector_index import NO_VECTOR, Float32, Int64, VectorIndex

DEPTH = 100  # of a ranking; the measures below look no further
_QUERIES_A_CALL = 256

Run = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The nearest documents of each of Q queries, by exact search.

    Attributes:
        query_ids: Q document or query ids.
        rows: Int64[Q, K], rows of the corpus, best first; -1 where there are fewer.
        scores: Float32[Q, K], cosines.
    """

    query_ids: tuple[str, ...]
    rows: Int64
    scores: Float32


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
    row_of = {document_id: row for row, document_id in enumerate(ids)}
    depth = min(DEPTH, len(ids))
    rows = np.full((len(query_ids), depth), NO_VECTOR, dtype=np.int64)
    scores = np.full((len(query_ids), depth), -np.inf, dtype=np.float32)
    for start in range(0, len(query_ids), _QUERIES_A_CALL):
        some = slice(start, start + _QUERIES_A_CALL)
        cosines = queries[some] @ vectors.T  # [q, N]
        for number, query_id in enumerate(query_ids[some]):
            if query_id in row_of:
                cosines[number, row_of[query_id]] = -np.inf
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :depth]
        rows[some] = best
        scores[some] = np.take_along_axis(cosines, best, axis=1)
    rows[np.isneginf(scores)] = NO_VECTOR
    return Ranking(tuple(query_ids), rows, scores)


def judge(ranking: Ranking, ids: Sequence[str], qrels: Qrels) -> dict[str, float]:
    """Return nDCG@10, MAP@100 and recall@10 over the queries that have judgements.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or no query has a judgement.
    """
    try:
        import ir_measures
    except ImportError as error:
        raise CorpusError(
            "evaluation needs the extra 'evaluate': pip install 'longmatch[evaluate]'"
        ) from error
    judged = {query: dict(qrels[query]) for query in ranking.query_ids if query in qrels}
    if not judged:
        raise CorpusError("no query has a judgement: are these the judgements of this corpus?")
    measures = {
        "nDCG@10": ir_measures.nDCG @ 10,
        "MAP@100": ir_measures.AP @ 100,
        "recall@10": ir_measures.R @ 10,
    }
    values = ir_measures.calc_aggregate(list(measures.values()), judged, _run(ranking, ids, judged))
    return {name: float(values[measure]) for name, measure in measures.items()}


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


def _run(ranking: Ranking, ids: Sequence[str], judged: Mapping[str, object]) -> Run:
    run: Run = {}
    for query, rows, scores in zip(ranking.query_ids, ranking.rows, ranking.scores, strict=True):
        if query in judged:
            run[query] = {
                ids[row]: float(score)
                for row, score in zip(rows, scores, strict=True)
                if row != NO_VECTOR
            }
    return run
