"""Greedy sentence filling (SMITH, section 4.1.1): sentences in, sentence blocks out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

LongSentence = Literal["split", "truncate"]


class Piece(NamedTuple):
    """Tokens `start:stop` of sentence number `sentence`."""

    sentence: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was read of a document and what was left out.

    Attributes:
        tokens: tokens of the whole text, special tokens not counted.
        tokens_read: tokens whose words were counted.
        blocks: sentence blocks that these tokens fill.
        blocks_left_out: sentence blocks beyond the checkpoint's `max_blocks`.
        tokens_encoded: those of the tokens read that the Transformer encoded; fewer than all where
            blocks are selected.
        payload_characters: that were not read as they are data, see `encoder.payload`.
    """

    tokens: int
    tokens_read: int
    blocks: int
    blocks_left_out: int
    tokens_encoded: int
    payload_characters: int = 0


@dataclass(frozen=True, slots=True)
class SentenceBlocks:
    """The sentence blocks of one document.

    Attributes:
        blocks: token ids of each block, special tokens not included; their words are counted.
        offsets: (start, end) characters, in the original text, of each block to encode.
        receipt: what was read and what was left out.
        selected: positions of the blocks to encode, ascending; None for all.
    """

    blocks: tuple[Sequence[int], ...]
    offsets: tuple[tuple[int, int], ...]
    receipt: Receipt
    selected: tuple[int, ...] | None = None

    @property
    def to_encode(self) -> tuple[Sequence[int], ...]:
        """Token ids of the blocks that the Transformer encodes."""
        if self.selected is None:
            return self.blocks
        return tuple(self.blocks[position] for position in self.selected)


def block_capacity(block_length: int, reserved: int = 2) -> int:
    """Return how many tokens of text one block holds, beside so many special ones."""
    if block_length <= reserved:
        raise ValueError(
            f"block_length must be over the {reserved} special tokens, not {block_length}"
        )
    return block_length - reserved


def plan_sentence_blocks(
    lengths: Sequence[int], *, capacity: int, long_sentence: LongSentence
) -> list[list[Piece]]:
    """Fill blocks greedily with whole sentences: which pieces of which make up each.

    Args:
        lengths: tokens of each sentence.
        capacity: tokens of text that a block holds.
        long_sentence: a sentence longer than a block is "split" over as many blocks as it needs,
            the last of which later sentences may fill up, or is "truncate"d to one block (the
            paper's way).

    Returns:
        The pieces of each block, in reading order.
    """
    if long_sentence not in ("split", "truncate"):
        raise ValueError(f"long_sentence must be 'split' or 'truncate', not {long_sentence!r}")
    blocks: list[list[Piece]] = []
    room = 0
    for sentence, length in enumerate(lengths):
        if long_sentence == "truncate":
            length = min(length, capacity)
        for piece in _pieces(sentence, length, capacity):
            size = piece.stop - piece.start
            if size > room:
                blocks.append([])
                room = capacity
            blocks[-1].append(piece)
            room -= size
    return blocks


def _pieces(sentence: int, length: int, capacity: int) -> Iterator[Piece]:
    for start in range(0, length, capacity):
        yield Piece(sentence, start, min(start + capacity, length))
