"""Fit the weights of the standardised channels on validation queries of several corpora."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Float32, Float64
from evaluation.metrics import evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.systems import (
    System,
    corpus_spreads,
    rank_scores,
    search_in_memory,
    vector_system,
)
from index.embed import EmbeddedCorpus
from index.search.score import (
    DEFAULT_RULE,
    ChannelWeights,
    LinearFusion,
    Spreads,
    StandardRule,
    apply_rule,
)

# The weights that are tried, of standardised channels: words have 1 in hybrid mode, and the
# alignment has 1 in semantic mode.
ALIGNMENT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0)
VECTOR = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
SEMANTIC_VECTOR = (0.0, 0.2, 0.4, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0)


@dataclass(frozen=True, slots=True)
class FusionCorpus:
    """The scores of the validation queries of one corpus.

    Attributes:
        task: Q queries and their judgements.
        vector: Float32[Q, N], cosines of the document vectors.
        lexical: Float32[Q, N], cosines of the words.
        alignment: Float32[Q, N], NaN for documents that are not among the first candidates of
            hybrid mode.
        semantic_alignment: the same for the first candidates of semantic mode.
        spreads: of random pairs of the corpus.
    """

    task: RetrievalTask
    vector: Float32
    lexical: Float32
    alignment: Float32
    semantic_alignment: Float32
    spreads: Spreads


@dataclass(frozen=True, slots=True)
class WeightSurface:
    """The nDCG@10 of corpora for all weights.

    Attributes:
        hybrid: Float64[corpora, alignment, vector].
        semantic: Float64[corpora, vector].
    """

    hybrid: Float64
    semantic: Float64

    def without(self, number: int) -> "WeightSurface":
        """Return the surface without a corpus."""
        return WeightSurface(
            np.delete(self.hybrid, number, axis=0), np.delete(self.semantic, number, axis=0)
        )


def score_corpus(embedded: EmbeddedCorpus, task: RetrievalTask, lexical: System) -> FusionCorpus:
    """Score the queries of a task by each channel.

    Raises:
        ValueError: the blocks of the corpus are not aligned.
    """
    if embedded.aligned is None:
        raise ValueError("the blocks of the corpus are not aligned")
    vectors = vector_system("vector", "", embedded.vectors)
    cosines, words = vectors.score(task.rows), lexical.score(task.rows)
    spreads = corpus_spreads(vectors, lexical, embedded.aligned, len(embedded.ids))
    unaligned = LinearFusion(DEFAULT_RULE.resolve(spreads).lexical_weight)
    aligned = [
        search_in_memory(vectors, found_by, embedded.aligned, task.rows, unaligned)[1]
        for found_by in (lexical, None)
    ]
    known = spreads or DEFAULT_RULE.spreads
    return FusionCorpus(task, cosines, words, aligned[0], aligned[1], known)


def mean_ndcg(corpus: FusionCorpus, scores: Float32) -> float:
    """Return the nDCG@10 of scores Float32[Q, N]."""
    task = corpus.task
    run = rank_scores(scores, task.ids, task.query_ids)
    return float(evaluate_per_query(run, task.qrels).ndcg.mean())


def hybrid_scores(corpus: FusionCorpus, rule: LinearFusion) -> Float32:
    """Return the scores of hybrid mode Float32[Q, N]."""
    return apply_rule(rule, "hybrid", corpus.vector, corpus.alignment, corpus.lexical)[1]


def semantic_mode_scores(corpus: FusionCorpus, rule: LinearFusion) -> Float32:
    """Return the scores of semantic mode Float32[Q, N]."""
    return apply_rule(rule, "semantic", corpus.vector, corpus.semantic_alignment)[1]


def measure_weights(corpora: Sequence[FusionCorpus], line: tuple[float, float]) -> WeightSurface:
    """Return the nDCG@10 of hybrid and semantic mode for all weights."""
    any_weights = ChannelWeights(1.0, 1.0, 1.0)  # of the other mode

    def in_hybrid(corpus: FusionCorpus, weights: ChannelWeights) -> float:
        rule = StandardRule(weights, any_weights, corpus.spreads, *line).resolve()
        return mean_ndcg(corpus, hybrid_scores(corpus, rule))

    def in_semantic(corpus: FusionCorpus, weights: ChannelWeights) -> float:
        rule = StandardRule(any_weights, weights, corpus.spreads, *line).resolve()
        return mean_ndcg(corpus, semantic_mode_scores(corpus, rule))

    hybrid = [
        [[in_hybrid(corpus, ChannelWeights(1.0, a, v)) for v in VECTOR] for a in ALIGNMENT]
        for corpus in corpora
    ]
    semantic = [
        [in_semantic(corpus, ChannelWeights(0.0, 1.0, v)) for v in SEMANTIC_VECTOR]
        for corpus in corpora
    ]
    return WeightSurface(np.array(hybrid), np.array(semantic))


def choose_rule(
    ndcg: WeightSurface, corpora: Sequence[FusionCorpus], line: tuple[float, float]
) -> StandardRule:
    """Choose the weights of the highest mean nDCG@10 over corpora, for each mode.

    Every corpus counts the same, however many queries it has. The surface is flat around its
    maximum, so the mean over neighbouring weights decides rather than a single point.
    """
    hybrid, semantic = (smoothed(surface.mean(axis=0)) for surface in (ndcg.hybrid, ndcg.semantic))
    row, column = np.unravel_index(np.argmax(hybrid), hybrid.shape)
    return StandardRule(
        ChannelWeights(1.0, ALIGNMENT[row], VECTOR[column]),
        ChannelWeights(0.0, 1.0, SEMANTIC_VECTOR[np.argmax(semantic)]),
        mean_spreads([corpus.spreads for corpus in corpora]),
        *line,
    )


def mean_spreads(corpora: Sequence[Spreads]) -> Spreads:
    """Return the mean of the spreads of corpora, each of which counts the same."""
    known = [[spreads.vector, spreads.alignment, spreads.lexical] for spreads in corpora]
    return Spreads(*np.nanmean(np.array(known, dtype=np.float64), axis=0).round(6).tolist())


def smoothed(values: Float64) -> Float64:
    """Return the mean of each of the values, Float64[A] or Float64[A, B], and its neighbours."""
    padded = np.pad(values, 1, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3,) * values.ndim)
    means: Float64 = windows.mean(axis=tuple(range(values.ndim, 2 * values.ndim)))
    return means


def fit_expected(corpora: Sequence[FusionCorpus]) -> tuple[float, float]:
    """Fit the line from vector score to alignment score by least squares, corpora counting alike.

    Returns:
        Slope, at least 0, and intercept.
    """
    sums: Float64 = np.zeros(5)
    for corpus in corpora:
        known = ~np.isnan(corpus.alignment)
        x, y = corpus.vector[known].astype(np.float64), corpus.alignment[known].astype(np.float64)
        sums += [1.0, x.mean(), y.mean(), (x * x).mean(), (x * y).mean()]
    _, x, y, xx, xy = sums / sums[0]
    slope = max(0.0, (xy - x * y) / max(xx - x * x, 1e-12))
    return float(slope), float(y - slope * x)


def mode_figures(corpus: FusionCorpus, standard: StandardRule) -> dict[str, float]:
    """Return the nDCG@10 of each channel and mode of search."""
    rule = standard.resolve(corpus.spreads)
    unaligned = replace(corpus, alignment=np.full_like(corpus.alignment, np.nan))
    systems: dict[str, Callable[[], Float32]] = {
        "vector": lambda: corpus.vector,
        "semantic": lambda: semantic_mode_scores(corpus, rule),
        "lexical": lambda: corpus.lexical,
        "hybrid, not aligned": lambda: hybrid_scores(unaligned, rule),
        "hybrid": lambda: hybrid_scores(corpus, rule),
    }
    return {name: round(mean_ndcg(corpus, make()), 4) for name, make in systems.items()}
