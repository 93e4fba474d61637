"""Document frequencies of all terms at one moment, by which the norms of documents are computed."""

from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int32, Int64, UInt32
from index.lexical.scoring import inverse_document_frequencies

MAX_DRIFT = 0.05  # share of the documents that may change before norms are computed again
_ALWAYS_RENEWED = 1_000  # documents of which the norms take no time


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Document frequencies as of `changes` of the store.

    A term of only one document weighs nothing here: it is shared with no other, and misspelt words
    would lengthen the vectors of long documents.

    Attributes:
        documents: Int32[T], how many documents have each term, by term id.
        number: how many documents there are.
        changes: of the store.
    """

    documents: Int32
    number: int
    changes: int

    def idf(self, term_ids: UInt32 | Int64) -> Float32:
        """Return the inverse document frequency of each term id [K]; 0 for unknown ones."""
        known = term_ids < len(self.documents)
        documents = np.zeros(len(term_ids), dtype=np.int64)
        documents[known] = self.documents[term_ids[known]]
        idf = inverse_document_frequencies(documents, self.number)
        idf[documents < 2] = 0.0
        return idf

    def serve(self, number: int, changes: int) -> bool:
        """Return whether norms may still be computed by them, in a store of `number` documents."""
        drift = abs(changes - self.changes)
        return drift <= MAX_DRIFT * max(0, number - _ALWAYS_RENEWED)
