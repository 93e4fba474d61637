"""The term channel of a checkpoint at serving time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32
from encoder.checkpoint import HASHED_TERMS, TERMS, Checkpoint, read_verified
from encoder.errors import CheckpointError
from encoder.terms.feature_hashing import BUCKETS, HashedTerms, read_hashed_terms
from encoder.terms.term_table import (
    TermTable,
    TermVocabulary,
    read_term_table,
    read_term_vocabulary,
)
from encoder.tokenizer import open_tokenizer


@dataclass(frozen=True, slots=True)
class TermChannel:
    """Counts the terms of a document and sums their vectors; empty for a model without one.

    Attributes:
        vocabulary: of the terms of the table.
        table: weights and vectors of terms.
        hashed: hashed words beside the table; of dimension 0 where there are none.
    """

    vocabulary: TermVocabulary
    table: TermTable
    hashed: HashedTerms

    @property
    def width(self) -> int:
        """Width of the features."""
        return self.table.width + self.hashed.dimension

    def features(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Return the term features [width] of the sentence blocks of a document."""
        if self.table.width == 0:
            return np.empty(0, dtype=np.float32)
        features = self.table.features(self.vocabulary.count(blocks))
        if self.hashed.dimension == 0:
            return features
        return np.concatenate([features, self.hashed.features(blocks)])


def open_term_channel(checkpoint: Checkpoint) -> TermChannel:
    """Read the term table of a checkpoint.

    Raises:
        CheckpointError: it or the hashed terms are missing, changed, or do not fit the
            configuration.
    """
    width = int(checkpoint.model.get("term_features", 0))
    hashed = open_hashed_terms(checkpoint)
    if width == 0:
        return TermChannel(_no_terms(), _empty_table(), hashed)
    buckets = int(checkpoint.model.get("term_buckets", 0))
    vocabulary = read_term_vocabulary(open_tokenizer(checkpoint), buckets)
    where = str(checkpoint.directory / TERMS)
    table = read_term_table(read_verified(checkpoint.directory, checkpoint.files, TERMS), where)
    if (len(table.weights), table.width) != (vocabulary.rows, width):
        raise CheckpointError(
            f"{where}: {len(table.weights)} rows of {table.width}, where the configuration has "
            f"{vocabulary.rows} of {width}"
        )
    return TermChannel(vocabulary, table, hashed)


def hashed_vocabulary(checkpoint: Checkpoint) -> TermVocabulary:
    """Return the vocabulary that the hashed terms of a checkpoint are counted by."""
    return read_term_vocabulary(open_tokenizer(checkpoint), BUCKETS)


def no_hashed_terms() -> HashedTerms:
    """Return the hashed terms of a model that has none."""
    return HashedTerms(_no_terms(), np.empty(0, dtype=np.float32), 0)


def open_hashed_terms(checkpoint: Checkpoint) -> HashedTerms:
    """Read the hashed terms of a checkpoint; of dimension 0 where it has none.

    Raises:
        CheckpointError: they are missing, changed or do not fit the configuration.
    """
    dimension = int(checkpoint.model.get("sketch_dimension", 0))
    if dimension == 0:
        return no_hashed_terms()
    data = read_verified(checkpoint.directory, checkpoint.files, HASHED_TERMS)
    where = str(checkpoint.directory / HASHED_TERMS)
    return read_hashed_terms(data, where, hashed_vocabulary(checkpoint), dimension)


def _no_terms() -> TermVocabulary:
    return TermVocabulary(np.empty(0, dtype=np.bool_), 0)


def _empty_table() -> TermTable:
    none = np.empty(0, dtype=np.float32)
    return TermTable(none, np.empty((0, 0), dtype=np.int8), none)
