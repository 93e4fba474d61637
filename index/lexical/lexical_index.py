"""The lexical index: which documents share the distinctive words of a long text.

Searches read the segments of `index.lexical.segmented_index` in two steps: the top terms of the
query fetch candidates, by the sum of the weights of the terms that they share; then the candidates
are scored exactly, by the cosine over all terms.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.terms.general_words import PAIR
from index.common_text.collection import CommonTexts
from index.errors import LexicalIndexNotReadyError
from index.id_set import IdSet
from index.lexical.scoring import (
    LexicalQuery,
    TermRows,
    TermWeight,
    WeightedTerms,
    cosine,
    inverse_document_frequencies,
    join_rows,
    shared_terms,
    weigh_rows,
    weigh_terms,
)
from index.lexical.segment import QueryReads
from index.lexical.segmented_index import SegmentedIndex
from index.lexical.snapshot import LexicalSnapshot
from index.lexical.stored_texts import TitledText
from index.lexical.terms import level_of
from index.progress import Progress
from index.store.database import Connections

CANDIDATES = 200  # scored exactly; on validation 300 found no more than 100 did, within 0.003
_ROWS_A_CALL = 500

# The list comes first: as the operand of IN, it would be copied into a temporary index. One row:
# a thread waits for the interpreter after each.
_TERM_IDS = """
SELECT json_group_array(wanted.key), json_group_array(term_id), (SELECT identity FROM words)
FROM json_each(?) AS wanted CROSS JOIN terms ON term = wanted.value"""
_TERMS = """
SELECT json_group_array(term_id), json_group_array(term), (SELECT identity FROM words)
FROM terms WHERE term_id IN (SELECT value FROM json_each(?))"""
_NAMES_KEPT = 50_000  # some megabytes; then those not in use are forgotten


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """Documents with their lexical scores Float32[N] under their vector ids Int64[N]."""

    vector_ids: Int64
    scores: Float32


class LexicalIndex(SegmentedIndex):
    """The lexical index of an open store; safe for threads."""

    def __init__(
        self, truth: Connections, store: Path, common: CommonTexts, *, read_only: bool
    ) -> None:
        """Follow the store at a path; `DocumentStore.lexical` does."""
        super().__init__(truth, store, common, read_only=read_only)
        self._names: tuple[str, dict[int, str]] = "", {}  # of the terms of a file

    def read(self, text: str, *, title: str = "") -> LexicalQuery:
        """Reduce a text to the terms that stored documents have.

        Args:
            text: any text; without such a term the query finds nothing.
            title: of the text, if it has one.
        """
        snapshot = self.snapshot()
        return _query(snapshot, _weigh(snapshot, *self._find_terms(snapshot, (text, title)), {}))

    def read_stored(self, vector_id: int) -> LexicalQuery:
        """Return the terms of a stored document; none if it is not there."""
        snapshot = self.snapshot()
        return _query(snapshot, _weigh_stored(snapshot, vector_id))

    def compare(self, left: int | TitledText, right: int | TitledText) -> float:
        """Return the score of any two texts, from 0 to 1, as if one of them was stored.

        Args:
            left: the vector id of a stored document, or a text with its title.
            right: the same. A document that is not there has no terms, and scores 0.
        """
        snapshot, unknown = self.snapshot(), dict[str, int]()
        first, second = (
            _weigh_stored(snapshot, side)
            if isinstance(side, int)
            else _weigh(snapshot, *self._find_terms(snapshot, side), unknown)
            for side in (left, right)
        )
        return cosine(first, second)

    def _find_terms(
        self, snapshot: LexicalSnapshot, text: TitledText
    ) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the counts of the terms of a text, and the ids of those that are stored."""
        counts = self._texts.count_text(text)
        terms = sorted(counts)  # the order of the index on the terms
        wanted, found = self._read_terms(snapshot.identity, _TERM_IDS, json.dumps(terms))
        rows = map(terms.__getitem__, json.loads(wanted))
        return counts, dict(zip(rows, json.loads(found), strict=True))

    def _names_of(self, identity: str, wanted: Set[int]) -> Mapping[int, str]:
        """Return the words of these ids, and maybe of others; unused ids may be absent."""
        of, known = self._names
        if of != identity:
            known = {}
        missing = sorted(term_id for term_id in wanted if term_id not in known)
        if missing:
            # One row: a thread waits for the interpreter after each.
            ids, words = self._read_terms(identity, _TERMS, json.dumps(missing))
            if len(known) + len(missing) > _NAMES_KEPT:
                known = {term_id: known[term_id] for term_id in wanted if term_id in known}
            known.update(zip(json.loads(ids), json.loads(words), strict=True))
            self._names = identity, known
        return known

    def _read_terms(self, identity: str, statement: str, value: str) -> tuple[str, str]:
        """Read two lists of terms from the file of an identity.

        Raises:
            LexicalIndexNotReadyError: it was made again since.
        """
        ((first, second, found),) = self._connections().read_rows(statement, value)
        if found != identity:
            raise LexicalIndexNotReadyError
        return first, second

    def candidates(self, reads: QueryReads, k: int, among: IdSet | None) -> Int64:
        """Return k or more documents that share the top terms of a query, Int64[N], ascending.

        Fewer if fewer share one.
        """
        return np.sort(self._present(reads.query).best(reads, max(k, CANDIDATES), among))

    def search(
        self, query: LexicalQuery, k: int, *, among: IdSet | None = None, least: int = 0
    ) -> LexicalMatches:
        """Find the k documents of the highest score, best first; fewer if fewer share a term.

        Where the top terms find fewer than `least` of `among`, all of these are read.
        """
        snapshot, reads = self._present(query), QueryReads(query)
        candidates = snapshot.best(reads, max(k, CANDIDATES), among)
        if among is not None and len(query) and len(candidates) < least:
            present = snapshot.present_ids()
            candidates = present[among.contains(present)]
        scores = snapshot.scores(reads, candidates)
        order = np.lexsort((candidates, -scores))[:k]
        order = order[scores[order] > 0]
        return LexicalMatches(candidates[order], scores[order])

    def score(self, query: LexicalQuery | QueryReads, vector_ids: Int64) -> Float32:
        """Return the score of each of these documents Int64[N]; 0 for missing ones."""
        reads = query if isinstance(query, QueryReads) else QueryReads(query)
        return self._present(reads.query).scores(reads, vector_ids)

    def term_rows(self, vector_ids: Int64, progress: Progress) -> TermRows:
        """Return these documents Int64[N] as `score` compares them when one is the query.

        Missing ones have no terms.
        """
        parts = []
        progress.started("reading words", len(vector_ids))
        snapshot = self.snapshot()
        idf = snapshot.idf(np.arange(snapshot.terms.last + 1))
        for start in range(0, max(len(vector_ids), 1), _ROWS_A_CALL):
            some = vector_ids[start : start + _ROWS_A_CALL].tolist()
            parts.append(weigh_rows([snapshot.terms_of(vector_id) for vector_id in some], idf))
            progress.advanced(len(some))
        return join_rows(parts)

    def explain(
        self, query: LexicalQuery, vector_ids: Sequence[int], limit: int = 8
    ) -> dict[int, tuple[TermWeight, ...]]:
        """Return, for each of these documents that exists, the terms that add most to its score."""
        positions, documents = self._present(query).documents(np.array(vector_ids, dtype=np.int64))
        roots = np.sqrt(documents.counts, dtype=np.float32)
        rows = TermRows(documents.term_ids, roots, documents.ends)
        shared = list(shared_terms(query.term_ids, query.weights * query.idf, rows, limit))
        ids = query.term_ids.tolist()
        words = self._names_of(query.identity, {ids[row] for terms in shared for row, _ in terms})
        return {
            vector_ids[position]: tuple(
                TermWeight(words[ids[row]], share) for row, share in terms if ids[row] in words
            )
            for position, terms in zip(positions.tolist(), shared, strict=True)
        }

    def _present(self, query: LexicalQuery) -> LexicalSnapshot:
        """Return the present snapshot.

        Raises:
            LexicalIndexNotReadyError: the words were counted again since the query was read.
        """
        snapshot = self.snapshot()
        if snapshot.identity != query.identity:
            raise LexicalIndexNotReadyError
        return snapshot


def _weigh(
    snapshot: LexicalSnapshot,
    counts: Mapping[str, int],
    ids: Mapping[str, int],
    unknown: dict[str, int],
) -> WeightedTerms:
    """Weigh the terms of a text.

    Args:
        snapshot: by whose frequencies.
        counts: of the terms.
        ids: of those that are stored, maybe later than the snapshot.
        unknown: ids above all of the snapshot, for the other terms; new ones are added.
    """
    last = snapshot.terms.last
    term_ids = np.fromiter((ids.get(term, -1) for term in counts), np.int64, len(counts))
    known = (term_ids >= 0) & (term_ids <= last)
    others = [term for term, is_known in zip(counts, known.tolist(), strict=True) if not is_known]
    levels = np.empty(len(counts), dtype=np.uint8)
    levels[known] = snapshot.terms.levels[term_ids[known]]
    levels[~known] = [level_of(term) for term in others]
    documents = np.where(known, snapshot.frequencies.of(term_ids), 0)
    idf = inverse_document_frequencies(documents, levels, snapshot.frequencies.number)
    term_ids[~known] = [last + 1 + unknown.setdefault(term, len(unknown)) for term in others]
    return weigh_terms(term_ids, np.fromiter(counts.values(), np.int64, len(counts)), idf)


def _weigh_stored(snapshot: LexicalSnapshot, vector_id: int) -> WeightedTerms:
    term_ids, counts = snapshot.terms_of(vector_id)
    return weigh_terms(term_ids.astype(np.int64), counts.astype(np.int64), snapshot.idf(term_ids))


def _query(snapshot: LexicalSnapshot, terms: WeightedTerms) -> LexicalQuery:
    """Return the terms of a text that documents have, the highest weights first."""
    known = np.flatnonzero((terms.weights > 0) & (terms.term_ids <= snapshot.terms.last))
    known = known[snapshot.terms.frequencies[terms.term_ids[known]] > 0]
    order = known[np.argsort(-terms.weights[known], kind="stable")]
    term_ids = terms.term_ids[order]
    return LexicalQuery(
        term_ids=term_ids,
        weights=terms.weights[order],
        idf=terms.idf[order],
        documents=snapshot.terms.frequencies[term_ids].astype(np.int64),
        pairs=snapshot.terms.levels[term_ids] == PAIR,
        identity=snapshot.identity,
    )
