"""Fitting the fusion rule on validation queries of several corpora together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from index.fusion import FusionRule
from index.mode_systems import HYBRID, hybrid_system
from index.quality import Retrieval
from index.retrieval_metrics import MEASURES, judge_each
from index.systems import System, rank
from index.vector_index import Float32, Int64

STEPS = 40
RECIPROCAL_RANK = 60  # the constant of reciprocal rank fusion, with which the rule is compared
_NDCG = MEASURES.index("nDCG@10")


@dataclass(frozen=True, slots=True)
class FusionCorpus:
    """The scores of both channels for the validation queries of one corpus.

    Attributes:
        question: Q queries and their judgements.
        semantic: scores of the vectors.
        lexical: scores of the words.
    """

    question: Retrieval
    semantic: System
    lexical: System


@dataclass(frozen=True, slots=True)
class FusionFit:
    """A fitted rule and what it was chosen from.

    Attributes:
        rule: of the highest mean.
        weights: weights of the lexical score that were tried, from 0 (semantic) to 1 (lexical).
        ndcg: Float32[corpora, weights], nDCG@10 of each.
        reciprocal_rank: Float32[corpora], that of reciprocal rank fusion.
    """

    rule: FusionRule
    weights: tuple[float, ...]
    ndcg: Float32
    reciprocal_rank: Float32


def fit_fusion(corpora: Sequence[FusionCorpus]) -> FusionFit:
    """Choose the weight of the lexical score whose mean nDCG@10 over the corpora is highest.

    Every corpus counts alike, however many queries it has. The curve is flat around its top, so a
    mean over three neighbouring weights decides rather than one.

    Raises:
        CorpusError: the extra `evaluate` is not installed, or no query has a judgement.
        ValueError: there is no corpus.
    """
    if not corpora:
        raise ValueError("there is no corpus to fit the rule on")
    weights = tuple(step / STEPS for step in range(STEPS + 1))
    ndcg = np.zeros((len(corpora), len(weights)), dtype=np.float32)
    ranks = np.zeros(len(corpora), dtype=np.float32)
    for row, corpus in enumerate(corpora):
        semantic = _remembered(corpus.semantic, corpus.question.rows)
        lexical = _remembered(corpus.lexical, corpus.question.rows)
        for column, weight in enumerate(weights):
            fused = hybrid_system(semantic, lexical, FusionRule(weight))
            ndcg[row, column] = _ndcg(fused, corpus.question)
        ranks[row] = _ndcg(_reciprocal_ranks(semantic, lexical), corpus.question)
    smooth = np.convolve(np.pad(ndcg.mean(axis=0), 1, mode="edge"), np.ones(3) / 3, mode="valid")
    return FusionFit(FusionRule(weights[int(np.argmax(smooth))]), weights, ndcg, ranks)


def _ndcg(system: System, question: Retrieval) -> float:
    ranking = rank(system, question.ids, question.query_ids, question.rows)
    return float(judge_each(ranking, question.ids, question.qrels).values[:, _NDCG].mean())


def _remembered(system: System, rows: Int64) -> System:
    """Score these rows once."""
    place: Mapping[int, int] = {row: number for number, row in enumerate(rows.tolist())}
    scores = system.score(rows)

    def score(some: Int64) -> Float32:
        found: Float32 = scores[[place[row] for row in some.tolist()]].copy()
        return found

    return System(system.name, system.settings, score, system.score_pairs)


def _reciprocal_ranks(semantic: System, lexical: System) -> System:
    def score(rows: Int64) -> Float32:
        total: Float32 = _reciprocal(semantic.score(rows)) + _reciprocal(lexical.score(rows))
        return total

    return System(HYBRID, "reciprocal rank fusion", score, semantic.score_pairs)


def _reciprocal(scores: Float32) -> Float32:
    ranks = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    inverse: Float32 = (1.0 / (RECIPROCAL_RANK + 1 + ranks)).astype(np.float32)
    return inverse
