"""Packing: sentence blocks of many lengths become few large calls of a graph, of few shapes.

A GPU is fast where a call has many tokens, and keeps memory for every shape that it has seen.
Blocks are therefore sorted by length, padded to a multiple of `LENGTH_STEP` tokens, and a call is
padded to a power of two of rows, of which the last ones are empty.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from encoder.arrays import Bool, Float32, Int64

LENGTH_STEP = 16


@dataclass(frozen=True, slots=True)
class BlockPacking:
    """How the sentence blocks of one checkpoint are packed.

    Attributes:
        batch_tokens: of one call, padding included; 0 packs nothing: one block a call, unpadded.
        block_length: tokens of the longest block, special tokens included.
        before: token ids that open a block: special tokens, and those of a prompt.
        after: token ids that close it.
        padding_token: fills the rest.
    """

    batch_tokens: int
    block_length: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    padding_token: int

    def calls(self, blocks: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield the rows of the blocks of each call, longest blocks first."""
        if not self.batch_tokens:
            yield from ([row] for row in range(len(blocks)))
            return
        yield from _calls(list(map(len, blocks)), self.most_rows)

    def most_rows(self, tokens: int) -> int:
        """Return how many blocks of so many tokens one call has: a power of two."""
        return power_of_two_up_to(self.batch_tokens // self.padded_length(tokens))

    def padded_length(self, tokens: int) -> int:
        """Return the length that a block of so many tokens is padded to."""
        length = len(self.before) + tokens + len(self.after)
        if self.batch_tokens:
            length = -(-length // LENGTH_STEP) * LENGTH_STEP
        return min(length, self.block_length)

    def pad(self, blocks: Sequence[Sequence[int]]) -> tuple[Int64, Int64]:
        """Return token ids and mask, each Int64[rows, length]; at least one block is given."""
        if len(blocks) == 1 and not self.batch_tokens:
            ids = np.array([[*self.before, *blocks[0], *self.after]], dtype=np.int64)
            return ids, np.ones_like(ids)
        lengths = np.fromiter(map(len, blocks), np.int64, len(blocks))
        length = self.padded_length(int(lengths.max()))
        rows = power_of_two_from(len(blocks)) if self.batch_tokens else len(blocks)
        ids = np.full((rows, length), self.padding_token, dtype=np.int64)
        mask = np.zeros((rows, length), dtype=np.int64)
        places = np.arange(length)
        first = len(self.before)
        filled, ends = slice(0, len(blocks)), lengths[:, np.newaxis] + first
        inside: Bool = (places >= first) & (places < ends)  # the tokens of each block, in order
        tokens = np.fromiter(chain.from_iterable(blocks), np.int64, int(lengths.sum()))
        ids[filled][inside] = tokens
        ids[filled, :first] = self.before
        closing: Bool = (places >= ends) & (places < ends + len(self.after))
        ids[filled][closing] = np.tile(self.after, len(blocks))
        mask[filled] = places < ends + len(self.after)
        return ids, mask


def document_calls(sizes: Sequence[int], most_blocks: int, budget: int) -> Iterator[list[int]]:
    """Return the rows of the documents of each call of the document level, largest first.

    Args:
        sizes: how many block vectors each document has.
        most_blocks: that the document level reads of one.
        budget: blocks of one call, padding included.
    """
    return _calls(
        sizes, lambda size: power_of_two_up_to(budget // padded_blocks(size, most_blocks))
    )


def _calls(sizes: Sequence[int], most_rows: Callable[[int], int]) -> Iterator[list[int]]:
    """Yield rows, largest first, as many in a call as the largest of it allows."""
    order = sorted(range(len(sizes)), key=lambda row: -sizes[row])
    start = 0
    while start < len(order):
        stop = start + most_rows(sizes[order[start]])
        yield order[start:stop]
        start = stop


def pad_documents(documents: Sequence[Float32], most_blocks: int) -> tuple[Float32, Int64]:
    """Pad block vectors [S, H] of documents to Float32[D, S, H] with a mask Int64[D, S].

    Documents that only fill the call up have one block of zeros. The document level reads at most
    `most_blocks` of a document.
    """
    blocks = padded_blocks(max(map(len, documents)), most_blocks)
    shape = (power_of_two_from(len(documents)), blocks)
    vectors = np.zeros((*shape, documents[0].shape[1]), dtype=np.float32)
    mask = np.zeros(shape, dtype=np.int64)
    mask[:, 0] = 1
    for row, document in enumerate(documents):
        vectors[row, : len(document)] = document
        mask[row, : len(document)] = 1
    return vectors, mask


def pad_rows(rows: Float32) -> Float32:
    """Return rows Float32[N, width] with rows of zeros up to a power of two."""
    padded = np.zeros((power_of_two_from(len(rows)), rows.shape[1]), dtype=np.float32)
    padded[: len(rows)] = rows
    return padded


def padded_blocks(blocks: int, most_blocks: int) -> int:
    """Return how many blocks a document of so many is padded to."""
    return min(power_of_two_from(blocks), most_blocks)


def power_of_two_from(number: int) -> int:
    """Return the least power of two that is not under a number from 1."""
    return 1 << (number - 1).bit_length()


def power_of_two_up_to(number: int) -> int:
    """Return the largest power of two that is not over a number; 1 for numbers under 1."""
    return 1 << max(0, number.bit_length() - 1)
