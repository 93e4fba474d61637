"""Sections of texts as blocks: from headings where there are some, none else."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from encoder.checkpoint import load_checkpoint
from encoder.tokenizer import BlockTokenizer
from evaluation.encoded_corpus import EncodedCorpus
from index.progress import SilentProgress
from training.data.corpus import read_training_data
from training.data.files import find_corpus_files
from training.data.sampling import blocks_at, find_section_starts

SECTION = "The river runs on and on. " * 6
HEADED = f"# Rivers\n\n{SECTION}\n\n# Stones\n\n{SECTION}\n\n# Letters\n\n{SECTION}\n"


def test_a_section_begins_with_the_first_block_of_its_own() -> None:
    offsets = [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert blocks_at(offsets, [10, 25, 26]).tolist() == [1, 3]
    assert blocks_at(offsets, [35]).tolist() == [4]  # no block of its own


def test_headings_are_found_and_plain_texts_left_to_equal_parts(
    encode_texts: Callable[..., EncodedCorpus], tmp_path: Path, tiny_checkpoint: Path
) -> None:
    texts = {"headed": HEADED, "plain": SECTION * 3, "held out": HEADED + "More."}
    encoded = encode_texts(texts, "corpus")
    folder = tmp_path / "corpus"
    (folder / "splits.tsv").write_text("headed\ttrain\nplain\ttrain\nheld out\tvalid\n")
    (data,) = read_training_data([(find_corpus_files(folder), encoded)])
    checkpoint = load_checkpoint(tiny_checkpoint)
    starts = find_section_starts(data, checkpoint, SilentProgress())
    row = encoded.ids.index("headed")
    assert list(starts) == [row]
    offsets = BlockTokenizer(checkpoint)(HEADED).offsets
    for start, title in zip(starts[row], ("# Stones", "# Letters"), strict=True):
        assert offsets[start - 1][0] < HEADED.index(title) <= offsets[start][0]
    assert json.dumps(starts[row].tolist())  # plain numbers
    assert np.all(np.diff(starts[row]) > 0)
