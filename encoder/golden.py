"""The golden batch: a few documents with the vectors that the PyTorch model computes for them.

Every graph is compared with it at export, and again on each machine that serves it: an int8 kernel
may compute something different on another processor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32, read_arrays
from encoder.checkpoint import GOLDEN, Checkpoint, read_verified
from encoder.errors import CheckpointError, ParityError

_PROSE = (
    "The harbour was built where two rivers meet. For three hundred years its quays were of wood, "
    "and every generation replaced them. In 1871 the council voted for stone! Who would pay? "
    "The merchants said that the city should, the city said that the merchants should, and in the "
    "end a loan of 40,000 guilders was raised at 4.5 per cent. Dr. A. J. Smit, the engineer, "
    "reported every month: the piles were driven to a depth of eleven metres, i.e. well below the "
    "mud, and no ship was delayed by more than a day. "
)
_TECHNICAL = (
    "A snapshot names the sequence number of the last change that it contains. On start-up the "
    "server reads the newest snapshot whose checksum is right, then replays the changes that came "
    "after it. If no snapshot can be read, the index is built again from the store; this takes "
    "longer, but loses nothing. Deleted rows leave a tombstone until the next compaction. "
)
_TABLE = "\n".join(f"| row {n} | {n * 37 % 101} | {n / 7:.3f} | item-{n:04x} |" for n in range(40))
_CODE = "def mean(values):\n    total = 0.0\n    for v in values:\n        total += v\n    return 0"
_OTHER = (
    "Die Brücke wurde im Frühjahr gesperrt. L'été fut très sec; les récoltes ont souffert. "
    "今日は天気がいいです。明日は雨が降るでしょう。 Это короткое предложение. 😀 🚀"
)

GOLDEN_TEXTS = (
    "Yes.",
    _PROSE,
    _TECHNICAL,
    _OTHER,
    f"# Results\n\n{_TABLE}\n\n{_CODE}\n",
    "word " * 300,
    (_PROSE + "\n\n" + _TECHNICAL) * 6,
)


# Smallest cosine allowed between a vector of a graph and the model's own, block and document.
MINIMUM_COSINE = {"fp32": 0.99999, "fp16": 0.999, "int8": 0.96}
# Largest difference allowed in any component; the vectors have unit norm.
MAXIMUM_DIFFERENCE = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.1}


EncodeBlocks = Callable[[Sequence[Sequence[int]]], Float32]  # blocks of a document -> [S, H]


@dataclass(frozen=True, slots=True)
class Parity:
    """How much a pair of graphs differs from the model: the worst over the golden batch."""

    block_cosine: float
    block_difference: float
    document_cosine: float
    document_difference: float


@dataclass(frozen=True, slots=True)
class GoldenBatch:
    """Sentence blocks of a few documents and the model's vectors for them.

    Attributes:
        blocks: N token sequences without special tokens, document after document.
        sizes: number of blocks of each of the D documents.
        block_vectors: [N, block_dimension].
        term_features: [D, F]; F is 0 without a term channel.
        document_vectors: [D, dimension].
    """

    blocks: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    block_vectors: Float32
    term_features: Float32
    document_vectors: Float32

    def encode(self, encode_blocks: EncodeBlocks) -> Float32:
        """Return the block vectors [N, block_dimension], of one document after another."""
        ends = [0, *accumulate(self.sizes)]
        return np.concatenate([encode_blocks(self.blocks[a:b]) for a, b in pairwise(ends)])

    def compare(self, blocks: Float32, combine: Callable[[Float32, Float32], Float32]) -> Parity:
        """Compare block vectors [N, H], and document vectors of the model's own block vectors.

        `combine` makes a document vector of block vectors and term features.
        """
        ends = [0, *accumulate(self.sizes)]
        documents = np.stack(
            [
                combine(self.block_vectors[a:b], terms)
                for (a, b), terms in zip(pairwise(ends), self.term_features, strict=True)
            ]
        )
        return Parity(
            block_cosine=float((blocks * self.block_vectors).sum(1).min()),
            block_difference=float(np.abs(blocks - self.block_vectors).max()),
            document_cosine=float((documents * self.document_vectors).sum(1).min()),
            document_difference=float(np.abs(documents - self.document_vectors).max()),
        )


def check_parity(parity: Parity, precision: str) -> None:
    """Check that graphs are close to the model."""
    for level in ("block", "document"):
        figures = asdict(parity)
        cosine, difference = figures[f"{level}_cosine"], figures[f"{level}_difference"]
        # "not >=" also refuses NaN
        if not cosine >= MINIMUM_COSINE[precision]:
            raise ParityError(
                f"{precision} {level} encoder: cosine to the model is {cosine:.5f}, "
                f"under {MINIMUM_COSINE[precision]}"
            )
        check_difference(difference, MAXIMUM_DIFFERENCE[precision], f"{precision} {level} encoder")


def check_difference(difference: float, limit: float, graph: str) -> None:
    """Check that a graph differs little from the model."""
    if not difference <= limit:  # also refuses NaN
        raise ParityError(f"{graph}: differs from the model by {difference:.2g}, over {limit}")


def read_golden_batch(checkpoint: Checkpoint) -> GoldenBatch:
    """Read the golden batch of a checkpoint."""
    with golden_arrays(checkpoint.directory, checkpoint.files) as arrays:
        blocks = np.split(arrays["tokens"], np.cumsum(arrays["lengths"])[:-1])
        return GoldenBatch(
            blocks=tuple(tuple(block.tolist()) for block in blocks),
            sizes=tuple(arrays["sizes"].tolist()),
            block_vectors=arrays["block_vectors"],
            term_features=arrays["term_features"],
            document_vectors=arrays["document_vectors"],
        )


@contextmanager
def golden_arrays(directory: Path, files: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Open the verified arrays of a golden batch, of an encoder or a reranker."""
    data = read_verified(directory, files, GOLDEN)
    try:
        yield read_arrays(data)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{directory / GOLDEN}: {error}") from error
