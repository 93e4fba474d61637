"""Reranking as a system of an evaluation: a reranker reorders the best of another system."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from encoder.arrays import Float32, Float64, Int64
from encoder.reranker.onnx_reranker import OnnxReranker
from encoder.reranker.score_fusion import FusionWeights
from encoder.reranker.sentence_ranking import SentenceGraphText
from evaluation.systems import System, best_rows

_ABOVE_ALL = 10.0  # more than any score of a first stage

Edge = tuple[int, int]


class PairScorer:
    """Scores pairs of texts, given as rows, each pair once."""

    def __init__(self, reranker: OnnxReranker, texts: Sequence[str], *, threads: int = 1) -> None:
        """Make a scorer of texts, given by row, whose reranker is called on so many threads."""
        self._reranker = reranker
        self._texts = texts
        self._threads = threads
        self._read: dict[int, SentenceGraphText] = {}
        self._logits: dict[Edge, float] = {}

    def __call__(self, edges: Sequence[Edge]) -> Float32:
        """Return the logits Float32[P] of pairs (query, document)."""
        missing = sorted({edge for edge in edges if edge not in self._logits})
        with ThreadPoolExecutor(self._threads) as pool:
            self._logits.update(zip(missing, pool.map(self._score, missing), strict=True))
        return np.array([self._logits[edge] for edge in edges], dtype=np.float32)

    def _score(self, edge: Edge) -> float:
        return self._reranker.score(*(self._text(row) for row in edge))

    def _text(self, row: int) -> SentenceGraphText:
        if row not in self._read:
            self._read[row] = self._reranker.read(self._texts[row])
        return self._read[row]


def reranked_system(
    system: System, scorer: PairScorer, mixture: FusionWeights, candidates: int, name: str
) -> System:
    """Make the system that reranks the first candidates of another one.

    They come before all other documents, ordered by the mixture of both scores.
    """

    def score(rows: Int64) -> Float32:
        scores = system.score(rows).copy()
        for place, row in enumerate(rows.tolist()):
            some = best_rows(scores[place], row, candidates)
            logits = scorer([(row, other) for other in some.tolist()])
            mixed = mix(mixture, scores[place, some], logits)
            scores[place, some] = _ABOVE_ALL + mixed
        return scores

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        edges = list(zip(sources.tolist(), targets.tolist(), strict=True))
        return mix(mixture, system.score_pairs(sources, targets), scorer(edges))

    settings = f"first {candidates} of {system.name}, {mixture.weight:g} of the reranker"
    return System(name, settings, score, score_pairs)


def mix(
    mixture: FusionWeights, first_stage: Float32 | Float64, logits: Float32 | Float64
) -> Float32:
    """Return the scores Float32[P] of reranked documents, from those of both stages [P]."""
    pairs = zip(first_stage.tolist(), logits.tolist(), strict=True)
    return np.array([mixture.score(first, logit) for first, logit in pairs], dtype=np.float32)
