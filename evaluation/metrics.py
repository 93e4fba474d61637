"""Retrieval against judgements: nDCG@10, MAP@100, recall@10 and recall@100, by ir-measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Float32, Float64
from evaluation.judgements import Qrels
from evaluation.significance import RESAMPLES, Estimate, estimates, resampled_counts
from evaluation.systems import Run, rank, vector_system
from index.errors import CorpusError
from index.vectors.faiss_index import choose_nlist, default_nprobe, train_faiss_index
from index.vectors.vector_index import NO_VECTOR, VectorIndex


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """Share of the 10 exact neighbours that an index of this size finds at its own nprobe."""

    recall_at_10: float
    nlist: int
    nprobe: int


def rank_exactly(
    ids: Sequence[str], vectors: Float32, query_ids: Sequence[str], queries: Float32
) -> Run:
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


def evaluate_run(run: Run, ids: Sequence[str], qrels: Qrels) -> dict[str, float]:
    """Return the means of `MEASURES` over the queries that have judgements.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or no query has a judgement.
    """
    means = evaluate_per_query(run, ids, qrels).values.mean(0)
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


Labels = Bool

AT_THRESHOLD = ("accuracy", "precision", "recall", "F1")
AUC = "AUC"


def choose_threshold(scores: Float32, labels: Labels) -> float:
    """Return the threshold of best accuracy: scores at or above it count as similar.

    It lies half way between two scores that occur; of equally good ones it is the middle one.

    Args:
        scores: Float32[P], P of at least one.
        labels: Bool[P].
    """
    values, positions = np.unique(scores.astype(np.float64), return_inverse=True)
    positive = np.bincount(positions, weights=labels, minlength=len(values))
    negative = np.bincount(positions, weights=~labels, minlength=len(values))
    # Right answers with the threshold below the first value, then above each of them.
    right = positive.sum() + np.concatenate([[0], np.cumsum(negative - positive)])
    best = np.flatnonzero(right == right.max())
    place = int(best[len(best) // 2])
    edges = np.concatenate([[values[0] - 1], values, [values[-1] + 1]])
    return float((edges[place] + edges[place + 1]) / 2)


def measure_pairs(scores: Float32, labels: Labels, threshold: float) -> dict[str, float]:
    """Return the measures by scikit-learn; no AUC where all labels are the same.

    Args:
        scores: Float32[P], P of at least one.
        labels: Bool[P].
        threshold: scores at or above it count as similar.

    Raises:
        CorpusError: the extra `evaluate` is not installed.
    """
    try:
        from sklearn.metrics import accuracy_score, precision_recall_fscore_support, roc_auc_score
    except ImportError as error:
        raise CorpusError(
            "evaluation needs the extra 'evaluate': pip install 'longmatch[evaluate]'"
        ) from error
    similar = scores >= threshold
    three = precision_recall_fscore_support(labels, similar, average="binary", zero_division=0)[:3]
    figures = (float(accuracy_score(labels, similar)), *map(float, three))
    values = dict(zip(AT_THRESHOLD, figures, strict=True))
    if labels.any() and not labels.all():
        values[AUC] = float(roc_auc_score(labels, scores))
    return values


def estimate_pairs(
    scores: Float32, labels: Labels, threshold: float, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Return `measure_pairs` with bootstrap intervals over pairs; the threshold stays.

    Pairs share documents, so that the intervals are a little too narrow.
    """
    values = measure_pairs(scores, labels, threshold)
    drawn = [
        np.stack(
            [*_at_threshold(counts, scores >= threshold, labels), _auc(counts, scores, labels)]
        )
        for counts in resampled_counts(len(scores), resamples)
    ]
    resampled = np.concatenate(drawn, axis=1).T[:, : len(values)]  # [resamples, measures]
    known = np.array(list(values.values()))
    return dict(zip(values, estimates(known, resampled), strict=True))


def _at_threshold(counts: Float64, similar: Labels, labels: Labels) -> list[Float64]:
    """Accuracy, precision, recall and F1 of each resample, Float64[r]; nought over nought is 0."""
    hits = counts @ (similar & labels)
    found = counts @ similar
    positive = counts @ labels
    right = counts @ (similar == labels)
    return [
        right / counts.sum(1),
        hits / np.maximum(found, 1),
        hits / np.maximum(positive, 1),
        2 * hits / np.maximum(found + positive, 1),
    ]


def _auc(counts: Float64, scores: Float32, labels: Labels) -> Float64:
    """Area under the ROC curve of each resample, Float64[r]: NaN where it has one label only."""
    order = np.argsort(scores, kind="stable")
    firsts = np.flatnonzero(np.diff(scores[order], prepend=np.float32(-np.inf)))
    positive = np.add.reduceat(counts[:, order] * labels[order], firsts, axis=1)
    negative = np.add.reduceat(counts[:, order] * ~labels[order], firsts, axis=1)
    below = np.cumsum(negative, axis=1) - negative / 2  # of equal scores half
    of = positive.sum(1) * negative.sum(1)
    areas = (positive * below).sum(1)
    share: Float64 = np.full(len(of), np.nan)
    np.divide(areas, of, out=share, where=of > 0)
    return share


MEASURES = ("nDCG@10", "MAP@100", "recall@10", "recall@100")

ScoredDocuments = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class QueryMeasures:
    """The measures of each of Q queries that have judgements.

    Attributes:
        query_ids: Q ids, in the order of the run.
        values: Float64[Q, 4], in the order of `MEASURES`.
    """

    query_ids: tuple[str, ...]
    values: Float64


def evaluate_per_query(run: Run, ids: Sequence[str], qrels: Qrels) -> QueryMeasures:
    """Measure each query of a run that has judgements.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or no query has a judgement.
    """
    try:
        import ir_measures
    except ImportError as error:
        raise CorpusError(
            "evaluation needs the extra 'evaluate': pip install 'longmatch[evaluate]'"
        ) from error
    judged = {query: dict(qrels[query]) for query in run.query_ids if query in qrels}
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
    for metric in ir_measures.iter_calc(list(columns), judged, _run(run, ids, judged)):
        values[row_of[metric.query_id], columns[metric.measure]] = metric.value
    return QueryMeasures(tuple(judged), values)


def _run(run: Run, ids: Sequence[str], judged: Mapping[str, object]) -> ScoredDocuments:
    scored: ScoredDocuments = {}
    for query, rows, scores in zip(run.query_ids, run.rows, run.scores, strict=True):
        if query in judged:
            scored[query] = {
                ids[row]: float(score)
                for row, score in zip(rows.tolist(), scores, strict=True)
                if row != NO_VECTOR
            }
    return scored
