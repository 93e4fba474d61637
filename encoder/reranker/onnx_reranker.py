"""The reranker at serving time: scores how likely two documents match, read together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import PAIR_GRAPH, read_verified
from encoder.device.providers import CPU
from encoder.errors import CheckpointError
from encoder.golden import check_difference, golden_arrays
from encoder.onnx_session import open_session
from encoder.reranker.checkpoint import (
    RerankerCheckpoint,
    load_reranker_checkpoint,
)
from encoder.reranker.pair_tokenizer import PairTokenizer, PairTokens
from encoder.reranker.score_fusion import read_score_fusion
from encoder.reranker.sentence_ranking import SentenceGraphText


class OnnxReranker:
    """Match-Ignition by ONNX Runtime on a CPU: one pair is one call on the calling thread.

    Attributes:
        checkpoint: what it was loaded from.
        precision: of the graph in use.
        reader: splits texts, and joins those of a pair.
        rule: how its logits and the scores of a first stage become one score.
    """

    def __init__(self, checkpoint: RerankerCheckpoint, *, precision: str | None = None) -> None:
        """Open the graph of a checkpoint, by default in int8 if available, else in fp32."""
        having = checkpoint.precisions
        chosen = precision or next(iter(having), None)
        if chosen not in having:
            raise CheckpointError(
                f"{checkpoint.directory} has no {precision or 'graph'}; "
                f"it has: {', '.join(having) or 'none'}"
            )
        name = f"{chosen}/{PAIR_GRAPH}"
        graph = read_verified(checkpoint.directory, checkpoint.files, name)
        self._session = open_session(graph, checkpoint.directory / name, [(CPU, {})])
        self.reader = PairTokenizer(checkpoint)
        self.rule = read_score_fusion(checkpoint)
        self.checkpoint = checkpoint
        self.precision = chosen

    def read(self, text: str) -> SentenceGraphText:
        """Split a text into sentences and words."""
        return self.reader.read(text)

    def score(self, first: SentenceGraphText, second: SentenceGraphText) -> float:
        """Select sentences of both texts and score them together."""
        return self.score_tokens(self.reader.pair(first, second))

    def score_tokens(self, pair: PairTokens) -> float:
        """Return the logit of a pair of tokens."""
        inputs = {
            "input_ids": pair.input_ids[np.newaxis],
            "token_types": pair.token_types[np.newaxis],
            "special": pair.special[np.newaxis],
        }
        return float(self._session.run(None, inputs)[0][0])

    def warm_up(self) -> None:
        """Run the golden pairs."""
        golden = read_golden_pairs(self.checkpoint)
        check_pair_parity(golden.difference(self.score_tokens), self.precision)


def open_reranker(directory: Path, *, precision: str | None = None) -> OnnxReranker:
    """Open a reranker."""
    return OnnxReranker(load_reranker_checkpoint(directory), precision=precision)


# Largest difference allowed between a logit of a graph and the model's. With int8 another word may
# be the least important, so that a different word is dropped.
MAXIMUM_DIFFERENCE = {"fp32": 2e-3, "int8": 0.75}
_FIELDS = ("input_ids", "token_types", "special")


@dataclass(frozen=True, slots=True)
class GoldenPairs:
    """Pairs and their logits Float32[N]."""

    pairs: tuple[PairTokens, ...]
    logits: Float32

    def difference(self, score: Callable[[PairTokens], float]) -> float:
        """Return the largest difference of a logit to the model's."""
        found = np.array([score(pair) for pair in self.pairs])
        return float(np.abs(found - self.logits).max())


def check_pair_parity(difference: float, precision: str) -> None:
    """Check that a graph is close to the model."""
    check_difference(difference, MAXIMUM_DIFFERENCE[precision], f"{precision} cross-encoder")


def read_golden_pairs(checkpoint: RerankerCheckpoint) -> GoldenPairs:
    """Read the golden pairs of a reranker."""
    with golden_arrays(checkpoint.directory, checkpoint.files) as arrays:
        ends = np.cumsum(arrays["lengths"])[:-1]
        columns: Sequence[list[Int64]] = [
            np.split(arrays[name].astype(np.int64), ends) for name in _FIELDS
        ]
        pairs = tuple(PairTokens(*fields) for fields in zip(*columns, strict=True))
        return GoldenPairs(pairs, arrays["logits"])
