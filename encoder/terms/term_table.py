"""The term channel: which words a document uses, as one vector in addition to its block vectors.

A sentence encoder captures the meaning of a passage but loses its names and numbers, which counts
of words preserve. A term is a WordPiece, or a word of several; a term table gives each a weight and
a vector, so that the sum over a document represents its counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from encoder.arrays import Bool, Float32, Int8, Int64, UInt64, read_arrays
from encoder.errors import CheckpointError

_PRIME = np.uint64(0x100000001B3)  # of FNV
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio in 64 bits


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one document.

    Attributes:
        rows: Int64[U] rows of a term table, ascending.
        counts: Float32[U] how often each occurs.
    """

    rows: Int64
    counts: Float32


@dataclass(frozen=True, slots=True)
class TermVocabulary:
    """The row of each term: WordPieces first, then buckets of hashed words.

    Attributes:
        continues: Bool[V], whether a WordPiece continues a word ("##ing").
        buckets: rows shared by all words of several WordPieces.
    """

    continues: Bool
    buckets: int

    @property
    def rows(self) -> int:
        """Rows of a table over this vocabulary."""
        return len(self.continues) + self.buckets

    def count(self, blocks: Sequence[Sequence[int]]) -> Terms:
        """Count the terms of a document of these sentence blocks, special tokens not included."""
        tokens = np.concatenate([np.asarray(block, dtype=np.int64) for block in blocks])
        found = tokens
        if self.buckets:
            words = self.rows_of(hash_joined_pieces(tokens, self.continues))
            found = np.concatenate([tokens, words])
        rows, counts = np.unique(found, return_counts=True)
        return Terms(rows, counts.astype(np.float32))

    def rows_of(self, hashes: UInt64) -> Int64:
        """Return the rows of hashed words, or titles; there must be buckets."""
        rows: Int64 = (hashes % np.uint64(self.buckets)).astype(np.int64) + len(self.continues)
        return rows


@dataclass(frozen=True)
class TermTable:
    """A weight and a vector for each term; together the first layer of the term channel.

    Attributes:
        weights: Float32[R], the inverse document frequency of each term, or what was learned.
        vectors: Int8[R, width], each row in units of its scale.
        scales: Float32[R].
    """

    weights: Float32
    vectors: Int8
    scales: Float32

    @property
    def width(self) -> int:
        """Width of the features."""
        return int(self.vectors.shape[1])

    @cached_property
    def _row_factors(self) -> Float32:
        return self.weights * self.scales

    def features(self, terms: Terms) -> Float32:
        """Return the features [width] of a document: its weighted log counts times the vectors.

        The log counts are normalised to unit norm, like a TF-IDF vector, so that the length of
        a document does not matter.
        """
        logs = np.log1p(terms.counts)
        norm = float(np.linalg.norm(logs * self.weights[terms.rows]))
        if norm == 0.0:  # only terms without weight
            return np.zeros(self.width, dtype=np.float32)
        factors = logs * self._row_factors[terms.rows] / np.float32(norm)
        return (factors @ self.vectors[terms.rows].astype(np.float32)).astype(np.float32)


def hash_joined_pieces(tokens: Int64, continues: Bool) -> UInt64:
    """Hash each occurrence of a word of several WordPieces: token ids Int64[T] -> UInt64[W].

    Equal WordPieces have equal hashes; `continues` is that of `TermVocabulary`.
    """
    starts = np.flatnonzero(~continues[tokens] | (np.arange(len(tokens)) == 0))
    lengths = np.diff(starts, append=len(tokens))
    places = np.arange(len(tokens)) - np.repeat(starts, lengths)
    powers = _PRIME ** np.arange(places.max(initial=0) + 1, dtype=np.uint64)
    sums = np.add.reduceat((tokens.astype(np.uint64) + np.uint64(1)) * powers[places], starts)
    mixed = (sums ^ (sums >> np.uint64(29))) * _MULTIPLIER
    hashes: UInt64 = mixed ^ (mixed >> np.uint64(32))
    return hashes[lengths > 1]


def count_words(vocabulary: TermVocabulary, blocks: Sequence[Sequence[int]]) -> Terms:
    """Count the words of a document; unlike `TermVocabulary.count`, without their pieces.

    The vocabulary has a bucket at least.
    """
    rows, counts = np.unique(rows_of_words(vocabulary, blocks)[0], return_counts=True)
    return Terms(rows, counts.astype(np.float32))


def rows_of_words(
    vocabulary: TermVocabulary, blocks: Sequence[Sequence[int]]
) -> tuple[Int64, Int64]:
    """Return the row of each occurrence of a word, and the sentence block that it begins in.

    Both are Int64[W], in reading order; the vocabulary has a bucket at least.
    """
    tokens = np.concatenate([np.asarray(block, dtype=np.int64) for block in blocks])
    ends = np.cumsum([len(block) for block in blocks])
    starts = np.flatnonzero(~vocabulary.continues[tokens] | (np.arange(len(tokens)) == 0))
    rows = tokens[starts]
    rows[np.diff(starts, append=len(tokens)) > 1] = vocabulary.rows_of(
        hash_joined_pieces(tokens, vocabulary.continues)
    )
    owners: Int64 = np.searchsorted(ends, starts, side="right").astype(np.int64)
    return rows, owners


def read_term_vocabulary(tokenizer: Tokenizer, buckets: int) -> TermVocabulary:
    """Return the vocabulary of terms over a WordPiece tokenizer."""
    continues = np.zeros(tokenizer.get_vocab_size(), dtype=np.bool_)
    for piece, token in tokenizer.get_vocab().items():
        continues[token] = piece.startswith("##")
    return TermVocabulary(continues, buckets)


def quantise_term_table(weights: Float32, vectors: Float32) -> TermTable:
    """Round the vectors Float32[R, width] of a table to int8, row by row."""
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    scales[scales == 0] = 1
    rounded = np.rint(vectors / scales[:, None]).astype(np.int8)
    return TermTable(weights.astype(np.float32), rounded, scales.astype(np.float32))


def write_term_table(path: Path, table: TermTable) -> None:
    """Write a table as an .npz file."""
    with path.open("wb") as file:
        np.savez(file, weights=table.weights, vectors=table.vectors, scales=table.scales)


def read_term_table(data: bytes, where: str) -> TermTable:
    """Read what `write_term_table` wrote."""
    try:
        arrays = read_arrays(data)
        table = TermTable(arrays["weights"], arrays["vectors"], arrays["scales"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{where}: not a term table: {error}") from error
    rows = (len(table.weights),)
    if table.vectors.ndim != 2 or table.vectors.dtype != np.int8:
        raise CheckpointError(f"{where}: the vectors of the term table are not int8 in rows")
    if table.vectors.shape[:1] != rows or table.scales.shape != rows:
        raise CheckpointError(f"{where}: weights, vectors and scales differ in their rows")
    return table
