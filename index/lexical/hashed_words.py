"""The words of a store where an engine searches them: only their frequencies are kept here.

A term has the same id everywhere, a hash of 32 bits; where two of a document have one id, one of
them counts. In how many documents a term is, is measured on a sample of the store and kept in the
store, so that all servers weigh alike while the engine uses that measurement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from encoder.arrays import Float32, Float64, Int32, Int64, UInt32
from encoder.terms.general_words import PAIR
from index.common_text.collection import CommonTexts
from index.errors import StoreError
from index.lexical.scoring import (
    LexicalQuery,
    TermRows,
    TermWeight,
    inverse_document_frequencies,
    join_rows,
    weigh_terms,
)
from index.lexical.stored_texts import StoredTexts, TitledText
from index.lexical.terms import hash_words, level_of
from index.progress import Progress
from index.store.database import Connections

FREQUENCIES_SCHEMA = """
CREATE TABLE term_frequencies (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    documents INTEGER NOT NULL,
    content BLOB NOT NULL,
    checksum INTEGER NOT NULL
)"""
_LAST = 2**32 - 1  # the last id
_SAMPLE = 10_000  # documents that are counted
_DOCUMENTS_A_READ = 256
_KEPT = 3  # measurements: of the present generation, and of those that are being made
_VECTOR_IDS = """
SELECT vector_id FROM documents ORDER BY vector_id"""
_MEASUREMENT = """
SELECT documents, content, checksum FROM term_frequencies WHERE number = ?"""
_INSERT = """
INSERT INTO term_frequencies (documents, content, checksum) VALUES (?, ?, ?) RETURNING number"""
_FORGET = """
DELETE FROM term_frequencies WHERE number <= ?"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """In how many documents of a sample each term is.

    Attributes:
        number: in the store; 0 for none.
        documents: size of the sample.
        term_ids: UInt32[T], ascending.
        having: Int32[T], how many documents have each.
    """

    number: int
    documents: int
    term_ids: UInt32
    having: Int32

    def of(self, term_ids: Int64) -> Int32:
        """Return how many documents have each of these terms [U]; 0 for unknown ones."""
        if not len(self.term_ids):
            return np.zeros(len(term_ids), dtype=np.int32)
        rows = np.searchsorted(self.term_ids, term_ids.astype(np.uint32))
        rows = np.minimum(rows, len(self.term_ids) - 1)
        return np.where(self.term_ids[rows] == term_ids, self.having[rows], 0).astype(np.int32)


_NO_WEIGHTS = np.zeros(0, dtype=np.float32)
NOTHING = Measurement(0, 0, np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int32))


class HashedWords:
    """The words of a store whose engine holds them. Safe to use from many threads.

    What is read of a document is counted in its text, when it is needed.
    """

    def __init__(self, truth: Connections, common: CommonTexts) -> None:
        """Read a store; `DocumentStore.words` does."""
        self._truth = truth
        self._texts = StoredTexts(truth, common)
        self._used = NOTHING

    def measure(self) -> int:
        """Count the terms of the documents, or of a sample of many; return its number."""
        self._texts.forget()
        with self._truth.reading() as store:
            ids = [row[0] for row in store.execute(_VECTOR_IDS)]
        ids = ids[:: max(1, -(-len(ids) // _SAMPLE))]
        parts: list[Int64] = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(ids), _DOCUMENTS_A_READ):
            some = self._texts.count(ids[start : start + _DOCUMENTS_A_READ])
            parts += [np.unique(_ids_of(counts)) for _, counts in some]
        term_ids, having = np.unique(np.concatenate(parts), return_counts=True)
        content = term_ids.astype("<u4").tobytes() + having.astype("<u4").tobytes()
        with self._truth.writing() as store:
            (number,) = store.execute(_INSERT, (len(ids), content, crc32(content))).fetchone()
            store.execute(_FORGET, (number - _KEPT,))
        return int(number)

    def use(self, number: int) -> bool:
        """Weigh by a measurement from now on; return whether the store has it.

        Raises:
            StoreError: it is damaged.
        """
        if number != self._used.number:
            rows = self._truth.read_rows(_MEASUREMENT, number)
            if not rows:
                return False
            documents, content, checksum = rows[0]
            if crc32(content) != checksum:
                raise StoreError(f"the frequencies of terms of measurement {number} are damaged")
            term_ids, having = np.frombuffer(content, "<u4").reshape(2, -1)
            self._used = Measurement(number, documents, term_ids, having.astype(np.int32))
        return True

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to its terms."""
        return _query(self._used, self._texts.count_text((text, title)))

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document; none if it is not there."""
        return self._read([vector_id])[0]

    def compare(self, left: int | TitledText, right: int | TitledText) -> float:
        """Return the score of any two texts, as `LexicalIndex.compare`."""
        first, second = (
            self.read_stored(side) if isinstance(side, int) else self.read(side[0], title=side[1])
            for side in (left, right)
        )
        return min(float(_products(first, second)[1].sum()), 1.0)

    def score(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones."""
        found = self._read(vector_ids.tolist())
        scores = np.array([_products(query, terms)[1].sum() for terms in found], np.float32)
        return np.minimum(scores, np.float32(1.0))

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as they are compared; missing ones have no terms."""
        parts = []
        progress.started("reading words", len(vector_ids))
        for start in range(0, max(len(vector_ids), 1), _DOCUMENTS_A_READ):
            found = self._read(vector_ids[start : start + _DOCUMENTS_A_READ].tolist())
            ids = [terms.term_ids.astype(np.uint32) for terms in found]
            weights = np.concatenate([_NO_WEIGHTS, *(terms.weights for terms in found)])
            ends = np.cumsum([len(terms) for terms in found], dtype=np.int64)
            parts.append(TermRows(np.concatenate([NOTHING.term_ids, *ids]), weights, ends))
            progress.advanced(len(found))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score."""
        found = {}
        for vector_id, counts in self._texts.count(vector_ids):
            names = dict(zip(_ids_of(counts).tolist(), counts, strict=True))
            term_ids, parts = _products(query, _query(self._used, counts))
            best = np.argsort(-parts, kind="stable")[:limit]
            shares = zip(term_ids[best].tolist(), (parts[best] / parts.sum()).tolist(), strict=True)
            found[vector_id] = tuple(TermWeight(names[n], share) for n, share in shares)
        return found

    def _read(self, vector_ids: Sequence[int]) -> list[LexicalQuery]:
        """Return the terms of each of these documents; none of a missing one."""
        counted, used = dict(self._texts.count(vector_ids)), self._used
        return [_query(used, counted.get(vector_id, {})) for vector_id in vector_ids]


def _products(first: LexicalQuery, second: LexicalQuery) -> tuple[Int64, Float64]:
    """Return the terms that two texts share, by falling weight in the first, and their products."""
    _, ours, theirs = np.intersect1d(
        first.term_ids, second.term_ids, assume_unique=True, return_indices=True
    )
    order = np.argsort(ours)
    ours, theirs = ours[order], theirs[order]
    return first.term_ids[ours], first.weights[ours].astype(np.float64) * second.weights[theirs]


def _ids_of(terms: Iterable[str]) -> Int64:
    return (hash_words(list(terms)) & np.uint64(_LAST)).astype(np.int64)


def _query(used: Measurement, counts: Mapping[str, int]) -> LexicalQuery:
    """Return the terms of a text that weigh something, the highest weights first."""
    term_ids, rows = np.unique(_ids_of(counts), return_index=True)
    names = list(counts)
    levels = np.fromiter((level_of(names[row]) for row in rows.tolist()), np.uint8, len(rows))
    held = np.fromiter(counts.values(), np.int64, len(counts))[rows]
    documents = used.of(term_ids)
    idf = inverse_document_frequencies(documents, levels, used.documents)
    terms = weigh_terms(term_ids, held, idf)
    order = np.argsort(-terms.weights, kind="stable")
    order = order[terms.weights[order] > 0]
    return LexicalQuery(
        term_ids=term_ids[order],
        weights=terms.weights[order],
        idf=terms.idf[order],
        documents=documents[order].astype(np.int64),
        pairs=levels[order] == PAIR,
        identity=str(used.number),
    )
