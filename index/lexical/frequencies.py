"""Document frequencies of all terms in memory, and the norms of documents that follow from them."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from encoder.arrays import Float32, Float64, Int32, Int64, UInt32
from index.lexical.scoring import inverse_document_frequencies, squared_norms
from index.lexical.tables import JoinedTerms
from index.lexical.view import View

MAX_DRIFT = 0.01  # share of the documents that may change before all of them are read again


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Document frequencies as of `changes` of the store.

    A term of only one document weighs nothing here: it is shared with no other, and misspelt words
    would lengthen the vectors of long documents.

    Attributes:
        documents: Int32[T], how many documents have each term, by term id.
        number: how many documents there are.
        changes: of the store.
        squares: squared norms of documents, by vector id, as they are met.
    """

    documents: Int32
    number: int
    changes: int
    squares: dict[int, float] = field(default_factory=dict)

    def idf(self, term_ids: UInt32 | Int64) -> Float32:
        """Return the inverse document frequency of each term id [K]; 0 for unknown ones."""
        known = term_ids < len(self.documents)
        documents = np.zeros(len(term_ids), dtype=np.int64)
        documents[known] = self.documents[term_ids[known]]
        idf = inverse_document_frequencies(documents, self.number)
        idf[documents < 2] = 0.0
        return idf


class FrequencyCache:
    """The frequencies of a store, read again when enough documents changed.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frequencies = Frequencies(np.zeros(0, dtype=np.int32), 0, -1)
        self._replacements = 0

    @property
    def replacements(self) -> int:
        """How often `forget_norms` was called."""
        return self._replacements

    def current(self, view: View) -> Frequencies:
        """Return the frequencies of all terms, taken again when too many documents changed."""
        with self._lock:
            drift = abs(view.changes - self._frequencies.changes)
            if self._frequencies.changes < 0 or drift > MAX_DRIFT * view.number:
                documents = view.terms.frequencies.copy()
                self._frequencies = Frequencies(documents, view.number, view.changes)
            return self._frequencies

    def forget_norms(self, vector_ids: Iterable[int]) -> None:
        """Forget the norms of documents whose terms were replaced, after that was committed."""
        with self._lock:
            self._replacements += 1
            for vector_id in vector_ids:
                self._frequencies.squares.pop(vector_id, None)

    def squared_norms(
        self, documents: JoinedTerms, frequencies: Frequencies, replacements: int
    ) -> Float64:
        """Return the squared norms Float64[N] of documents, computed where they are not known.

        Args:
            documents: the terms of N documents.
            frequencies: of `current`.
            replacements: before the terms were read; where some were replaced since, what is
                computed is not kept.
        """
        ids = documents.vector_ids.tolist()
        found = [frequencies.squares.get(one, -1.0) for one in ids]
        missing = [row for row, square in enumerate(found) if square < 0]
        if missing:
            computed = list(squared_norms(documents, missing, frequencies.idf))
            with self._lock:
                if self._replacements == replacements:
                    frequencies.squares.update(
                        zip((ids[row] for row in missing), computed, strict=True)
                    )
            for row, square in zip(missing, computed, strict=True):
                found[row] = square
        return np.array(found, dtype=np.float64)
