import dataclasses
import random
import shutil
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.blocks import LongSentence, block_capacity, plan_sentence_blocks
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint, write_manifest
from encoder.errors import CheckpointError, EmptyTextError, TruncatedTextError
from encoder.tokenizer import BlockTokenizer

TEXT = "The first sentence is here. Then comes one that is longer, by far! Is this the end?"
TOO_LONG = ("word " * 14 + "\n\n") * 70  # 70 blocks of 14 tokens


@pytest.fixture(scope="module")
def shipped() -> Checkpoint:
    return load_checkpoint(DEFAULT_CHECKPOINT)


@pytest.fixture(scope="module")
def tokenizer(shipped: Checkpoint) -> BlockTokenizer:
    return BlockTokenizer(shipped)


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny_weights: Checkpoint) -> BlockTokenizer:
    """Blocks of 14 tokens, 64 of them."""
    return BlockTokenizer(tiny_weights)


def test_offsets_are_the_text_of_each_block(tiny_tokenizer: BlockTokenizer) -> None:
    text = f"😀 Ünïcödé 漢字. {TEXT}"  # they count characters, not bytes
    assert [text[start:end] for start, end in tiny_tokenizer(text).offsets] == [
        "😀 Ünïcödé 漢字. The first sentence is here.",
        "Then comes one that is longer, by far!",
        "Is this the end?",
    ]


def test_a_long_sentence_is_split_with_its_offsets(tiny_tokenizer: BlockTokenizer) -> None:
    text = " ".join(["word"] * 30) + "."
    blocks = tiny_tokenizer(text)
    assert [len(block) for block in blocks.blocks] == [14, 14, 3]
    assert "".join(text[a:b].replace(" ", "") for a, b in blocks.offsets) == "word" * 30 + "."


def test_receipt_counts_what_is_left_out(tiny_tokenizer: BlockTokenizer) -> None:
    receipt = tiny_tokenizer(TOO_LONG).receipt
    assert (receipt.tokens, receipt.tokens_read) == (14 * 70, 14 * 64)
    assert (receipt.blocks, receipt.blocks_left_out) == (64, 6)
    assert tiny_tokenizer(TEXT, strict=True).receipt.blocks_left_out == 0
    with pytest.raises(TruncatedTextError) as caught:
        tiny_tokenizer(TOO_LONG, strict=True)
    assert (caught.value.tokens, caught.value.limit) == (14 * 70, 14 * 64)


@pytest.mark.parametrize("long_sentence", ["split", "truncate"])
def test_what_is_only_counted_is_never_read(
    tiny_weights: Checkpoint, long_sentence: LongSentence
) -> None:
    """Sentences of every length around the end of what is read."""
    few = dataclasses.replace(tiny_weights, max_blocks=3, long_sentence=long_sentence)
    all_of_it = dataclasses.replace(tiny_weights, long_sentence=long_sentence)
    read_few, read_all = BlockTokenizer(few), BlockTokenizer(all_of_it)
    rng = random.Random(3)
    for _ in range(50):
        text = "\n\n".join("word " * rng.randrange(1, 60) for _ in range(12))
        short, whole = read_few(text), read_all(text)
        assert short.blocks == whole.blocks[:3]
        assert short.offsets == whole.offsets[:3]
        assert short.receipt.tokens == whole.receipt.tokens
        assert short.receipt.blocks_left_out == len(whole.blocks) - 3


@pytest.mark.parametrize("text", ["", "  \n\t ", "\x00", "\u200b\x00\x1f"])
def test_a_text_without_a_token_is_refused(tokenizer: BlockTokenizer, text: str) -> None:
    with pytest.raises(EmptyTextError):
        tokenizer(text)


def test_special_tokens_in_a_text_are_text(tokenizer: BlockTokenizer, shipped: Checkpoint) -> None:
    tokens = tokenizer("A [SEP] in [CLS] the [PAD] text [MASK].").blocks[0]
    assert not {shipped.start_token, shipped.end_token, shipped.padding_token} & set(tokens)


def assert_in_order(tokenizer: BlockTokenizer, text: str) -> None:
    blocks = tokenizer(text)
    assert len(blocks.offsets) == len(blocks.blocks) == blocks.receipt.blocks
    assert sum(map(len, blocks.blocks)) == blocks.receipt.tokens_read
    position = 0
    for start, end in blocks.offsets:
        assert position <= start < end <= len(text)
        position = end
    if not blocks.receipt.blocks_left_out:
        assert blocks.receipt.tokens == blocks.receipt.tokens_read


@pytest.mark.parametrize(
    "text", ["x" * 300_000, "漢" * 60_000, "word " * 60_000, "a\ud800b \udfff", "a\x00b"]
)
def test_hostile_texts_are_read_in_order(tokenizer: BlockTokenizer, text: str) -> None:
    assert_in_order(tokenizer, text)


@given(st.text(st.characters(), max_size=400))
def test_any_text_is_empty_or_read_in_order(tokenizer: BlockTokenizer, text: str) -> None:
    with suppress(EmptyTextError):
        assert_in_order(tokenizer, text)


def test_a_broken_tokenizer_is_named(tiny_weights: Checkpoint, tmp_path: Path) -> None:
    copy = tmp_path / "broken"
    shutil.copytree(tiny_weights.directory, copy)
    (copy / "tokenizer.json").write_text("{}")
    write_manifest(copy)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        BlockTokenizer(load_checkpoint(copy))


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


def test_a_long_sentence_opens_a_block() -> None:
    assert fill([1, 7], 3) == [[0], [1, 2, 3], [4, 5, 6], [7]]


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
