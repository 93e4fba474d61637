"""Scores of pairs of documents in each mode: what random pairs are measured by."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from index.fusion import FusionRule, fuse
from index.lexical_pairs import TermRows, term_cosines
from index.modes import Mode
from index.observer import Observer
from index.random_pairs import Float64, RandomPairs, draw_pairs, measure_scores, pair_scores
from index.vector_index import Float32, Int64


@dataclass(frozen=True, slots=True)
class Channels:
    """What pairs of N documents are scored by.

    Attributes:
        vectors: Float32[N, dimension], unit norm.
        words: their terms; None where the vectors alone are wanted.
        rule: how the scores of both are joined.
    """

    vectors: Float32
    words: TermRows | None
    rule: FusionRule


def mode_scores(channels: Channels, pairs: Int64, observer: Observer) -> dict[Mode, Float64]:
    """Return the score Float64[P] of each pair of rows Int64[P, 2] in each mode.

    These are the scores that search gives in that mode when one of the two is a stored document
    and the query. Without words there is semantic mode alone.

    Raises:
        CorpusError: a score is not finite.
    """
    semantic = pair_scores(channels.vectors, pairs)
    if channels.words is None:
        return {"semantic": semantic}
    observer.started("scoring pairs by their words", len(pairs))
    lexical = term_cosines(channels.words, pairs, observer)
    hybrid = fuse(channels.rule, semantic.astype(np.float32), lexical)
    return {
        "semantic": semantic,
        "lexical": lexical.astype(np.float64),
        "hybrid": hybrid.astype(np.float64),
    }


def measure_modes(
    channels: Channels, observer: Observer, *, seed: int = 0
) -> Mapping[Mode, RandomPairs]:
    """Measure how random pairs score in each mode: the same pairs in all of them.

    Raises:
        CorpusError: there are too few documents, or a score is not finite.
    """
    documents = len(channels.vectors)
    pairs = draw_pairs(documents, seed)
    scored = mode_scores(channels, pairs, observer)
    return {
        mode: measure_scores(pairs, scores, documents, seed=seed) for mode, scores in scored.items()
    }
