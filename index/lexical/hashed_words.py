"""The words of a store where an engine searches them: only their frequencies are kept here.

A term has the same id everywhere, a hash of 32 bits; where two of a document have one id, one of
them counts. In how many documents a term is, is measured on a sample of the store and kept in the
store, so that all servers weigh alike while the engine uses that measurement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from encoder.arrays import Float32, Int32, Int64, UInt8, UInt32
from encoder.terms.general_words import PAIR
from index.common_text.collection import CommonTexts
from index.errors import StoreError
from index.lexical.scoring import (
    LexicalQuery,
    TermRows,
    TermWeight,
    WeightedTerms,
    inverse_document_frequencies,
    join_rows,
    shared_terms,
    sums_between,
    weigh_terms,
)
from index.lexical.snapshot import QueryReads
from index.lexical.stored_texts import StoredTexts, TitledText
from index.lexical.tables import MAX_COUNT, JoinedTerms
from index.lexical.terms import hash_words, level_of
from index.progress import Progress, SilentProgress
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
            parts += [_numbered(counts).ids for _, counts in some]
        term_ids, having = np.unique(np.concatenate(parts), return_counts=True)
        content = term_ids.astype("<u4").tobytes() + having.astype("<i4").tobytes()
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
            terms, half = len(content) // 8, len(content) // 2
            term_ids = np.frombuffer(content, "<u4", terms)
            having = np.frombuffer(content, "<i4", terms, half)
            self._used = Measurement(number, documents, term_ids, having)
        return True

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to its terms."""
        return _query(self._used, self._texts.count_text((text, title)))

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document; none if it is not there."""
        return _query(self._used, self._terms_of(vector_id))

    def compare(self, left: int | TitledText, right: int | TitledText) -> float:
        """Return the score of any two texts, as `LexicalIndex.compare`."""
        first, second = (
            _weigh(
                self._used,
                self._terms_of(side) if isinstance(side, int) else self._texts.count_text(side),
            ).terms
            for side in (left, right)
        )
        _, ours, theirs = np.intersect1d(
            first.term_ids, second.term_ids, assume_unique=True, return_indices=True
        )
        return min(float(first.weights[ours] @ second.weights[theirs]), 1.0)

    def score(
        self, query: LexicalQuery, vector_ids: Int64, reads: QueryReads | None = None
    ) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones."""
        rows, order = self.term_rows(vector_ids, SilentProgress()), np.argsort(query.term_ids)
        if not len(query) or not len(rows.term_ids):
            return np.zeros(len(vector_ids), dtype=np.float32)
        ids, weights = query.term_ids[order], query.weights[order]
        at = np.minimum(np.searchsorted(ids, rows.term_ids), len(ids) - 1)
        products = np.where(ids[at] == rows.term_ids, weights[at] * rows.weights, np.float32(0))
        return np.minimum(sums_between(products, rows.ends), 1.0).astype(np.float32)

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as they are compared; missing ones have no terms."""
        parts, used = [], self._used
        progress.started("reading words", len(vector_ids))
        for start in range(0, max(len(vector_ids), 1), _DOCUMENTS_A_READ):
            some = vector_ids[start : start + _DOCUMENTS_A_READ].tolist()
            counted = dict(self._texts.count(some))
            weighed = [_weigh(used, counted.get(vector_id, {})).terms for vector_id in some]
            term_ids, weights = (
                np.concatenate([np.zeros(0), *(getattr(terms, name) for terms in weighed)])
                for name in ("term_ids", "weights")
            )
            kept = weights > 0
            ends = np.cumsum([len(terms.term_ids) for terms in weighed], dtype=np.int64)
            parts.append(
                TermRows(
                    term_ids[kept].astype(np.uint32),
                    weights[kept].astype(np.float32),
                    np.append(0, np.cumsum(kept))[ends],
                )
            )
            progress.advanced(len(some))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score."""
        found = {}
        for vector_id, counts in self._texts.count(vector_ids):
            terms = _numbered(counts)
            ids, held = terms.ids.astype(np.uint32), np.minimum(terms.counts, MAX_COUNT)
            alone = JoinedTerms(
                np.array([vector_id]), ids, held.astype(np.uint16), np.array([len(ids)])
            )
            names = dict(zip(ids.tolist(), terms.names, strict=True))
            (weights,) = shared_terms(query, alone, limit) if len(query) else [[]]
            found[vector_id] = tuple(TermWeight(names[n], weight) for n, weight in weights)
        return found

    def _terms_of(self, vector_id: int) -> Mapping[str, int]:
        return dict(self._texts.count([vector_id])).get(vector_id, {})


@dataclass(frozen=True, slots=True)
class _Numbered:
    """The terms of a text by id: Int64[U], ascending, with their names and counts Int64[U]."""

    ids: Int64
    names: list[str]
    counts: Int64


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The terms of a text with their weights, general levels, and numbers of documents, [U]."""

    terms: WeightedTerms
    levels: UInt8
    documents: Int32


def _numbered(counts: Mapping[str, int]) -> _Numbered:
    ids, rows = np.unique(hash_words(list(counts)) & np.uint64(_LAST), return_index=True)
    names = list(counts)
    held = np.fromiter(counts.values(), np.int64, len(counts))[rows]
    return _Numbered(ids.astype(np.int64), [names[row] for row in rows.tolist()], held)


def _weigh(used: Measurement, counts: Mapping[str, int]) -> _Weighed:
    terms = _numbered(counts)
    levels = np.fromiter(map(level_of, terms.names), np.uint8, len(terms.names))
    documents = used.of(terms.ids)
    idf = inverse_document_frequencies(documents, levels, used.documents)
    return _Weighed(weigh_terms(terms.ids, terms.counts, idf), levels, documents)


def _query(used: Measurement, counts: Mapping[str, int]) -> LexicalQuery:
    """Return the terms of a text that weigh something, the highest weights first."""
    found = _weigh(used, counts)
    order = np.argsort(-found.terms.weights, kind="stable")
    order = order[found.terms.weights[order] > 0]
    return LexicalQuery(
        term_ids=found.terms.term_ids[order],
        weights=found.terms.weights[order],
        idf=found.terms.idf[order],
        documents=found.documents[order].astype(np.int64),
        pairs=found.levels[order] == PAIR,
        identity=str(used.number),
    )
