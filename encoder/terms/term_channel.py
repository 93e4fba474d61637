"""The term channel of a checkpoint at serving time: its term table, and hashed terms.

Feature hashing puts all words of a document in few dimensions (Weinberger et al., 2009). A term
table knows the words that were in the training documents. Which words distinguish the documents of
another field it cannot know; feature hashing does not need to. The hash of a word is its place and
its sign, so that the cosine of two feature vectors is the TF-IDF cosine of the two documents, up to
an error of about 1 / sqrt(dimension).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64, UInt64, read_arrays, unit
from encoder.checkpoint import HASHED_TERMS, TERMS, Checkpoint, read_verified
from encoder.errors import CheckpointError
from encoder.terms.term_table import (
    TermTable,
    TermVocabulary,
    count_words,
    read_term_table,
    read_term_vocabulary,
    rows_of_words,
)
from encoder.tokenizer import open_tokenizer

# So many that two words of a document hardly ever share one.
BUCKETS = 2**18
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64


@dataclass(frozen=True)
class HashedTerms:
    """Sums the words of a document, each by its weight, at the places of their hashes.

    Attributes:
        vocabulary: of `BUCKETS` buckets, whose words are counted whole (`count_words`).
        weights: Float32[R], the inverse document frequency of each of its rows.
        dimension: of the features.
    """

    vocabulary: TermVocabulary
    weights: Float32
    dimension: int

    def features(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Return the features [dimension] of the sentence blocks of a document.

        They have unit norm, or are zero where no word has a weight.
        """
        terms = count_words(self.vocabulary, blocks)
        values = np.log1p(terms.counts) * self._signed_weights[terms.rows]
        sums = np.bincount(self._places[terms.rows], values, minlength=self.dimension)
        return (sums / max(float(np.linalg.norm(sums)), 1e-9)).astype(np.float32)

    def features_of_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Return the features [S, dimension] of each of S sentence blocks by itself.

        Rows have unit norm, or are zero where no word has a weight.
        """
        rows, owners = rows_of_words(self.vocabulary, blocks)
        found, counts = np.unique(owners * len(self.weights) + rows, return_counts=True)
        owners, rows = found // len(self.weights), found % len(self.weights)
        values = np.log1p(counts) * self._signed_weights[rows]
        places = owners * self.dimension + self._places[rows]
        sums = np.bincount(places, values, minlength=len(blocks) * self.dimension)
        return unit(sums.reshape(len(blocks), self.dimension).astype(np.float32))

    @cached_property
    def _places(self) -> Int64:
        hashes = _hash_rows(len(self.weights)) >> np.uint64(1)
        places: Int64 = (hashes % np.uint64(self.dimension)).astype(np.int64)
        return places

    @cached_property
    def _signed_weights(self) -> Float32:
        odd = _hash_rows(len(self.weights)) & np.uint64(1)
        return np.where(odd, -self.weights, self.weights).astype(np.float32)


_NOTHING: Float32 = np.empty(0, dtype=np.float32)
_NO_TERMS = TermVocabulary(np.empty(0, dtype=np.bool_), 0)
_NO_TABLE = TermTable(_NOTHING, np.empty((0, 0), dtype=np.int8), _NOTHING)
NO_HASHED_TERMS = HashedTerms(_NO_TERMS, _NOTHING, 0)


def write_hashed_terms(path: Path, terms: HashedTerms) -> None:
    """Write the weights of hashed terms, in half precision, as an .npz file."""
    with path.open("wb") as file:
        np.savez(file, weights=terms.weights.astype(np.float16))


def read_hashed_terms(
    data: bytes, where: str, vocabulary: TermVocabulary, dimension: int
) -> HashedTerms:
    """Read what `write_hashed_terms` wrote."""
    try:
        weights = read_arrays(data)["weights"].astype(np.float32)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{where}: is not a file of hashed terms: {error}") from error
    if weights.shape != (vocabulary.rows,):
        raise CheckpointError(
            f"{where}: has weights of {weights.shape}, where the vocabulary has {vocabulary.rows}"
        )
    return HashedTerms(vocabulary, weights, dimension)


def _hash_rows(rows: int) -> UInt64:
    """Return a hash UInt64[rows] of each row number, the same on every machine (splitmix64)."""
    hashes = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * multiplier
    hashed: UInt64 = hashes ^ (hashes >> np.uint64(31))
    return hashed


@dataclass(frozen=True, slots=True)
class TermChannel:
    """Counts the terms of a document and sums their vectors; empty for a model without one.

    Attributes:
        vocabulary: of the terms of the table.
        table: weights and vectors of terms.
        hashed: hashed words in addition to the table; of dimension 0 where there are none.
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
    """Read the term table of a checkpoint."""
    width = int(checkpoint.model.get("term_features", 0))
    hashed = open_hashed_terms(checkpoint)
    if width == 0:
        return TermChannel(_NO_TERMS, _NO_TABLE, hashed)
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


def open_hashed_terms(checkpoint: Checkpoint) -> HashedTerms:
    """Read the hashed terms of a checkpoint; of dimension 0 where it has none."""
    dimension = int(checkpoint.model.get("sketch_dimension", 0))
    if dimension == 0:
        return NO_HASHED_TERMS
    data = read_verified(checkpoint.directory, checkpoint.files, HASHED_TERMS)
    where = str(checkpoint.directory / HASHED_TERMS)
    return read_hashed_terms(data, where, hashed_vocabulary(checkpoint), dimension)
