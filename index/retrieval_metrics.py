"""Retrieval against judgements: nDCG@10, MAP@100, recall@10 and recall@100, by ir-measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from index.errors import CorpusError
from index.qrels import Qrels
from index.significance import Float64
from index.systems import Ranking
from index.vector_index import NO_VECTOR

MEASURES = ("nDCG@10", "MAP@100", "recall@10", "recall@100")

Run = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Judged:
    """The measures of each of Q queries that have judgements.

    Attributes:
        query_ids: Q ids, in the order of the ranking.
        values: Float64[Q, 4], in the order of `MEASURES`.
    """

    query_ids: tuple[str, ...]
    values: Float64


def judge_each(ranking: Ranking, ids: Sequence[str], qrels: Qrels) -> Judged:
    """Measure each query of a ranking that has judgements.

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
    columns = {
        ir_measures.nDCG @ 10: 0,
        ir_measures.AP @ 100: 1,
        ir_measures.R @ 10: 2,
        ir_measures.R @ 100: 3,
    }
    row_of = {query: row for row, query in enumerate(judged)}
    values = np.zeros((len(judged), len(MEASURES)))
    for metric in ir_measures.iter_calc(list(columns), judged, _run(ranking, ids, judged)):
        values[row_of[metric.query_id], columns[metric.measure]] = metric.value
    return Judged(tuple(judged), values)


def _run(ranking: Ranking, ids: Sequence[str], judged: Mapping[str, object]) -> Run:
    run: Run = {}
    for query, rows, scores in zip(ranking.query_ids, ranking.rows, ranking.scores, strict=True):
        if query in judged:
            run[query] = {
                ids[row]: float(score)
                for row, score in zip(rows.tolist(), scores, strict=True)
                if row != NO_VECTOR
            }
    return run
