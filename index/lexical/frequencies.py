"""How many documents have each term: now, and at the moment by which norms are computed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int32, Int64, UInt8, UInt32
from encoder.terms.general_words import UNLISTED
from index.lexical.tables import JoinedTerms
from index.lexical.terms import level_of

MAX_DRIFT = 0.05  # share of the documents that may change before norms are computed again
_ALWAYS_RENEWED = 1_000  # documents of which the norms take no time


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Document frequencies as of `changes` of the words.

    Attributes:
        documents: Int32[T], how many documents have each term, by term id.
        number: how many documents there are.
        changes: of the words.
    """

    documents: Int32
    number: int
    changes: int

    def of(self, term_ids: UInt32 | Int64) -> Int32:
        """Return how many documents have each term id [K]; 0 for later ones."""
        if not len(self.documents):
            return np.zeros(len(term_ids), dtype=np.int32)
        documents: Int32 = self.documents.take(term_ids, mode="clip")
        documents[term_ids >= len(self.documents)] = 0
        return documents

    def serve(self, number: int, changes: int) -> bool:
        """Return whether norms may still be computed by them, for `number` documents."""
        drift = abs(changes - self.changes)
        return drift <= MAX_DRIFT * max(0, number - _ALWAYS_RENEWED)


class TermCounts:
    """Arrays by term id that grow with the terms; changed by one thread, read by many.

    A term keeps its id, so readers of an older state see the frequencies of a newer one at
    worst.

    Attributes:
        frequencies: Int32[T], how many documents have each term, by term id.
        levels: UInt8[T], the general level of each term (`encoder.terms.general_words`); right up
            to the id `last`.
        last: the highest term id that is known.
    """

    def __init__(self, frequencies: Int32, levels: UInt8, last: int) -> None:
        """Take writable arrays of the same length."""
        self.frequencies = frequencies
        self.levels = levels
        self.last = last

    def copy(self) -> "TermCounts":
        """Return a copy that does not follow changes."""
        size = self.last + 1
        return TermCounts(self.frequencies[:size].copy(), self.levels[:size].copy(), self.last)

    def learn(self, new: Mapping[str, int]) -> None:
        """Take the ids of all terms after the last known one."""
        last = max(new.values(), default=self.last)
        if last >= len(self.levels):
            size = last + 1 + last // 8  # more than needed, as most changes bring new terms
            missing_levels = np.full(size - len(self.levels), UNLISTED, dtype=np.uint8)
            self.levels = np.append(self.levels, missing_levels)
            missing = np.zeros(size - len(self.frequencies), dtype=np.int32)
            self.frequencies = np.append(self.frequencies, missing)
        term_ids = np.fromiter(new.values(), np.int64, len(new))
        self.levels[term_ids] = np.fromiter(map(level_of, new), np.uint8, len(new))
        self.last = last

    def count(self, documents: JoinedTerms, by: int) -> None:
        """Count the terms of documents, all of them known: 1 for added, -1 for removed ones."""
        np.add.at(self.frequencies, documents.term_ids, np.int32(by))


def no_terms() -> TermCounts:
    """Return the counts of an empty collection."""
    return TermCounts(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8), -1)
