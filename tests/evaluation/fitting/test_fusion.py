"""The fusion is fitted on judgements: its weights, and the alignment score to expect."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from evaluation.fitting import fusion
from evaluation.report import RetrievalTask
from evaluation.systems import lexical_system
from index.embed import EmbeddedCorpus
from index.search.score import ChannelWeights, LinearFusion, Spreads

EVEN = Spreads(0.1, 0.1, 0.1)


def corpus(
    relevant: str, vector: Sequence[float], lexical: Sequence[float], alignment: Sequence[float]
) -> fusion.FusionCorpus:
    """Return a corpus of one query, its first document, of which one other is relevant."""
    task = RetrievalTask(
        ids=("q", "a", "b", "c"),
        query_ids=("q",),
        rows=np.zeros(1, dtype=np.int64),
        tokens=np.ones(1, dtype=np.int64),
        qrels={"q": {relevant: 1}},
    )
    rows = (np.array([row], dtype=np.float32) for row in (vector, lexical, alignment, alignment))
    return fusion.FusionCorpus(task, *rows, EVEN)


def fit_fusion(*corpora: fusion.FusionCorpus) -> LinearFusion:
    """Return the rule of the first corpus by the weights that are fitted to all."""
    line = fusion.fit_expected(corpora)
    return fusion.choose_rule(fusion.measure_weights(corpora, line), corpora, line).resolve(
        corpora[0].spreads
    )


def test_the_lexical_weight_is_fitted_on_the_judgements() -> None:
    # a is first by neither channel, but by both together; the alignment says nothing.
    both = corpus("a", [1.0, 0.7, 1.0, 0.0], [1.0, 0.7, 0.0, 1.0], [np.nan, 0.5, 0.5, 0.5])
    second = pytest.approx(1 / np.log2(3))
    assert fusion.mean_ndcg(both, both.vector) == fusion.mean_ndcg(both, both.lexical) == second
    fitted = fit_fusion(both, both)
    assert 0.0 < fitted.lexical_weight < 1.0
    assert fusion.mean_ndcg(both, fusion.hybrid_scores(both, fitted)) == pytest.approx(1.0)
    useless = corpus("b", [1.0, 0.2, 1.0, 0.0], [1.0, 0.2, 0.0, 0.6], [np.nan, 0.5, 0.5, 0.5])
    found = fit_fusion(useless)
    assert fusion.mean_ndcg(useless, fusion.hybrid_scores(useless, found)) == pytest.approx(1.0)
    alone = corpus("b", [1.0, 0.2, 0.0, 1.0], [1.0, 0.2, 0.6, 0.0], [np.nan, 0.5, 0.5, 0.5])
    assert found.lexical_weight < fit_fusion(alone).lexical_weight


def test_the_alignment_weight_is_fitted_on_the_judgements() -> None:
    # Only the alignment puts a first.
    good = corpus("a", [1.0, 0.5, 0.6, 0.7], [1.0, 0.5, 0.6, 0.7], [np.nan, 0.9, 0.1, 0.2])
    fitted = fit_fusion(good)
    assert fitted.hybrid_alignment_weight > 0
    assert fitted.semantic_alignment_weight > 0
    assert fusion.mean_ndcg(good, fusion.hybrid_scores(good, fitted)) == pytest.approx(1.0)
    unaligned = replace(good, alignment=np.full_like(good.alignment, np.nan))
    assert fusion.mean_ndcg(unaligned, fusion.hybrid_scores(unaligned, fitted)) == pytest.approx(
        0.5
    )
    other = np.array([[np.nan, 0.1, 0.9, 0.8]], dtype=np.float32)  # of the hybrid candidates
    fitted = fit_fusion(replace(good, lexical=np.zeros_like(good.lexical), alignment=other))
    assert fitted.semantic_alignment_weight > fitted.hybrid_alignment_weight
    # Only the alignment does not.
    bad = corpus("a", [1.0, 0.7, 0.6, 0.5], [1.0, 0.7, 0.6, 0.5], [np.nan, 0.1, 0.9, 0.8])
    fitted = fit_fusion(bad)
    assert fusion.mean_ndcg(bad, fusion.hybrid_scores(bad, fitted)) == pytest.approx(1.0)


def test_the_line_to_expect_counts_every_corpus_alike() -> None:
    vector = [1.0, 0.2, 0.4, 0.8]
    line = [np.nan, *(0.25 * cosine + 0.05 for cosine in vector[1:])]
    exact = corpus("a", vector, vector, line)
    assert fusion.fit_expected([exact]) == pytest.approx((0.25, 0.05), abs=1e-6)
    some = replace(exact, alignment=np.array([[np.nan, line[1], np.nan, line[3]]]))
    assert fusion.fit_expected([some]) == pytest.approx((0.25, 0.05), abs=1e-6)
    higher = replace(exact, alignment=exact.alignment + np.float32(0.2))
    three = [exact, higher, higher]
    assert fusion.fit_expected(three) == pytest.approx((0.25, 0.05 + 0.4 / 3), abs=1e-6)
    falling = corpus("a", vector, vector, [np.nan, 0.9, 0.6, 0.3])
    assert fusion.fit_expected([falling]) == pytest.approx((0.0, 0.6), abs=1e-6)
    fitted = fit_fusion(exact)
    assert (fitted.expected_slope, fitted.expected_intercept) == pytest.approx((0.25, 0.05))


def test_the_weights_of_the_highest_plateau_are_chosen() -> None:
    hybrid = np.zeros((2, len(fusion.ALIGNMENT), len(fusion.VECTOR)))
    hybrid[:, 0, 2] = 0.9  # a single point
    hybrid[0, 4:7, 3:6] = 0.8
    hybrid[1, 4:7, 3:6] = 0.4
    semantic = np.zeros((2, len(fusion.SEMANTIC_VECTOR)))
    semantic[:, 7] = 0.9
    semantic[0, 1:4] = 0.6
    semantic[1, 1:4] = 0.4
    first = corpus("a", [0.0] * 4, [0.0] * 4, [0.0] * 4)
    other = replace(first, spreads=replace(EVEN, vector=0.15))
    rule = fusion.choose_rule(fusion.WeightSurface(hybrid, semantic), (first, other), (0.5, 0.1))
    assert rule.hybrid == ChannelWeights(1.0, fusion.ALIGNMENT[5], fusion.VECTOR[4])
    assert rule.semantic == ChannelWeights(0.0, 1.0, fusion.SEMANTIC_VECTOR[2])
    assert (rule.expected_slope, rule.expected_intercept) == (0.5, 0.1)
    assert rule.spreads == replace(EVEN, vector=0.125)


def test_a_channel_counts_by_its_spread_in_each_corpus() -> None:
    """One corpus, and the same with every cosine and its spread halved: one fit for both."""
    vector, words = [1.0, 0.7, 1.0, 0.0], [1.0, 0.7, 0.0, 1.0]
    whole = corpus("a", vector, words, [np.nan] * 4)
    spreads = replace(EVEN, vector=EVEN.vector / 2)
    halved = replace(whole, vector=whole.vector / 2, spreads=spreads)
    surface = fusion.measure_weights((whole, halved), (0.0, 0.0))
    assert surface.hybrid[1] == pytest.approx(surface.hybrid[0])


def test_blocks_that_are_not_aligned_are_refused() -> None:
    vectors = np.eye(2, dtype=np.float32)
    embedded = EmbeddedCorpus(("a", "b"), vectors, np.ones(2, int), np.ones(2, int), 0)
    task = corpus("a", [0.0] * 4, [0.0] * 4, [0.0] * 4).task
    with pytest.raises(ValueError, match="not aligned"):
        fusion.score_corpus(embedded, task, lexical_system(["some text", "some other"]))
