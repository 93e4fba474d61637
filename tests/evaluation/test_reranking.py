"""Reranking as a system, and its rule fitted on validation queries."""

from collections.abc import Sequence

import numpy as np
import pytest

from encoder.reranker.score_fusion import FusionWeights, ScoreFusion
from encoder.reranker.sentence_ranking import SentenceGraphText, split_for_ranking
from evaluation.fitting import reranking
from evaluation.report import RetrievalTask
from evaluation.reranking import PairScorer, reranked_system
from evaluation.systems import System, best_rows, rank, vector_system
from index.errors import CorpusError


class TopicReranker:
    """Scores a pair by the first letter of both texts, and records what it scored."""

    def __init__(self, match: float = 4.0) -> None:
        self.match = match
        self.scored: list[tuple[str, str]] = []

    @property
    def name(self) -> str:
        return "topics"

    @property
    def rule(self) -> ScoreFusion:
        return ScoreFusion()

    def read(self, text: str) -> SentenceGraphText:
        return split_for_ranking(text)

    def score(self, first: SentenceGraphText, second: SentenceGraphText) -> float:
        self.scored.append((first.text, second.text))
        return self.match if first.text[0] == second.text[0] else -self.match


@pytest.fixture
def texts() -> list[str]:
    return [f"{'abc'[number % 3]} text number {number}." for number in range(24)]


@pytest.fixture
def system() -> System:
    vectors = np.random.default_rng(5).normal(size=(24, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vector_system("semantic", "", vectors)


def task_of(texts: Sequence[str]) -> RetrievalTask:
    query_ids = tuple(IDS[row] for row in ROWS)
    return RetrievalTask(tuple(IDS), query_ids, ROWS, np.ones(len(ROWS)), qrels_of(texts))


def qrels_of(texts: Sequence[str]) -> dict[str, dict[str, int]]:
    return {
        str(a): {str(b): 1 + b % 2 for b in range(24) if a != b and texts[a][0] == texts[b][0]}
        for a in range(24)
    }


ROWS = np.arange(0, 24, 2, dtype=np.int64)
IDS = [str(number) for number in range(24)]


def test_the_mixture_orders_the_first_candidates(texts: list[str], system: System) -> None:
    scorer = PairScorer(TopicReranker(), texts, threads=2)
    mixture = FusionWeights(0.9, 1.0)
    second = reranked_system(system, scorer, mixture, 8, "reranked")
    names = [IDS[row] for row in ROWS]
    before, after = (rank(stage, IDS, names, ROWS) for stage in (system, second))
    for row in ROWS.tolist():
        first, reranked = (list(map(int, run[IDS[row]])) for run in (before, after))
        assert set(first[:8]) == set(reranked[:8])
        assert first[8:] == reranked[8:]
        same = [texts[other][0] == texts[row][0] for other in reranked[:8]]
        assert same == sorted(same, reverse=True)
        assert row not in reranked


def test_pairs_are_scored_by_the_mixture(texts: list[str], system: System) -> None:
    scorer = PairScorer(TopicReranker(), texts)
    second = reranked_system(system, scorer, FusionWeights(0.5, 1.0), 8, "reranked")
    sources, targets = np.array([0, 0]), np.array([3, 4])
    first = system.score_pairs(sources, targets).tolist()
    probability = 1 / (1 + np.exp(-4.0))
    expected = [0.5 * first[0] + 0.5 * probability, 0.5 * first[1] + 0.5 * (1 - probability)]
    assert second.score_pairs(sources, targets).tolist() == pytest.approx(expected, abs=1e-6)


def test_each_pair_is_scored_once(texts: list[str]) -> None:
    edges = [(row, other) for row in (1, 5) for other in (7, 8, 9)]
    reranker = TopicReranker()
    scorer = PairScorer(reranker, texts, threads=2)
    found = scorer(edges).tolist()
    assert scorer([*edges[::-1], (2, 3)]).tolist()[:6] == found[::-1]
    assert len(reranker.scored) == 7


def test_the_fitted_mixture_is_the_best_of_the_grid(texts: list[str], system: System) -> None:
    scorer = PairScorer(TopicReranker(), texts)
    ndcg = reranking.measure_mixtures(system, scorer, task_of(texts), 10)
    found = reranking.fit_mixture([ndcg, ndcg])
    assert found.ndcg.shape == (2, len(reranking.SCALES), len(reranking.WEIGHTS))
    best = found.ndcg.mean(0).max()
    reached = ndcg(found.mixture).mean()
    assert reached == pytest.approx(best, abs=0.01)
    assert reached > ndcg(FusionWeights(0.0, 1.0)).mean() + 0.1
    with pytest.raises(ValueError, match="no corpus"):
        reranking.fit_mixture([])


def test_no_corpus_pays_for_what_another_gains(texts: list[str], system: System) -> None:
    gains, loses = (
        reranking.measure_mixtures(
            system, PairScorer(TopicReranker(match), texts), task_of(texts), 10
        )
        for match in (4.0, -4.0)
    )
    both, alone = (
        reranking.fit_mixture([gains, loses]).mixture,
        reranking.fit_mixture([gains]).mixture,
    )
    for gain in (gains, loses):
        before = gain(FusionWeights(0.0, 1.0)).mean()
        assert gain(both).mean() >= before - 0.01
    assert both.weight < alone.weight


def test_queries_of_their_own_have_all_documents_as_candidates(system: System) -> None:
    vectors = np.eye(4, dtype=np.float32)
    corpus = vector_system("semantic", "", np.concatenate([vectors, vectors[:1]]), 4)
    assert best_rows(corpus.score(np.array([4]))[0], 4, 2)[0] == 0
    assert 0 not in best_rows(corpus.score(np.array([0]))[0], 0, 2)


def test_a_map_of_reranked_scores_rises() -> None:
    chance = np.random.default_rng(0)
    corpora = []
    for shift in (0.0, 0.1):
        labels = np.arange(80) % 2
        scores = 0.3 * labels + shift + chance.normal(0, 0.15, 80)
        corpora.append((scores.astype(np.float32), labels.astype(np.int64)))
    fitted = reranking.fit_rerank_map(corpora)
    assert fitted.map.slope > 0
    assert reranking.fit_rerank_map(corpora[:1]).error.log_loss < 0.69
    with pytest.raises(CorpusError, match="fewer than"):
        reranking.fit_rerank_map([(np.zeros(30, dtype=np.float32), np.zeros(30, dtype=np.int64))])
