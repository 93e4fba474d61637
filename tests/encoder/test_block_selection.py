"""Which blocks are selected, and what is encoded and counted of a document then."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from encoder.block_selection import (
    LEAST_BLOCKS,
    WINDOW,
    blocks_to_encode,
    cover,
    open_document_tokenizer,
    open_selector,
    select_blocks,
)
from encoder.checkpoint import Checkpoint, load_checkpoint, with_reading_share
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_channel import HashedTerms
from encoder.terms.term_table import TermVocabulary
from encoder.tokenizer import BlockTokenizer

WORDS = 4_000
TEXT = " ".join(
    f"Sentence {number} tells of {thing}, of its {part} and of what it costs."
    for number in range(40)
    for thing, part in (("ants", "legs"), ("law", "courts"), ("rivers", "banks"))
)


@pytest.fixture
def hashed() -> HashedTerms:
    """Words of one token each, of equal weight, in so many places that they hardly collide."""
    vocabulary = TermVocabulary(np.zeros(WORDS, dtype=np.bool_), 1)
    return HashedTerms(vocabulary, np.ones(WORDS + 1, dtype=np.float32), 4_096)


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return with_reading_share(load_checkpoint(tiny_checkpoint), 0.25)


def of_topics(*topics: int) -> list[Sequence[int]]:
    """Return a block for each topic: ten words of it, and one that is in no other block."""
    return [
        [*range(topic * 10, topic * 10 + 10), 1_000 + place] for place, topic in enumerate(topics)
    ]


def test_every_topic_has_a_selected_block(hashed: HashedTerms) -> None:
    topics = [0] * 20 + [1] * 3 + [2] * 12 + [3] * 2
    features = hashed.features_of_blocks(of_topics(*topics))
    selected = cover(features, 4)
    assert {topics[position] for position in selected.tolist()} == {0, 1, 2, 3}
    assert selected[0] == 0


def test_the_first_block_and_the_order_of_reading_are_kept(hashed: HashedTerms) -> None:
    selected = select_blocks(hashed, 0.3, of_topics(*range(60)))
    assert selected[0] == 0
    assert list(selected) == sorted(set(selected))
    assert len(selected) == 18
    assert selected == select_blocks(hashed, 0.3, of_topics(*range(60)))


def test_short_documents_are_encoded_whole(hashed: HashedTerms) -> None:
    selector = partial(select_blocks, hashed, 0.01)
    assert selector(of_topics(*range(LEAST_BLOCKS))) == tuple(range(LEAST_BLOCKS))
    assert len(selector(of_topics(*range(LEAST_BLOCKS + 1)))) == LEAST_BLOCKS
    silent = HashedTerms(hashed.vocabulary, np.zeros(WORDS + 1, dtype=np.float32), 16)
    assert len(select_blocks(silent, 0.5, of_topics(*range(20)))) == 10  # no word has a weight


def test_each_window_of_a_book_has_its_share(hashed: HashedTerms) -> None:
    blocks = of_topics(*(number % 90 for number in range(3 * WINDOW)))
    counts = np.bincount(np.array(select_blocks(hashed, 0.25, blocks)) // WINDOW)
    assert counts.tolist() == [WINDOW // 4] * 3


@pytest.mark.parametrize(
    ("blocks", "share", "expected"),
    [(100, 0.35, 35), (101, 0.35, 36), (1, 0.35, 1), (20, 0.01, 8), (50, 1.0, 50)],
)
def test_how_many_blocks_are_encoded(blocks: int, share: float, expected: int) -> None:
    assert blocks_to_encode(blocks, share) == expected


def test_features_of_blocks_are_those_of_each_alone() -> None:
    random = np.random.default_rng(3)
    vocabulary = TermVocabulary(np.zeros(WORDS, dtype=np.bool_), 50)
    hashed = HashedTerms(vocabulary, random.random(vocabulary.rows).astype(np.float32), 64)
    blocks = random.integers(0, WORDS, (40, 14)).tolist()
    alone = np.stack([hashed.features([block]) for block in blocks])
    assert np.abs(hashed.features_of_blocks(blocks) - alone).max() < 1e-6


def test_without_a_share_nothing_is_selected(checkpoint: Checkpoint) -> None:
    whole = replace(checkpoint, reading_share=1.0)
    assert open_selector(whole) is None
    read = open_document_tokenizer(whole)(TEXT)
    assert read.selected is None
    assert read.to_encode is read.blocks
    assert read == BlockTokenizer(whole)(TEXT)


def test_offsets_and_receipt_are_of_what_is_encoded(checkpoint: Checkpoint) -> None:
    whole = BlockTokenizer(checkpoint)(TEXT)
    read = open_document_tokenizer(checkpoint)(TEXT)
    assert read.selected is not None
    assert len(read.selected) == blocks_to_encode(len(whole.blocks), 0.25) < len(whole.blocks)
    assert read.blocks == whole.blocks
    assert read.to_encode == tuple(whole.blocks[position] for position in read.selected)
    assert read.offsets == tuple(whole.offsets[position] for position in read.selected)
    encoded = sum(map(len, read.to_encode))
    assert read.receipt == replace(whole.receipt, tokens_encoded=encoded)
    assert encoded < whole.receipt.tokens_encoded == whole.receipt.tokens_read
    # Strict refuses what is cut, not what is not selected.
    longer = open_document_tokenizer(replace(checkpoint, max_blocks=1_000))
    assert longer(TEXT, strict=True).selected is not None


def test_the_selected_blocks_are_encoded_and_all_words_counted(tiny_terms: Path) -> None:
    checkpoint = with_reading_share(load_checkpoint(tiny_terms), 0.25)
    encoder = OnnxEncoder(checkpoint, precision="fp32")
    whole = BlockTokenizer(checkpoint)(TEXT)
    read = open_document_tokenizer(checkpoint)(TEXT)
    assert read.selected is not None
    every, some = encoder.encode([whole]), encoder.encode([read])
    chosen = every.block_vectors[0][list(read.selected)]
    assert np.array_equal(some.block_vectors[0], chosen)
    expected = encoder.combine(chosen, encoder.term_features(whole.blocks))
    assert np.array_equal(some.document_vectors[0], expected)
    assert not np.array_equal(some.document_vectors[0], every.document_vectors[0])
