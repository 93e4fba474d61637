"""Match probabilities of the scores of a data directory, fitted to held-out feedback.

Each class has half of the weight, so that they have the meaning of those of a checkpoint, "of pairs
half of which match", and do not depend on which verdict users prefer to give.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from encoder.arrays import Float64, Int64
from encoder.calibration import FittedMap
from evaluation.fitting.calibration import FOLDS, MIN_OF_A_CLASS, Sample, fit_map
from evaluation.fitting.feedback import Candidate, search_for
from index.errors import CorpusError
from index.progress import Progress

_OF_A_COIN = log(2)  # the log loss of one half for each pair, with classes of equal weight
_SEED = 0


@dataclass(frozen=True, slots=True)
class FeedbackMap:
    """The map of a kind of score, or why there is none.

    Attributes:
        fitted: from score to probability; None if there is none.
        relevant: judged pairs with a score that are relevant.
        not_relevant: those that are not.
        queries: with any of them.
        refused: why there is no map; None if there is one.
    """

    fitted: FittedMap | None
    relevant: int
    not_relevant: int
    queries: int
    refused: str | None


def fit_probabilities(candidate: Candidate, progress: Progress) -> FeedbackMap:
    """Fit a map for the scores of hybrid mode, by the verdicts on what the candidate finds.

    The errors are those of cross-validation, in which the pairs of a query stay together. There is
    no map with fewer than `MIN_OF_A_CLASS` pairs of a class, or if it is no better than a coin.

    Args:
        candidate: with queries that its rule was not fitted to.
        progress: is notified of each query.
    """
    progress.started("fitting probabilities", len(candidate.held_out))
    pairs: list[tuple[float, int, int]] = []
    for number, one in enumerate(candidate.held_out):
        found = search_for(candidate, one)
        progress.advanced(1)
        if found.scored_as != "hybrid":
            continue
        judged = [hit for hit in found.hits if hit.id in one.grades]
        pairs += [(hit.score, int(one.grades[hit.id] > 0), number) for hit in judged]
    scores, labels, numbers = np.array(pairs, dtype=np.float64).reshape(-1, 3).T
    return fit_verdicts(scores, labels.astype(np.int64), numbers.astype(np.int64))


def fit_verdicts(scores: Float64, labels: Int64, queries: Int64) -> FeedbackMap:
    """Fit a map to judged pairs, as `fit_probabilities` does.

    Args:
        scores: Float64[N].
        labels: Int64[N], 1 for a relevant one, else 0.
        queries: Int64[N], the number of the query of each.
    """
    relevant, others = int(labels.sum()), int((1 - labels).sum())
    refused = fitted = None
    if min(relevant, others) < MIN_OF_A_CLASS:
        refused = f"it takes {MIN_OF_A_CLASS} of each"
    else:
        fitted, refused = _fit_balanced(scores, labels, queries)
    return FeedbackMap(fitted, relevant, others, len(np.unique(queries)), refused)


def _fit_balanced(
    scores: Float64, labels: Int64, queries: Int64
) -> tuple[FittedMap | None, str | None]:
    """Return a map, or why there is none."""
    matches = int(labels.sum())
    weights = np.where(labels == 1, 0.5 / matches, 0.5 / (len(labels) - matches)) * len(labels)
    names, which = np.unique(queries, return_inverse=True)
    folds = (np.random.default_rng(_SEED).permutation(len(names)) % FOLDS)[which]
    if any(len(np.unique(labels[folds != fold])) < 2 for fold in np.unique(folds)):
        return None, "nearly all verdicts of a kind are of one query"
    try:
        fitted = fit_map(Sample(scores, labels, weights, folds))
    except CorpusError as error:
        return None, str(error)
    if fitted.errors[fitted.method].log_loss >= _OF_A_COIN:
        return None, "the scores of relevant matches and of others are too much alike"
    return fitted, None
