"""Golden pairs: a few pairs of tokens with the logits of the PyTorch model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.checkpoint import GOLDEN
from encoder.golden import GOLDEN_TEXTS, check_difference, golden_arrays
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import PairTokenizer, PairTokens

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


def golden_pairs_of(checkpoint: RerankerCheckpoint) -> list[PairTokens]:
    """Return the golden pairs as the checkpoint reads them: short, long, alike and different."""
    reader = PairTokenizer(checkpoint)
    texts = [reader.read(text) for text in GOLDEN_TEXTS]
    chosen = [(a, b) for a, b in combinations(range(len(texts)), 2) if (a + b) % 2]
    return [reader.pair(texts[a], texts[b]) for a, b in [*chosen, (0, 0), (1, 1), (6, 6)]]


def check_pair_parity(difference: float, precision: str) -> None:
    """Check that a graph is close to the model.

    Raises:
        ParityError: it is not; the message names the difference and its limit.
    """
    check_difference(difference, MAXIMUM_DIFFERENCE[precision], f"{precision} cross-encoder")


def write_golden_pairs(directory: Path, golden: GoldenPairs) -> None:
    """Write the golden pairs into the directory of a reranker."""

    def joined(name: str) -> NDArray[np.int32]:
        return np.concatenate([getattr(pair, name) for pair in golden.pairs]).astype(np.int32)

    np.savez_compressed(
        directory / GOLDEN,
        lengths=np.array([len(pair) for pair in golden.pairs], dtype=np.int32),
        logits=golden.logits,
        input_ids=joined("input_ids"),
        token_types=joined("token_types"),
        special=joined("special"),
    )


def read_golden_pairs(checkpoint: RerankerCheckpoint) -> GoldenPairs:
    """Read the golden pairs of a reranker.

    Raises:
        CheckpointError: they are missing, changed or invalid.
    """
    with golden_arrays(checkpoint.directory, checkpoint.files) as arrays:
        ends = np.cumsum(arrays["lengths"])[:-1]
        columns: Sequence[list[Int64]] = [
            np.split(arrays[name].astype(np.int64), ends) for name in _FIELDS
        ]
        pairs = tuple(PairTokens(*fields) for fields in zip(*columns, strict=True))
        return GoldenPairs(pairs, arrays["logits"])
