from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.blocks import block_capacity, fill_sentence_blocks

SENTENCES = st.lists(st.lists(st.integers(1, 10**6), max_size=40), max_size=30)
LENGTHS = st.integers(3, 20)


def numbered(*lengths: int) -> list[list[int]]:
    """Sentences of these lengths whose tokens count up, so that order and loss can be seen."""
    sentences, token = [], 0
    for length in lengths:
        sentences.append(list(range(token, token + length)))
        token += length
    return sentences


def fill(sentences: list[list[int]], room: int, **options: object) -> list[list[int]]:
    return fill_sentence_blocks(
        sentences, block_length=room + 2, max_blocks=options.pop("max_blocks", None), **options
    )


def test_whole_sentences_while_they_fit() -> None:
    blocks = fill(numbered(3, 2, 4, 1), room=5)
    assert blocks == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_sentence_that_does_not_fit_opens_the_next_block() -> None:
    assert fill(numbered(3, 3), room=5) == [[0, 1, 2], [3, 4, 5]]


def test_long_sentence_opens_a_block_of_its_own_and_is_split() -> None:
    blocks = fill(numbered(1, 7), room=3)
    assert blocks == [[0], [1, 2, 3], [4, 5, 6], [7]]


def test_last_part_of_a_long_sentence_is_filled_up() -> None:
    blocks = fill(numbered(7, 2, 1), room=3)
    assert blocks == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_truncate_cuts_a_long_sentence_to_one_block() -> None:
    blocks = fill(numbered(1, 7, 1), room=3, long_sentence="truncate")
    assert blocks == [[0], [1, 2, 3], [8]]


def test_empty_sentences_are_skipped() -> None:
    assert fill([[], [1], [], [2], []], room=3) == [[1, 2]]
    assert fill([], room=3) == []
    assert fill([[]], room=3) == []


def test_max_blocks_keeps_the_first() -> None:
    assert fill(numbered(3, 3, 3), room=3, max_blocks=2) == [[0, 1, 2], [3, 4, 5]]


def test_special_tokens_take_their_places() -> None:
    blocks = fill_sentence_blocks(numbered(4, 4), block_length=8, max_blocks=None, special_tokens=0)
    assert blocks == [list(range(8))]


@pytest.mark.parametrize("block_length", [-1, 0, 1, 2])
def test_block_without_room_is_refused(block_length: int) -> None:
    with pytest.raises(ValueError, match="block_length"):
        fill_sentence_blocks([[1]], block_length=block_length, max_blocks=None)


@pytest.mark.parametrize("max_blocks", [0, -1])
def test_no_blocks_at_all_is_refused(max_blocks: int) -> None:
    with pytest.raises(ValueError, match="max_blocks"):
        fill_sentence_blocks([[1]], block_length=8, max_blocks=max_blocks)


def test_unknown_treatment_of_long_sentences_is_refused() -> None:
    with pytest.raises(ValueError, match="long_sentence"):
        fill_sentence_blocks([[1]], block_length=8, max_blocks=None, long_sentence="drop")  # type: ignore[arg-type]


@given(SENTENCES, LENGTHS)
def test_every_token_once_and_in_order(sentences: list[list[int]], length: int) -> None:
    blocks = fill_sentence_blocks(sentences, block_length=length, max_blocks=None)
    assert [t for block in blocks for t in block] == [t for s in sentences for t in s]


@given(SENTENCES, LENGTHS, st.sampled_from(["split", "truncate"]))
def test_no_block_is_empty_or_over_length(
    sentences: list[list[int]], length: int, long_sentence: str
) -> None:
    blocks = fill_sentence_blocks(
        sentences,
        block_length=length,
        max_blocks=None,
        long_sentence=long_sentence,  # type: ignore[arg-type]
    )
    assert all(0 < len(block) <= block_capacity(length) for block in blocks)


@given(SENTENCES, LENGTHS)
def test_filling_is_maximal(sentences: list[list[int]], length: int) -> None:
    """A block ends only where the next sentence, or the next part of one, does not fit."""
    capacity = block_capacity(length)
    numbers = numbered(*(len(sentence) for sentence in sentences))
    blocks = fill_sentence_blocks(numbers, block_length=length, max_blocks=None)
    sentence_at = {sentence[0]: sentence for sentence in numbers if sentence}
    for block, following in pairwise(blocks):
        opening = sentence_at.get(following[0])
        if opening is None:  # the next block continues a split sentence
            assert len(block) == capacity
        elif len(opening) <= capacity:
            assert len(block) + len(opening) > capacity


@given(SENTENCES, LENGTHS, st.integers(1, 10))
def test_max_blocks_is_a_prefix(sentences: list[list[int]], length: int, max_blocks: int) -> None:
    everything = fill_sentence_blocks(sentences, block_length=length, max_blocks=None)
    some = fill_sentence_blocks(sentences, block_length=length, max_blocks=max_blocks)
    assert some == everything[:max_blocks]


@given(SENTENCES, LENGTHS)
def test_truncate_keeps_the_beginning_of_every_sentence(
    sentences: list[list[int]], length: int
) -> None:
    capacity = block_capacity(length)
    blocks = fill_sentence_blocks(
        sentences, block_length=length, max_blocks=None, long_sentence="truncate"
    )
    kept = [t for sentence in sentences for t in sentence[:capacity]]
    assert [t for block in blocks for t in block] == kept
