"""The blocks that the sections of documents begin with, where documents have headings."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from encoder.checkpoint import Checkpoint
from encoder.sections import find_sections
from encoder.tokenizer import BlockTokenizer
from index.corpus import read_corpus
from index.document import Document
from index.leaks import TRAIN
from index.observer import Observer
from index.training_data import TrainingCorpus
from index.vector_index import Int64


def find_section_starts(
    corpus: TrainingCorpus, checkpoint: Checkpoint, observer: Observer
) -> dict[int, Int64]:
    """Read the texts of the training part, which the block archive does not have.

    Args:
        corpus: encoded with the tokenizer of the checkpoint.
        checkpoint: whose tokenizer it is.
        observer: hears of it.

    Returns:
        For each row of a document with headings, the blocks that its sections begin with,
        ascending: each the first block in which no text of the section before is.

    Raises:
        CorpusError: the corpus cannot be read.
    """
    observer.started(f"sections of {corpus.files.corpus.name}", None)
    row_of = {corpus.encoded.ids[row]: row for row in corpus.rows(TRAIN).tolist()}
    tokenizer = BlockTokenizer(checkpoint)
    starts = {}
    for document in read_corpus(corpus.files.corpus):
        if not isinstance(document, Document) or document.id not in row_of:
            continue
        sections = find_sections(document.text, 1)
        if len(sections) > 1:
            offsets = tokenizer(document.text).offsets
            characters = [section.span.start for section in sections[1:]]
            starts[row_of[document.id]] = blocks_at(offsets, characters)
    return starts


def blocks_at(offsets: Sequence[tuple[int, int]], characters: Sequence[int]) -> Int64:
    """Return the first block that begins at or after each character, none twice.

    Args:
        offsets: (start, end) characters of each block.
        characters: that sections begin with.
    """
    begins = [start for start, _ in offsets]
    return np.unique(np.array([bisect_left(begins, c) for c in characters], dtype=np.int64))
