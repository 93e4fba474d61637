"""Selecting the sentence blocks to encode: those that cover the words of all.

The Transformer takes nearly all of the time of encoding, and many blocks of a long document say
what others say as well. Blocks are selected so that every block has one that resembles it among
the selected, by greedy maximisation of

    sum_i max_{j selected} cos(i, j)

over the TF-IDF vectors of the blocks (facility location; Lin and Bilmes, "A class of submodular
functions for document summarization", ACL 2011). The first block is always selected. Words cost no
Transformer, so those of all blocks are counted.

Of eight ways that were compared (`docs/results/encoding.md`), this one and the beginning of the
document kept hybrid mode best on validation queries; this one also sees the rest of the document.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import WHOLE, Checkpoint
from encoder.terms.term_channel import HashedTerms, hashed_vocabulary, open_hashed_terms
from encoder.tokenizer import BlockTokenizer, Select

LEAST_BLOCKS = 8  # some 500 tokens: shorter documents are encoded whole
WINDOW = 256  # blocks that are compared with each other; of a book, each window has its share
_DIMENSION = 768  # of the hashed words of a block, for a checkpoint that hashes none


def select_blocks(
    hashed: HashedTerms, share: float, blocks: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the positions of a share of the sentence blocks of a document, ascending.

    They are selected by hashed words, which have at least one dimension.
    """
    if blocks_to_encode(len(blocks), share) == len(blocks):
        return tuple(range(len(blocks)))
    features = hashed.features_of_blocks(blocks)
    selected: list[int] = []
    for start in range(0, len(blocks), WINDOW):
        some = features[start : start + WINDOW]
        found = cover(some, blocks_to_encode(len(some), share))
        selected.extend((start + found).tolist())
    return tuple(selected)


def blocks_to_encode(blocks: int, share: float) -> int:
    """Return how many of so many blocks are encoded."""
    return min(blocks, max(LEAST_BLOCKS, math.ceil(share * blocks)))


def cover(features: Float32, number: int) -> Int64:
    """Return which blocks cover all best, ascending, the first block among them.

    Args:
        features: [S, D] of the blocks, unit norm or zero.
        number: of blocks to select, from 1 to S.
    """
    similarities = np.maximum(features @ features.T, 0.0)
    selected = [0]
    nearest = similarities[0].copy()
    while len(selected) < number:
        gains = np.maximum(similarities - nearest, 0.0).sum(axis=1)
        gains[selected] = -1.0
        selected.append(int(gains.argmax()))
        np.maximum(nearest, similarities[selected[-1]], out=nearest)
    return np.sort(np.array(selected, dtype=np.int64))


def open_document_tokenizer(checkpoint: Checkpoint) -> BlockTokenizer:
    """Open the tokenizer of documents to encode, which selects the share of the checkpoint."""
    return BlockTokenizer(checkpoint, open_selector(checkpoint))


def open_selector(checkpoint: Checkpoint) -> Select | None:
    """Open what selects the blocks to encode; None where all are encoded."""
    if checkpoint.reading_share == WHOLE:
        return None
    hashed = open_hashed_terms(checkpoint)
    if hashed.dimension == 0:
        vocabulary = hashed_vocabulary(checkpoint)
        weights = np.ones(vocabulary.rows, dtype=np.float32)
        hashed = HashedTerms(vocabulary, weights, _DIMENSION)
    return partial(select_blocks, hashed, checkpoint.reading_share)
