"""The metrics: of retrieval by ir-measures, of pairs as their resamples are measured, too.

Retrieval: nDCG@10 (gain = relevance), MAP@100, recall@10 and recall@100 against judgements. Pairs:
accuracy, precision, recall and F1 at a threshold, and the area under the ROC curve (AUC).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Bool, Float32, Float64
from evaluation.judgements import Qrels
from evaluation.significance import Estimate, bootstrap_percentiles, join_estimates
from evaluation.systems import Ranked
from index.errors import CorpusError

NDCG = "nDCG@10"
MEASURES = (NDCG, "MAP@100", "recall@10", "recall@100")


@dataclass(frozen=True, slots=True)
class QueryMeasures:
    """The measures of each of Q queries that have judgements.

    Attributes:
        query_ids: Q ids, in the order of the ranking.
        values: Float64[Q, 4], in the order of `MEASURES`.
    """

    query_ids: tuple[str, ...]
    values: Float64

    @property
    def ndcg(self) -> Float64:
        """nDCG@10 of each query, Float64[Q]."""
        return self.values[:, MEASURES.index(NDCG)]


def evaluate_run(run: Ranked, qrels: Qrels) -> dict[str, float]:
    """Return the means of `MEASURES` over the queries that have judgements."""
    means = evaluate_per_query(run, qrels).values.mean(0)
    return dict(zip(MEASURES, means.tolist(), strict=True))


def evaluate_per_query(run: Ranked, qrels: Qrels) -> QueryMeasures:
    """Measure each query of a run that has judgements.

    Raises:
        CorpusError: no query has a judgement.
    """
    judged = {query: qrels[query] for query in run if query in qrels}
    if not judged:
        raise CorpusError("no query has a judgement: are these the judgements of this corpus?")
    return QueryMeasures(tuple(judged), measure_scores(run, judged))


def ndcg_at_10(scores: Ranked, qrels: Qrels) -> Float64:
    """Return nDCG@10 of each query of the judgements, Float64[Q]; see `measure_scores`."""
    return measure_scores(scores, qrels, MEASURES[:1])[:, 0]


def in_order(documents: Iterable[str]) -> dict[str, float]:
    """Return scores that rank documents as they are given; equal scores would be reordered."""
    return {document: -float(place) for place, document in enumerate(documents)}


def measure_scores(scores: Ranked, qrels: Qrels, names: Sequence[str] = MEASURES) -> Float64:
    """Measure each query of the judgements.

    Args:
        scores: of the ranked documents of each query.
        qrels: judgements of Q queries; a query without scores gets 0.
        names: of M of `MEASURES`.

    Returns:
        Float64[Q, M].
    """
    import ir_measures

    measures = {
        "nDCG@10": ir_measures.nDCG @ 10,
        "MAP@100": ir_measures.AP @ 100,
        "recall@10": ir_measures.R @ 10,
        "recall@100": ir_measures.R @ 100,
    }
    column_of = {measures[name]: column for column, name in enumerate(names)}
    row_of = {query: row for row, query in enumerate(qrels)}
    values = np.zeros((len(qrels), len(names)))
    for metric in ir_measures.iter_calc(list(column_of), qrels, scores):
        values[row_of[metric.query_id], column_of[metric.measure]] = metric.value
    return values


Labels = Bool

AT_THRESHOLD = ("accuracy", "precision", "recall", "F1")
AUC = "AUC"


def choose_threshold(scores: Float32, labels: Labels) -> float:
    """Return the threshold of best accuracy: scores at or above it count as similar.

    It lies halfway between two scores that occur; of several equally good ones, the middle one.

    Args:
        scores: Float32[P], P of at least one.
        labels: Bool[P].
    """
    values, positions = np.unique(scores.astype(np.float64), return_inverse=True)
    positive = np.bincount(positions, weights=labels, minlength=len(values))
    negative = np.bincount(positions, weights=~labels, minlength=len(values))
    # Correct answers with the threshold below the first value, then above each of them.
    correct = positive.sum() + np.concatenate([[0], np.cumsum(negative - positive)])
    best = np.flatnonzero(correct == correct.max())
    place = int(best[len(best) // 2])
    edges = np.concatenate([[values[0] - 1], values, [values[-1] + 1]])
    return float((edges[place] + edges[place + 1]) / 2)


def measure_pairs(scores: Float32, labels: Labels, threshold: float) -> dict[str, float]:
    """Return the measures of pairs; no AUC where all labels are the same.

    Args:
        scores: Float32[P], P of at least one.
        labels: Bool[P].
        threshold: scores at or above it count as similar.
    """
    once = np.ones((1, len(labels)))
    values = _pair_figures(once, scores, labels, threshold)[:, 0].tolist()
    figures = dict(zip((*AT_THRESHOLD, AUC), values, strict=True))
    if labels.all() or not labels.any():
        del figures[AUC]
    return figures


def estimate_pairs_of_seeds(
    seeds: Sequence[tuple[Float32, float]], labels: Labels
) -> dict[str, Estimate]:
    """Return `measure_pairs` with bootstrap intervals over pairs, at fixed thresholds.

    Of several trainings of one model, the mean. Pairs share documents, so the intervals are
    slightly too narrow.

    Args:
        seeds: of each training the scores Float32[P] and its threshold.
        labels: Bool[P].
    """
    measured = [measure_pairs(scores, labels, threshold) for scores, threshold in seeds]
    names = list(measured[0])

    def of_resamples(counts: Float64) -> Float64:
        figures = [_pair_figures(counts, scores, labels, limit) for scores, limit in seeds]
        mean: Float64 = np.mean(figures, axis=0)[: len(names)]
        return mean

    low, high = bootstrap_percentiles(len(labels), of_resamples)
    means = np.array([np.mean([values[name] for values in measured]) for name in names])
    return dict(zip(names, join_estimates(means, low, high), strict=True))


def _pair_figures(counts: Float64, scores: Float32, labels: Labels, threshold: float) -> Float64:
    """Return accuracy, precision, recall, F1 and AUC of each resample, Float64[5, r].

    0/0 counts as 0; the AUC is NaN without both labels.

    Args:
        counts: Float64[r, P], how often each resample has each pair.
        scores: Float32[P].
        labels: Bool[P].
        threshold: of similar pairs.
    """
    similar = scores >= threshold
    hits, found, positive = counts @ (similar & labels), counts @ similar, counts @ labels
    figures: Float64 = np.stack(
        [
            counts @ (similar == labels) / counts.sum(1),
            hits / np.maximum(found, 1),
            hits / np.maximum(positive, 1),
            2 * hits / np.maximum(found + positive, 1),
            _auc(counts, scores, labels),
        ]
    )
    return figures


def _auc(counts: Float64, scores: Float32, labels: Labels) -> Float64:
    """Return the area under the ROC curve of each resample, Float64[r]; NaN without both labels."""
    order = np.argsort(scores, kind="stable")
    firsts = np.flatnonzero(np.diff(scores[order], prepend=np.float32(-np.inf)))
    positive = np.add.reduceat(counts[:, order] * labels[order], firsts, axis=1)
    negative = np.add.reduceat(counts[:, order] * ~labels[order], firsts, axis=1)
    below = np.cumsum(negative, axis=1) - negative / 2  # equal scores count half
    total = positive.sum(1) * negative.sum(1)
    areas: Float64 = np.full(len(total), np.nan)
    np.divide((positive * below).sum(1), total, out=areas, where=total > 0)
    return areas
