"""Reranking as a system of an evaluation: another system finds, a reranker orders its best."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from encoder.reranker.onnx_reranker import Reranker
from encoder.reranker.score_fusion import FusionWeights
from encoder.reranker.sentence_ranking import SentenceGraphText
from evaluation.systems import System

_ABOVE_ALL = 10.0  # no score of a first stage is so high
_PAIRS_A_STEP = 2_048

Edge = tuple[int, int]


class PairScorer:
    """Judges pairs of texts by their rows, each pair once."""

    def __init__(
        self,
        reranker: Reranker,
        texts: Sequence[str],
        *,
        threads: int = 1,
        kept: Path | None = None,
        told: Callable[[int, int], object] = lambda done, of: None,
    ) -> None:
        """Make a scorer.

        Args:
            reranker: that reads the pairs.
            texts: by row.
            threads: that call it.
            kept: a file of logits of another run, of the same reranker and the same texts; read
                where it is there, written now and then.
            told: hears how many of a call's pairs are done.
        """
        self._reranker = reranker
        self._texts = texts
        self._threads = threads
        self._kept = kept
        self._told = told
        self._read: dict[int, SentenceGraphText] = {}
        self._logits = {} if kept is None else read_logits(kept)

    def __call__(self, edges: Sequence[Edge]) -> Float32:
        """Return the logits Float32[P] of pairs (query, document)."""
        missing = sorted({edge for edge in edges if edge not in self._logits})
        with ThreadPoolExecutor(self._threads) as pool:
            for start in range(0, len(missing), _PAIRS_A_STEP):
                some = missing[start : start + _PAIRS_A_STEP]
                self._logits.update(zip(some, pool.map(self._judge, some), strict=True))
                self._told(start + len(some), len(missing))
                if self._kept is not None:
                    write_logits(self._kept, self._logits)
        return np.array([self._logits[edge] for edge in edges], dtype=np.float32)

    def _judge(self, edge: Edge) -> float:
        return self._reranker.score(*(self._text(row) for row in edge))

    def _text(self, row: int) -> SentenceGraphText:
        if row not in self._read:
            self._read[row] = self._reranker.read(self._texts[row])
        return self._read[row]


def first_candidates(system: System, rows: Int64, number: int) -> list[list[int]]:
    """Return the rows of the best documents of each query, without the query itself."""
    found = system.score(rows)
    documents = found.shape[1]
    for place, row in enumerate(rows.tolist()):
        if row < documents:
            found[place, row] = -np.inf
    order = np.argsort(-found, axis=1, kind="stable")[:, : min(number, documents - 1)]
    best: list[list[int]] = order.tolist()
    return best


def reranked_system(
    system: System, scorer: PairScorer, mixture: FusionWeights, candidates: int, name: str
) -> System:
    """Make the system that reads the first candidates of another one again.

    They come before all other documents, in the order of the mixture of both scores.
    """

    def score(rows: Int64) -> Float32:
        scores = system.score(rows).copy()
        best = first_candidates(system, rows, candidates)
        for place, (row, some) in enumerate(zip(rows.tolist(), best, strict=True)):
            logits = scorer([(row, other) for other in some])
            mixed = mix(mixture, scores[place, some], logits)
            scores[place, some] = _ABOVE_ALL + mixed
        return scores

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        edges = list(zip(sources.tolist(), targets.tolist(), strict=True))
        return mix(mixture, system.score_pairs(sources, targets), scorer(edges))

    settings = f"first {candidates} of {system.name}, {mixture.weight:g} of the reranker"
    return System(name, settings, score, score_pairs)


def mix(mixture: FusionWeights, first_stage: Float32, logits: Float32) -> Float32:
    """Return the scores Float32[P] of reranked documents."""
    pairs = zip(first_stage.tolist(), logits.tolist(), strict=True)
    return np.array([mixture.score(first, logit) for first, logit in pairs], dtype=np.float32)


def read_logits(path: Path) -> dict[Edge, float]:
    """Read what `write_logits` wrote; nothing where there is no such file, or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            edges: Iterable[list[int]] = arrays["edges"].tolist()
            return {
                (a, b): one for (a, b), one in zip(edges, arrays["logits"].tolist(), strict=True)
            }
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return {}


def write_logits(path: Path, logits: dict[Edge, float]) -> None:
    """Write the logits of pairs, whole or not at all.

    Raises:
        OSError: the disk did not take it.
    """
    unfinished = path.with_name(path.name + ".partial")
    with unfinished.open("wb") as file:
        edges = np.array(list(logits), dtype=np.int64).reshape(-1, 2)
        np.savez(file, edges=edges, logits=np.array(list(logits.values()), dtype=np.float32))
    replace_durably(unfinished, path)
