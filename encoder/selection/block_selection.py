"""Selecting the sentence blocks to encode, by maximal marginal relevance.

The Transformer takes nearly all of the time of encoding, and many blocks of a long document say
what others say as well. The next block to select resembles the document most, less its likeness
to what is selected already (Carbonell and Goldstein, "The use of MMR", SIGIR 1998):

    argmax_i  RELEVANCE cos(i, document) - (1 - RELEVANCE) max_{j selected} cos(i, j)

over the TF-IDF vectors of the blocks; that of the document is their mean. The first block is always
selected. Words cost no Transformer, so those of all blocks are counted. It was the best of eight
ways in `python -m benchmarks.reading.curve`.
"""

import math
from collections.abc import Sequence

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.selection.reading_share import WHOLE
from encoder.terms.feature_hashing import HashedTerms
from encoder.terms.term_channel import hashed_vocabulary, open_hashed_terms
from encoder.tokenizer import BlockTokenizer

LEAST_BLOCKS = 8  # some 500 tokens: shorter documents are encoded whole
RELEVANCE = 0.5
_SMALLEST = 1e-9
_DIMENSION = 768  # of the hashed words of a block, for a checkpoint that hashes none


class BlockSelector:
    """Selects a share of the blocks of a document. Safe to call from threads."""

    def __init__(self, hashed: HashedTerms, share: float) -> None:
        """Select by hashed words and their weights.

        Args:
            hashed: of at least one dimension.
            share: of the blocks, over 0 and at most 1.
        """
        self._hashed = hashed
        self._share = share

    def __call__(self, blocks: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the positions of the selected blocks, ascending.

        Args:
            blocks: token ids of the S sentence blocks of a document, special tokens not included.
        """
        number = blocks_to_encode(len(blocks), self._share)
        if number == len(blocks):
            return tuple(range(number))
        return tuple(select(self._hashed.features_of_blocks(blocks), number).tolist())


def blocks_to_encode(blocks: int, share: float) -> int:
    """Return how many of so many blocks are encoded."""
    return min(blocks, max(LEAST_BLOCKS, math.ceil(share * blocks)))


def select(features: Float32, number: int) -> Int64:
    """Return the positions of the first block and of the most relevant others, ascending.

    Args:
        features: [S, D] of the blocks, unit norm or zero.
        number: of blocks to select, from 1 to S.
    """
    mean = features.mean(axis=0)
    relevance = RELEVANCE * (features @ (mean / max(float(np.linalg.norm(mean)), _SMALLEST)))
    selected = [0]
    nearest = features @ features[0]
    while len(selected) < number:
        scores = relevance - (1.0 - RELEVANCE) * nearest
        scores[selected] = -np.inf
        selected.append(int(scores.argmax()))
        np.maximum(nearest, features @ features[selected[-1]], out=nearest)
    return np.sort(np.array(selected, dtype=np.int64))


def open_document_tokenizer(checkpoint: Checkpoint) -> BlockTokenizer:
    """Open the tokenizer of documents to encode, which selects the share of the checkpoint.

    Raises:
        CheckpointError: the tokenizer or the hashed terms are missing, changed or invalid.
    """
    selector = open_selector(checkpoint)
    return BlockTokenizer(checkpoint, selector)


def open_selector(checkpoint: Checkpoint) -> BlockSelector | None:
    """Open what selects the blocks to encode; None where all are encoded.

    Raises:
        CheckpointError: the hashed terms are missing, changed or invalid.
    """
    if checkpoint.reading_share == WHOLE:
        return None
    hashed = open_hashed_terms(checkpoint)
    if hashed.dimension == 0:
        vocabulary = hashed_vocabulary(checkpoint)
        weights = np.ones(vocabulary.rows, dtype=np.float32)
        hashed = HashedTerms(vocabulary, weights, _DIMENSION)
    return BlockSelector(hashed, checkpoint.reading_share)
