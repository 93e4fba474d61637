"""Match probabilities of the scores of a data directory, fitted to held-out feedback.

Each class has half of the weight, so that they have the meaning of those of a checkpoint, "of pairs
half of which match", and do not depend on which verdict users prefer to give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import get_args

import numpy as np

from encoder.arrays import Float64, Int64
from encoder.calibration import FittedMap
from evaluation.fitting.calibration import FOLDS, MIN_OF_A_CLASS, Sample, fit_map
from evaluation.fitting.feedback import Candidate, search_for
from index.errors import CorpusError
from index.progress import Progress
from index.search.records import Hit, Mode

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


def fit_probabilities(
    candidate: Candidate, modes: Sequence[Mode], progress: Progress
) -> Mapping[Mode, FeedbackMap]:
    """Fit a map for the scores of each mode, by the verdicts on what the candidate finds.

    The errors are those of cross-validation, in which the pairs of a query stay together. There is
    no map with fewer than `MIN_OF_A_CLASS` pairs of a class, or if it is no better than a coin.

    Args:
        candidate: with queries that its rule was not fitted to.
        modes: semantic, hybrid or both.
        progress: is notified of each query.

    Raises:
        MissingExtraError: scikit-learn is not installed.
        StoreError: the store cannot be read.
        ValueError: the words alone are not searched for.
    """
    if "lexical" in modes or not set(modes) <= set(get_args(Mode)):
        raise ValueError(f"{modes} are not modes whose scores a rule changes")
    progress.started("fitting probabilities", len(candidate.held_out))
    pairs: dict[Mode, list[tuple[float, int, int]]] = {mode: [] for mode in modes}
    for number, one in enumerate(candidate.held_out):
        found = search_for(candidate, one)
        progress.advanced(1)
        for hit in found.hits:
            if hit.id not in one.grades or found.scored_as != "hybrid":
                continue
            for mode in modes:
                pairs[mode].append((_score(hit, mode), int(one.grades[hit.id] > 0), number))
    found_maps = {}
    for mode, some in pairs.items():
        scores, labels, numbers = np.array(some, dtype=np.float64).reshape(-1, 3).T
        found_maps[mode] = fit_verdicts(scores, labels.astype(np.int64), numbers.astype(np.int64))
    return found_maps


def _score(hit: Hit, mode: Mode) -> float:
    return hit.score if mode == "hybrid" else hit.semantic_score


def fit_verdicts(scores: Float64, labels: Int64, queries: Int64) -> FeedbackMap:
    """Fit a map to judged pairs, as `fit_probabilities` does.

    Args:
        scores: Float64[N].
        labels: Int64[N], 1 for a relevant one, else 0.
        queries: Int64[N], the number of the query of each.

    Raises:
        MissingExtraError: scikit-learn is not installed.
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
