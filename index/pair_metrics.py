"""Are two documents similar? Scores against labels: accuracy, precision, recall, F1 and AUC."""

import numpy as np
from numpy.typing import NDArray

from index.errors import CorpusError
from index.significance import RESAMPLES, Estimate, Float64, estimates, resampled_counts
from index.vector_index import Float32

Labels = NDArray[np.bool_]

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
