"""What the cross-encoder is given of two texts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from encoder.checkpoint import TOKENIZER
from encoder.reranker.checkpoint import PairShape, RerankerCheckpoint, load_reranker_checkpoint
from encoder.reranker.pair_tokenizer import PairTokenizer, PairTokens
from training.data import rerank_pairs
from training.jobs.train_reranker import collate_pairs

HARBOUR = "The quay was built of stone. Bakers knead dough. The stone quay fell into the harbour."
OTHER = "Nobody saw it. A stone quay and a harbour were drawn. Poets walk alone at dusk."


@pytest.fixture(scope="module")
def checkpoint(tiny_reranker: Path) -> RerankerCheckpoint:
    return load_reranker_checkpoint(tiny_reranker)


def reader_of(checkpoint: RerankerCheckpoint, **changes: object) -> PairTokenizer:
    return PairTokenizer(replace(checkpoint, pair=replace(checkpoint.pair, **changes)))


def words_of(checkpoint: RerankerCheckpoint, pair: PairTokens) -> tuple[str, str]:
    tokenizer = Tokenizer.from_file(str(checkpoint.directory / TOKENIZER))
    sides = (pair.input_ids[(pair.token_types == n) & (pair.special == 0)] for n in (0, 1))
    first, second = (tokenizer.decode(side.tolist()) for side in sides)
    return first, second


@pytest.mark.parametrize(
    ("sentences", "lead", "first", "second"),
    [
        (1, 0, "the stone quay fell into the harbour.", "a stone quay and a harbour were drawn."),
        (1, 1, "the quay was built of stone.", "nobody saw it."),
        (
            *(2, 0, "the quay was built of stone. the stone quay fell into the harbour."),
            "nobody saw it. a stone quay and a harbour were drawn.",
        ),
    ],
)
def test_lead_and_shared_sentences_are_read_in_their_order(
    checkpoint: RerankerCheckpoint, sentences: int, lead: int, first: str, second: str
) -> None:
    reader = reader_of(checkpoint, sentences=sentences, lead_sentences=lead)
    pair = reader.pair(reader.read(HARBOUR), reader.read(OTHER))
    assert words_of(checkpoint, pair) == (first, second)


def test_without_the_filter_a_text_is_read_from_its_beginning(
    checkpoint: RerankerCheckpoint,
) -> None:
    length = checkpoint.pair.length
    reader = reader_of(checkpoint, filtered=False, lead_sentences=0, sentence_tokens=length)
    long = reader.read(f"{HARBOUR} {HARBOUR} {HARBOUR}")
    first, second = words_of(checkpoint, reader.pair(long, reader.read("Short.")))
    assert second == "short."
    assert first.startswith("the quay was built of stone. bakers knead dough.")
    assert len(reader.pair(long, long)) == checkpoint.pair.length


@given(st.lists(st.sampled_from([HARBOUR, OTHER, "Yes.", "word " * 40, ""]), max_size=6), st.data())
def test_a_pair_is_whole_and_no_longer_than_allowed(
    checkpoint: RerankerCheckpoint, parts: list[str], data: st.DataObject
) -> None:
    reader = PairTokenizer(checkpoint)
    second = data.draw(st.sampled_from([HARBOUR, "", "[SEP] [CLS]", "word " * 90]))
    pair = reader.pair(reader.read(" ".join(parts)), reader.read(second))
    assert len(pair) <= checkpoint.pair.length
    places = np.flatnonzero(pair.special).tolist()
    assert (places[0], places[-1], len(places)) == (0, len(pair) - 1, 3)
    assert pair.input_ids[places].tolist() == [
        checkpoint.start_token,
        checkpoint.end_token,
        checkpoint.end_token,
    ]
    words = pair.input_ids[pair.special == 0]
    assert checkpoint.end_token not in words  # "[SEP]" in a text is text
    assert pair.token_types.tolist() == sorted(pair.token_types.tolist())


def test_a_short_text_leaves_its_room_to_the_other(checkpoint: RerankerCheckpoint) -> None:
    reader = reader_of(checkpoint, sentences=8, sentence_tokens=48)
    long, short = reader.read(f"{HARBOUR} " * 6), reader.read("Stone quay.")
    for pair in (reader.pair(long, short), reader.pair(short, long)):
        assert len(pair) == checkpoint.pair.length


def test_batches_are_padded(checkpoint: RerankerCheckpoint) -> None:
    reader = PairTokenizer(checkpoint)
    pairs = [reader.pair(reader.read(a), reader.read("Yes.")) for a in ("No.", HARBOUR)]
    ids, _, special = collate_pairs(pairs, checkpoint.padding_token)
    assert (special[0] < 0).sum() == len(pairs[1]) - len(pairs[0])
    assert set(ids[0][special[0] < 0].tolist()) == {checkpoint.padding_token}
    assert (special[1] >= 0).all()


def test_a_table_gives_back_its_pairs(checkpoint: RerankerCheckpoint) -> None:
    first, second = np.arange(200, 209), np.arange(300, 306)
    table = rerank_pairs.LabelledPairDataset([(first, second)], np.ones(1), np.zeros(1))
    start, end = tokens = checkpoint.start_token, checkpoint.end_token
    sides = first.tolist(), second.tolist()
    assert table.pair(0, *tokens).input_ids.tolist() == [start, *sides[0], end, *sides[1], end]
    swapped = table.pair(0, *tokens, swapped=True)
    assert swapped.input_ids.tolist() == [start, *sides[1], end, *sides[0], end]
    cut = table.pair(0, *tokens, most=4)
    assert cut.input_ids.tolist() == [start, *sides[0][:4], end, *sides[1][:4], end]
    assert cut.special.tolist() == [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "wrong", [{"length": 4}, {"sentences": 0}, {"lead_sentences": 9}, {"most_sentences": 0}]
)
def test_a_shape_without_room_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="sentence"):
        PairShape(**({"length": 32, "sentences": 4} | wrong))
