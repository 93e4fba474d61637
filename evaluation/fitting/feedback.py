"""Fit the fusion and the match probabilities of a data directory to feedback, and test a new rule.

When weights are fitted nothing is encoded again: the scores of vectors, alignment and words of
stored documents stay what they are. The shadow test searches with the present weights or vectors
and with new ones in hybrid mode, as a server does: for queries that were held out, and for passages
of other documents.

Of match probabilities each class has half of the weight, so that they have the meaning of those of
a checkpoint, "of pairs half of which match", and do not depend on which verdict users prefer to
give.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log

import numpy as np

from encoder.arrays import Float64, Int64
from encoder.calibration import FittedMap
from evaluation.fitting.calibration import FOLDS, MIN_OF_A_CLASS, Sample, fit_map
from evaluation.fitting.fusion import smoothed
from evaluation.metrics import in_order, ndcg_at_10
from evaluation.significance import Comparison, compare_paired
from index.directory.data_directory import DataDirectory
from index.engine.port import EncodedQuery
from index.errors import CorpusError
from index.progress import Progress
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import (
    DEFAULT_ALIGNMENT,
    AlignmentOptions,
    SearchAnswer,
    SearchOptions,
)
from index.search.score import LinearFusion, apply_rule

# The weights that are tried: of the alignment in the semantic score, and of the words.
ALIGNMENT = tuple(step / 10 for step in range(11))
LEXICAL = tuple(step / 20 for step in range(21))
MIN_QUERIES = 20  # in all, with a relevant answer and a less relevant one
HELD_OUT = 0.5  # of them
MIN_TESTED = 5  # of those that were held out
OTHERS = 200  # passages
MOST_LOSS = 0.05  # of nDCG@10, that the interval of the passages may reach
_DEPTH = 200  # candidates of a query that the weights are fitted to
_BEST = 10
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class SearchableQuery:
    """A query that can be searched for.

    Attributes:
        query: what to search for.
        grades: of its answers by document id.
        complete: whether all other documents are not relevant. Otherwise nothing is known of them,
            and the judged ones are ranked among themselves: users judge what the present weights
            show them, and other weights must not lose by what no user has seen.
    """

    query: EncodedQuery
    grades: Mapping[str, int]
    complete: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be served, and the queries as they are searched for there.

    Attributes:
        data: where to search; it may be the same for both.
        rule: how scores are combined.
        held_out: queries of feedback that nothing was fitted to, each with a relevant answer and a
            less relevant one.
        others: queries for known documents.
    """

    data: DataDirectory
    rule: LinearFusion
    held_out: Sequence[SearchableQuery]
    others: Sequence[SearchableQuery]


@dataclass(frozen=True, slots=True)
class Compared:
    """nDCG@10 of both for the same queries, and their difference with its interval."""

    queries: int
    present: float
    new: float
    difference: Comparison


@dataclass(frozen=True, slots=True)
class ShadowTest:
    """What the shadow test found.

    Attributes:
        held_out: queries of the feedback that nothing was fitted to.
        others: passages of other documents, which look for their document.
        refused: why what is new is not to be adopted; None if it is.
    """

    held_out: Compared
    others: Compared
    refused: str | None


def fit_rule(
    data: DataDirectory,
    present: LinearFusion,
    queries: Sequence[SearchableQuery],
    progress: Progress,
) -> LinearFusion:
    """Find the weights of hybrid mode with the highest mean nDCG@10, smoothed over neighbours.

    Of equal weights those nearest to the present ones are chosen. Semantic mode keeps its weight:
    it is not what users judged, nor what the shadow test tries.
    """
    progress.started("searching", len(queries))
    found = []
    for query in queries:
        found.append(_ranker(data, present, query.query))
        progress.advanced(1)
    rules = [
        [replace(present, hybrid_alignment_weight=a, lexical_weight=b) for b in LEXICAL]
        for a in ALIGNMENT
    ]
    progress.started("fitting the weights", len(ALIGNMENT))
    surface: list[list[float]] = []
    for row in rules:
        surface.append([_mean_ndcg(found, queries, rule) for rule in row])
        progress.advanced(1)
    smooth = smoothed(np.array(surface))
    best = smooth.max()
    return min(
        (rules[i][j] for i, j in np.argwhere(smooth >= best - _EQUAL).tolist()),
        key=lambda rule: _distance(rule, present),
    )


def run_shadow_test(present: Candidate, new: Candidate, progress: Progress) -> ShadowTest:
    """Compare what is served with what may be.

    The new one is refused unless the interval of the difference lies over 0 for the held-out
    queries, and over -`MOST_LOSS` for the others.
    """
    queries = len(present.held_out) + len(present.others)
    progress.started("testing in shadow", 2 * queries)
    held_out = _compare(
        *(_ndcg(candidate, candidate.held_out, progress) for candidate in (present, new))
    )
    others = _compare(
        *(_ndcg(candidate, candidate.others, progress) for candidate in (present, new))
    )
    same = present.data is new.data and present.rule == new.rule
    refused = "the present weights fit the feedback best" if same else _refusal(held_out, others)
    return ShadowTest(held_out, others, refused)


def _refusal(held_out: Compared, others: Compared) -> str | None:
    gain, loss = held_out.difference, others.difference
    if gain.low <= 0:
        return (
            f"it is not surely better for the {held_out.queries} held-out queries: nDCG@10 "
            f"{gain.difference:+.4f}, from {gain.low:+.4f} to {gain.high:+.4f}"
        )
    if loss.low < -MOST_LOSS:
        return (
            f"it may be worse for {others.queries} passages of other documents: nDCG@10 "
            f"{loss.difference:+.4f}, from {loss.low:+.4f} to {loss.high:+.4f}, and the lower end "
            f"may be {-MOST_LOSS}"
        )
    return None


def _compare(present: Float64, new: Float64) -> Compared:
    difference = compare_paired(new, present)
    return Compared(len(present), float(present.mean()), float(new.mean()), difference)


def _ndcg(candidate: Candidate, queries: Sequence[SearchableQuery], progress: Progress) -> Float64:
    """Return the nDCG@10 of a search for each query, Float64[Q]."""
    run = {}
    for number, query in enumerate(queries):
        found = _search(candidate.data, query.query, candidate.rule)
        run[str(number)] = in_order(_counted(query, [hit.id for hit in found.hits]))
        progress.advanced(1)
    return ndcg_at_10(run, _qrels(queries))


def _search(
    data: DataDirectory,
    query: EncodedQuery,
    rule: LinearFusion,
    align: AlignmentOptions = DEFAULT_ALIGNMENT,
) -> SearchAnswer:
    """Search as a server does, but deeper and without a limit of time; nothing is calibrated."""
    align = replace(align, candidates=_DEPTH, budget_seconds=inf)
    options = SearchOptions(top_k=_DEPTH, alignment=align, explain=False)
    return search(data, query, options, scoring=Scoring(rule))


def _ranker(
    data: DataDirectory, rule: LinearFusion, query: EncodedQuery
) -> Callable[[LinearFusion], list[str]]:
    """Search for a query, and return what ranks its candidates by another rule."""
    found = _search(data, query, rule, AlignmentOptions(margin=inf))
    names = ("vector_score", "alignment_score", "lexical_score")
    columns = [[getattr(hit, name) for hit in found.hits] for name in names]
    vector, alignment, lexical = (np.array(column, dtype=np.float32) for column in columns)

    def ranked(rule: LinearFusion) -> list[str]:
        _, scores = apply_rule(rule, found.scored_as, vector, alignment, lexical)
        return [found.hits[row].id for row in np.argsort(-scores, kind="stable").tolist()]

    return ranked


def _mean_ndcg(
    found: Sequence[Callable[[LinearFusion], list[str]]],
    queries: Sequence[SearchableQuery],
    rule: LinearFusion,
) -> float:
    run = {
        str(number): in_order(_counted(query, ranked(rule)))
        for number, (query, ranked) in enumerate(zip(queries, found, strict=True))
    }
    return float(ndcg_at_10(run, _qrels(queries)).mean())


def _counted(query: SearchableQuery, ranked: Sequence[str]) -> list[str]:
    """Return the best documents of a ranking that count."""
    return [name for name in ranked if query.complete or name in query.grades][:_BEST]


def _qrels(queries: Sequence[SearchableQuery]) -> dict[str, dict[str, int]]:
    return {str(number): dict(query.grades) for number, query in enumerate(queries)}


def _distance(rule: LinearFusion, other: LinearFusion) -> float:
    return abs(rule.hybrid_alignment_weight - other.hybrid_alignment_weight) + abs(
        rule.lexical_weight - other.lexical_weight
    )


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
    """
    progress.started("fitting probabilities", len(candidate.held_out))
    pairs: list[tuple[float, int, int]] = []
    for number, query in enumerate(candidate.held_out):
        found = _search(candidate.data, query.query, candidate.rule)
        progress.advanced(1)
        if found.scored_as != "hybrid":
            continue
        judged = [hit for hit in found.hits if hit.id in query.grades]
        pairs += [(hit.score, int(query.grades[hit.id] > 0), number) for hit in judged]
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
    if fitted.error.log_loss >= _OF_A_COIN:
        return None, "the scores of relevant matches and of others are too much alike"
    return fitted, None
