"""The words of a store where an engine searches them: only their frequencies are kept here.

A term has the same id everywhere, a hash of 32 bits, the first of which tells pairs of words; where
two of a document have one id, one of them counts. In how many documents a term is, is measured on a
sample of the store and kept in the store, so that all servers weigh alike while the engine uses
that measurement.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from zlib import crc32

import numpy as np

from encoder.arrays import Float32, Int32, Int64, UInt8, UInt32, UInt64
from encoder.terms.segmentation import words_of
from encoder.terms.title_matcher import hash_runs, hash_titles, hashes_by_length
from index.common_text.collection import CommonTexts
from index.errors import StoreError
from index.lexical.scoring import (
    NO_WEIGHTS,
    LexicalQuery,
    TermRows,
    TermWeight,
    cosine,
    inverse_document_frequencies,
    join_rows,
    shared_terms,
    weigh_terms,
)
from index.lexical.stored_texts import StoredTexts, TitledText
from index.lexical.terms import MAX_TITLE_WORDS, QUOTE, hash_words, level_of, title_term
from index.progress import Progress
from index.store.database import Connections

FREQUENCIES_SCHEMA = """
CREATE TABLE term_frequencies (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    documents INTEGER NOT NULL,
    content BLOB NOT NULL,
    checksum INTEGER NOT NULL
)"""
_PAIR = np.uint32(2**31)  # the bit of an id that tells a pair of words
_HASH = np.uint64(2**31 - 1)  # the others
_SLOTS = 1 << 16  # of a table of ids
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

    def of(self, term_ids: UInt32) -> Int32:
        """Return how many documents have each of these terms [U]; 0 for unknown ones."""
        if not len(self.term_ids):
            return np.zeros(len(term_ids), dtype=np.int32)
        rows = np.searchsorted(self.term_ids, term_ids)
        rows = np.minimum(rows, len(self.term_ids) - 1)
        return np.where(self.term_ids[rows] == term_ids, self.having[rows], 0).astype(np.int32)


@dataclass(frozen=True, slots=True)
class CountedTerms:
    """The terms of a text, whatever they weigh.

    Attributes:
        term_ids: UInt32[U], ascending.
        counts: Int32[U].
        levels: UInt8[U], the general level of each.
    """

    term_ids: UInt32
    counts: Int32
    levels: UInt8


NOTHING = Measurement(0, 0, np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int32))


class HashedWords:
    """The words of a store whose engine holds them. Safe to use from many threads.

    What is read of a document is counted in its text, when it is needed.
    """

    def __init__(self, truth: Connections, common: CommonTexts) -> None:
        """Read a store; `DocumentStore.words` does."""
        self._truth = truth
        self._texts = StoredTexts(truth, common, ask=truth.shared)
        self._used = NOTHING
        self._known: dict[int, Measurement] = {}
        # Documents that are soon weighed by the measurement of this number.
        self._counted: tuple[int, Mapping[int, CountedTerms]] = (0, {})

    def measure(self, advanced: Callable[[], None] = lambda: None) -> int:
        """Count the terms of the documents, or of a sample of many; return its number.

        What was counted is kept for `weighed`, until `use`, and so are the titles of all documents.
        While it works it calls `advanced`.
        """
        self._texts.keep_titles(True)
        with self._truth.reading() as store:
            ids = [row[0] for row in store.execute(_VECTOR_IDS)]
        ids = ids[:: max(1, -(-len(ids) // _SAMPLE))]
        counted: dict[int, CountedTerms] = {}
        for start in range(0, len(ids), _DOCUMENTS_A_READ):
            some = self._texts.count(ids[start : start + _DOCUMENTS_A_READ])
            counted |= {vector_id: _counted(counts)[0] for vector_id, counts in some}
            advanced()
        parts = [NOTHING.term_ids, *(terms.term_ids for terms in counted.values())]
        term_ids, having = np.unique(np.concatenate(parts), return_counts=True)
        content = term_ids.astype("<u4").tobytes() + having.astype("<u4").tobytes()
        with self._truth.writing() as store:
            (number,) = store.execute(_INSERT, (len(ids), content, crc32(content))).fetchone()
            store.execute(_FORGET, (number - _KEPT,))
        self._counted = int(number), counted
        return int(number)

    def use(self, number: int) -> bool:
        """Weigh by a measurement from now on; return whether the store has it.

        Raises:
            StoreError: it is damaged.
        """
        if number != self._used.number:
            found = self._find(number)
            if found is None:
                return False
            self._used, self._known, self._counted = found, {number: found}, (0, {})
            self._texts.keep_titles(False)
        return True

    def _find(self, number: int) -> Measurement | None:
        found = self._known.get(number)
        if found is None and (rows := self._truth.read_rows(_MEASUREMENT, number)):
            documents, content, checksum = rows[0]
            if crc32(content) != checksum:
                raise StoreError(f"the frequencies of terms of measurement {number} are damaged")
            term_ids, having = np.frombuffer(content, "<u4").reshape(2, -1)
            found = Measurement(number, documents, term_ids, having.astype(np.int32))
            self._known = {**self._known, number: found}
        return found

    def weighed(self, vector_ids: Int64, number: int) -> TermRows:
        """Return these documents Int64[N] as a measurement weighs them, the one in use or not.

        Raises:
            StoreError: it is damaged, or the store has it no more.
        """
        used = self._find(number)
        if used is None:
            raise StoreError(f"measurement {number} of the frequencies of terms is gone")
        wanted, (of, counted) = vector_ids.tolist(), self._counted
        counted = counted if of == number else {}
        others = [vector_id for vector_id in wanted if vector_id not in counted]
        new = {n: _counted(counts)[0] for n, counts in self._texts.count(others)}
        terms = (counted.get(n) or new.get(n) for n in wanted)
        found = [_query(used, {}) if t is None else _weighed(used, t) for t in terms]
        return rows_of([(terms.term_ids, terms.weights) for terms in found])

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to its terms."""
        return _query(self._used, self._texts.count_text((text, title)))

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document; none if it is not there."""
        return self._read([vector_id])[0]

    def of_document(self, term_ids: UInt32, weights: Float32) -> LexicalQuery:
        """Return the terms [U] of a document, without names, from the weights that an engine holds.

        They are those of `read_stored` if they were weighed by the measurement in use.
        """
        order = np.lexsort((term_ids, -weights))
        term_ids = term_ids[order]
        return LexicalQuery(
            term_ids=term_ids.astype(np.int64),
            weights=weights[order],
            documents=self._used.of(term_ids).astype(np.int64),
            pairs=term_ids >= _PAIR,
            identity=str(self._used.number),
        )

    def compare(self, left: int | TitledText, right: int | TitledText) -> float:
        """Return the score of any two texts, as `LexicalIndex.compare`."""
        first, second = (
            self.read_stored(side) if isinstance(side, int) else self.read(side[0], title=side[1])
            for side in (left, right)
        )
        return cosine(first, second)

    def score(self, query: LexicalQuery, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones."""
        found = self._read(vector_ids.tolist())
        return np.array([cosine(query, terms) for terms in found], dtype=np.float32)

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as they are compared; missing ones have no terms."""
        parts = []
        progress.started("reading words", len(vector_ids))
        for start in range(0, max(len(vector_ids), 1), _DOCUMENTS_A_READ):
            found = self._read(vector_ids[start : start + _DOCUMENTS_A_READ].tolist())
            parts.append(rows_of([(terms.term_ids, terms.weights) for terms in found]))
            progress.advanced(len(found))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score."""
        documents = zip(vector_ids, self._read(vector_ids), strict=True)
        found = {n: (terms.term_ids, terms.weights) for n, terms in documents if len(terms)}
        return explain(query, list(found), rows_of(list(found.values())), limit)

    def _read(self, vector_ids: Sequence[int]) -> list[LexicalQuery]:
        """Return the terms of each of these documents; none of a missing one."""
        counted, used = dict(self._texts.count(vector_ids)), self._used
        return [_query(used, counted.get(vector_id, {})) for vector_id in vector_ids]


def explain(
    query: LexicalQuery,
    vector_ids: Sequence[int],
    documents: TermRows,
    limit: int,
    text: TitledText = ("", ""),
) -> dict[int, tuple[TermWeight, ...]]:
    """Return, for each of these documents [N], the terms that add most to its score.

    Args:
        query: any.
        vector_ids: of the documents.
        documents: their terms.
        limit: how many terms of a document are returned at most.
        text: of the query; where its terms have no names, they are found in it.
    """
    ids = query.term_ids.tolist()
    shared = [
        [(ids[row], share) for row, share in terms]
        for terms in shared_terms(query.term_ids, query.weights, documents, limit)
    ]
    names = dict(zip(ids, query.names, strict=False))
    if not names:
        names = find_names({term_id for terms in shared for term_id, _ in terms}, *text)
    return {
        vector_id: tuple(TermWeight(names[n], share) for n, share in terms if n in names)
        for vector_id, terms in zip(vector_ids, shared, strict=True)
    }


def find_names(wanted: Collection[int], text: str, title: str) -> dict[int, str]:
    """Return the names of those of these term ids that are terms of a text with a title."""
    ids = np.array(sorted(wanted), dtype=np.uint32)
    seen = np.zeros(_SLOTS, dtype=np.bool_)  # most runs of words are not wanted
    seen[ids & np.uint32(_SLOTS - 1)] = True
    words = [*words_of(text), *words_of(title)]
    hashes = hash_words(words)
    names: dict[int, str] = {}

    def find(size: int, runs: UInt32, name: Callable[[list[str]], str]) -> None:
        maybe = np.flatnonzero(seen[runs & np.uint32(_SLOTS - 1)])
        for start in maybe[np.isin(runs[maybe], ids)].tolist():
            names[int(runs[start])] = name(words[start : start + size])

    find(1, _folded(hashes), " ".join)
    find(2, _folded(hash_runs(hashes, 2)) | _PAIR, " ".join)
    if len(names) < len(ids):
        for size, runs in enumerate(hashes_by_length(hashes, MAX_TITLE_WORDS), 1):
            find(size, _folded(runs), title_term)
    return names


def rows_of(documents: Sequence[tuple[Int64 | UInt32, Float32]]) -> TermRows:
    """Return documents of these term ids [U] and weights [U]."""
    ids = [term_ids.astype(np.uint32) for term_ids, _ in documents]
    weights = [NO_WEIGHTS, *(weights for _, weights in documents)]
    ends = np.cumsum([len(weights) for _, weights in documents], dtype=np.int64)
    return TermRows(np.concatenate([NOTHING.term_ids, *ids]), np.concatenate(weights), ends)


def _folded(hashes: UInt64) -> UInt32:
    return (hashes & _HASH).astype(np.uint32)


def _ids_of(terms: Sequence[str]) -> UInt32:
    """Return the ids of words, pairs of words and titles."""
    words = [term.strip(QUOTE).split(" ") for term in terms]
    hashes = hash_words(list(chain.from_iterable(words)))
    ends = np.cumsum([len(some) for some in words], dtype=np.int64)
    starts = np.append(0, ends)[:-1]
    ids = _folded(hashes[starts])
    titles = np.array([term[0] == QUOTE for term in terms], dtype=np.bool_)
    pairs = (ends - starts == 2) & ~titles
    if pairs.any():
        ids[pairs] = _folded(hash_runs(hashes, 2)[starts[pairs]]) | _PAIR
    places = zip(starts[titles].tolist(), ends[titles].tolist(), strict=True)
    ids[titles] = _folded(hash_titles(hashes[start:end] for start, end in places))
    return ids


def _counted(counts: Mapping[str, int]) -> tuple[CountedTerms, list[str]]:
    """Return the terms of a text, and their names; of two that have one id, the first."""
    every = list(counts)
    term_ids, rows = np.unique(_ids_of(every), return_index=True)
    names = [every[row] for row in rows.tolist()]
    levels = np.fromiter(map(level_of, names), np.uint8, len(names))
    held = np.fromiter(counts.values(), np.int32, len(counts))[rows]
    return CountedTerms(term_ids, held, levels), names


def _query(used: Measurement, counts: Mapping[str, int]) -> LexicalQuery:
    return _weighed(used, *_counted(counts))


def _weighed(used: Measurement, terms: CountedTerms, names: Sequence[str] = ()) -> LexicalQuery:
    """Return the terms of a text that weigh something, the highest weights first."""
    documents = used.of(terms.term_ids)
    idf = inverse_document_frequencies(documents, terms.levels, used.documents)
    found = weigh_terms(terms.term_ids.astype(np.int64), terms.counts.astype(np.int64), idf)
    order = np.argsort(-found.weights, kind="stable")
    order = order[found.weights[order] > 0]
    return LexicalQuery(
        term_ids=found.term_ids[order],
        weights=found.weights[order],
        documents=documents[order].astype(np.int64),
        pairs=found.term_ids[order] >= _PAIR,
        identity=str(used.number),
        names=[names[row] for row in order.tolist()] if names else (),
    )
