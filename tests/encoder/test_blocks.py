from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.blocks import LongSentence, block_capacity, plan_sentence_blocks

LENGTHS = st.lists(st.integers(0, 40), max_size=30)
ROOM = st.integers(1, 18)


def fill(lengths: list[int], room: int, long_sentence: LongSentence = "split") -> list[list[int]]:
    """Fill blocks with tokens that count up over all sentences."""
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    plan = plan_sentence_blocks(lengths, capacity=room, long_sentence=long_sentence)
    return [
        [
            starts[piece.sentence] + token
            for piece in block
            for token in range(piece.start, piece.stop)
        ]
        for block in plan
    ]


@pytest.mark.parametrize(
    ("lengths", "room", "blocks"),
    [
        ([3, 2, 4, 1], 5, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
        ([1, 7], 3, [[0], [1, 2, 3], [4, 5, 6], [7]]),  # a long sentence opens a block
        ([7, 2, 1], 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]),  # its last part is filled up
        ([0, 1, 0, 1, 0], 3, [[0, 1]]),
    ],
)
def test_blocks_are_filled_with_sentences(
    lengths: list[int], room: int, blocks: list[list[int]]
) -> None:
    assert fill(lengths, room) == blocks


def test_what_cannot_be_planned_is_refused() -> None:
    assert block_capacity(3) == 1
    with pytest.raises(ValueError, match="block_length must be over the 2 special tokens, not 2"):
        block_capacity(2)
    with pytest.raises(ValueError, match="long_sentence"):
        fill([1], 3, "drop")  # type: ignore[arg-type]


@given(LENGTHS, ROOM)
def test_truncate_keeps_the_beginning_of_every_sentence(lengths: list[int], room: int) -> None:
    blocks = fill(lengths, room, "truncate")
    kept, start = [], 0
    for length in lengths:
        kept += range(start, start + min(length, room))
        start += length
    assert [token for block in blocks for token in block] == kept
    assert all(0 < len(block) <= room for block in blocks)


@given(LENGTHS, ROOM)
def test_every_token_once_in_blocks_as_full_as_can_be(lengths: list[int], room: int) -> None:
    """A block ends only where the next sentence, or the next part of one, does not fit."""
    blocks = fill(lengths, room)
    assert [token for block in blocks for token in block] == list(range(sum(lengths)))
    opening = {sum(lengths[:number]): length for number, length in enumerate(lengths) if length}
    assert all(0 < len(block) <= room for block in blocks)
    for block, following in pairwise(blocks):
        length = opening.get(following[0])
        if length is None:  # the next block continues a split sentence
            assert len(block) == room
        elif length <= room:
            assert len(block) + length > room
