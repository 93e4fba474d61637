"""The term channel of a checkpoint, as serving opens it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.checkpoint import TERMS, Checkpoint, read_verified
from encoder.errors import CheckpointError
from encoder.terms import Float32, TermTable, TermVocabulary, read_term_table, read_term_vocabulary
from encoder.tokenizer import open_tokenizer


@dataclass(frozen=True, slots=True)
class TermChannel:
    """Counts the terms of a document and sums their vectors; empty where a model has none."""

    vocabulary: TermVocabulary
    table: TermTable

    def features(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Return the term features [F] of the sentence blocks of a document."""
        if self.table.width == 0:
            return np.empty(0, dtype=np.float32)
        return self.table.features(self.vocabulary.count(blocks))


def open_term_channel(checkpoint: Checkpoint) -> TermChannel:
    """Read the term table of a checkpoint.

    Raises:
        CheckpointError: it is missing, changed, or does not fit the configuration.
    """
    width = int(checkpoint.model.get("term_features", 0))
    buckets = int(checkpoint.model.get("term_buckets", 0))
    vocabulary = read_term_vocabulary(open_tokenizer(checkpoint), buckets)
    if width == 0:
        return TermChannel(vocabulary, _empty_table())
    where = str(checkpoint.directory / TERMS)
    table = read_term_table(read_verified(checkpoint.directory, checkpoint.files, TERMS), where)
    if (len(table.weights), table.width) != (vocabulary.rows, width):
        raise CheckpointError(
            f"{where}: {len(table.weights)} rows of {table.width}, where the configuration has "
            f"{vocabulary.rows} of {width}"
        )
    return TermChannel(vocabulary, table)


def _empty_table() -> TermTable:
    none = np.empty(0, dtype=np.float32)
    return TermTable(none, np.empty((0, 0), dtype=np.int8), none)
