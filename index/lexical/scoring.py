"""Arithmetic of the lexical index: weights of terms, cosines of documents. NumPy only.

The score of two documents is the cosine of their vectors over all their terms, where a term weighs

    sqrt(count) * idf,    idf = max(0, log(((N + K) / 2) / (documents that have the term + prior)))

of N documents, and 0.6 of that for a pair of words, whose words carry most of it already. The
prior is what K documents of general text would add: K times the share of them that have the word,
and at least half a document, as of a word that is not listed, of a pair and of a title. So a term
that no document has weighs, too, and a small collection has sensible weights. What half of the
documents have weighs nothing.

The formula was chosen on the queries of eight corpora that no weight was trained on
(docs/results/unseen.md), among logarithmic counts, the settings of BM25, and other shares of pairs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat

import numpy as np

from encoder.arrays import Bool, Float32, Float64, Int32, Int64, UInt8, UInt32
from encoder.terms.general_words import PAIR, shares
from index.lexical.tables import MAX_COUNT, NO_TERMS, DocumentTerms, JoinedTerms
from index.lexical.terms import count_terms_and_titles, known_titles, level_of
from index.progress import Progress

GENERAL_DOCUMENTS = 100  # K
PAIR_WEIGHT = 0.6  # of its idf
_LEAST_PRIOR = 0.5
_PRIORS = np.maximum(GENERAL_DOCUMENTS * shares(), _LEAST_PRIOR)  # by level
_LEAST_NORM = 1e-12
NO_WEIGHTS: Float32 = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class TermRows:
    """N documents as vectors over terms, of unit norm; one without terms is all zero.

    Attributes:
        term_ids: UInt32[M], those of the first document, then those of the second, and so on.
        weights: Float32[M].
        ends: Int64[N], where those of each document end.
    """

    term_ids: UInt32
    weights: Float32
    ends: Int64

    def __len__(self) -> int:
        return len(self.ends)


def weigh_rows(documents: Sequence[DocumentTerms], idf: Float32) -> TermRows:
    """Weigh the terms of documents by sqrt(count) * idf, Float32[T] by term id, to unit norm.

    A term that weighs nothing is left out.
    """
    lengths = np.array([len(term_ids) for term_ids, _ in documents], dtype=np.int64)
    term_ids = np.concatenate([NO_TERMS[0], *(terms for terms, _ in documents)])
    counts = np.concatenate([NO_TERMS[1], *(terms for _, terms in documents)]).astype(np.float32)
    weights = np.sqrt(counts) * idf.take(term_ids)
    norms = np.sqrt(sums_between(np.square(weights), np.cumsum(lengths)))
    weights /= np.repeat(np.maximum(norms, 1e-12), lengths)
    kept = weights > 0
    ends = np.append(0, np.cumsum(kept))[np.cumsum(lengths)]
    return TermRows(term_ids[kept], weights[kept].astype(np.float32), ends)


def join_rows(parts: Sequence[TermRows]) -> TermRows:
    """Concatenate at least one part, in order."""
    before = np.cumsum([0, *(len(part.term_ids) for part in parts)])
    return TermRows(
        np.concatenate([part.term_ids for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.ends + start for part, start in zip(parts, before, strict=False)]),
    )


def rows_of_texts(
    texts: Iterable[str], titles: Sequence[str] = (), documents: int | None = None
) -> TermRows:
    """Weigh the terms of texts as a store that held the documents, and nothing else, would.

    Args:
        texts: of the documents, then of queries that are none.
        titles: of all of them; without titles only words and pairs are weighed.
        documents: how many of the texts are documents; all when not given.
    """
    term_id_of: dict[str, int] = {}
    counted: list[DocumentTerms] = []
    known = known_titles(titles[:documents])
    for text, title in zip(texts, chain(titles, repeat("")), strict=False):
        terms = count_terms_and_titles(text, known, title)
        term_ids = [term_id_of.setdefault(term, len(term_id_of)) for term in terms]
        counts = np.minimum(list(terms.values()), MAX_COUNT)
        counted.append((np.array(term_ids, dtype=np.uint32), counts.astype(np.uint16)))
    stored = [term_ids for term_ids, _ in counted[:documents]]
    having = np.bincount(np.concatenate([NO_TERMS[0], *stored]), minlength=len(term_id_of))
    levels = np.fromiter(map(level_of, term_id_of), np.uint8, len(term_id_of))
    return weigh_rows(counted, inverse_document_frequencies(having, levels, len(stored)))


def term_cosines(rows: TermRows, pairs: Int64, progress: Progress) -> Float32:
    """Return the cosine Float32[P] of the terms of each pair of rows Int64[P, 2], from 0 to 1.

    The progress advances by P pairs.
    """
    starts = np.append(0, rows.ends[:-1])
    query_weights = np.zeros(int(rows.term_ids.max(initial=0)) + 1, dtype=np.float32)
    found = np.zeros(len(pairs), dtype=np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    firsts, begins = np.unique(pairs[order, 0], return_index=True)
    for first, some in zip(firsts.tolist(), np.split(order, begins[1:]), strict=True):
        span = slice(starts[first], rows.ends[first])
        query_weights[rows.term_ids[span]] = rows.weights[span]
        found[some] = _dots(rows, starts, pairs[some, 1], query_weights)
        query_weights[rows.term_ids[span]] = 0.0
        progress.advanced(len(some))
    return np.minimum(found, np.float32(1.0))


def _dots(rows: TermRows, starts: Int64, chosen: Int64, query_weights: Float32) -> Float32:
    slices = [slice(*ends) for ends in zip(starts[chosen], rows.ends[chosen], strict=True)]
    term_ids = np.concatenate([rows.term_ids[part] for part in slices])
    weights = np.concatenate([rows.weights[part] for part in slices])
    lengths = rows.ends[chosen] - starts[chosen]
    dots: Float32 = sums_between(query_weights[term_ids] * weights, np.cumsum(lengths)).astype(
        np.float32
    )
    return dots


# Words and titles, and as many pairs of words. On three corpora 32 found 0.98 and more of the first
# ten of an exact search, 64 found 0.998 and more, 256 no more than that.
QUERY_TERMS = 64
POSTINGS_BUDGET = 60_000
_SLOTS = 1 << 16  # of a table of terms: as many as a UInt16 has values


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A text reduced to the terms that stored documents have, the highest weights first.

    Attributes:
        term_ids: Int64[U].
        weights: Float32[U], sqrt(count) * idf, falling; of unit norm together with those of the
            terms that no document has.
        documents: Int64[U], how many documents have each.
        pairs: Bool[U], which of them are pairs of words.
        idf: Float32[U], where a file of words is searched.
        identity: of the file of the words that gives these ids.
        names: U terms, where no file leads from their ids to them, and they were counted in a text.
    """

    term_ids: Int64
    weights: Float32
    documents: Int64
    pairs: Bool
    idf: Float32 = field(default_factory=lambda: NO_WEIGHTS)
    identity: str = ""
    names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.term_ids)


@dataclass(frozen=True, slots=True)
class TermWeight:
    """A term that two documents share, and its share of their score."""

    term: str
    weight: float


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The terms of a text, by which a collection compares it with others.

    Attributes:
        term_ids: Int64[U], ascending; terms that no document has follow those that one has.
        idf: Float32[U].
        weights: Float32[U], sqrt(count) * idf, of unit norm; all 0 where no term weighs anything.
    """

    term_ids: Int64
    idf: Float32
    weights: Float32


def weigh_terms(term_ids: Int64, counts: Int64, idf: Float32) -> WeightedTerms:
    """Weigh the terms of a text, all Int64[U] or Float32[U], in any order."""
    order = np.argsort(term_ids)
    idf = idf[order]
    weights = np.sqrt(np.minimum(counts[order], MAX_COUNT)) * idf
    weights /= max(float(np.linalg.norm(weights)), _LEAST_NORM)
    return WeightedTerms(term_ids[order], idf, weights.astype(np.float32))


def cosine(first: WeightedTerms | LexicalQuery, second: WeightedTerms | LexicalQuery) -> float:
    """Return the score of two texts, from 0 to 1."""
    _, ours, theirs = np.intersect1d(
        first.term_ids, second.term_ids, assume_unique=True, return_indices=True
    )
    return min(float(first.weights[ours] @ second.weights[theirs]), 1.0)


def inverse_document_frequencies(documents: Int32 | Int64, levels: UInt8, number: int) -> Float32:
    """Return the idf [U] of terms.

    Args:
        documents: [U], how many documents have each.
        levels: [U], the general level of each.
        number: how many documents there are.
    """
    half = (number + GENERAL_DOCUMENTS) / 2
    idf = np.maximum(np.log(half / (documents + _PRIORS.take(levels))), 0.0)
    return np.where(levels == PAIR, PAIR_WEIGHT * idf, idf).astype(np.float32)


def candidate_terms(query: LexicalQuery) -> list[int]:
    """Choose the terms that fetch candidates: those of the highest weights within a bounded read.

    Returns:
        Positions in the query: at most `QUERY_TERMS` pairs of words and `QUERY_TERMS` others, with
        `POSTINGS_BUDGET` postings together; the first term in any case.
    """
    # The one document of a term is found without it, as all terms of few documents are read.
    shared = np.flatnonzero(query.documents > 1)
    first = [shared[query.pairs[shared] == pair][:QUERY_TERMS] for pair in (True, False)]
    highest = np.sort(np.concatenate(first))
    if query.documents[highest].sum() <= POSTINGS_BUDGET:
        return list(map(int, highest))
    chosen: list[int] = []
    free = {True: QUERY_TERMS, False: QUERY_TERMS}
    left = POSTINGS_BUDGET
    columns = (shared, query.documents[shared], query.pairs[shared])
    for position, documents, pair in zip(*(column.tolist() for column in columns), strict=True):
        if free[pair] and (documents <= left or not chosen):
            chosen.append(position)
            free[pair] -= 1
            left -= documents
        if not any(free.values()):
            break
    return chosen


def squared_norms(documents: JoinedTerms, idf: Callable[[UInt32], Float32]) -> Float64:
    """Return the squared norm of each document as a vector over terms, Float64[N]."""
    # It squares the weight of a term, so it takes the count without the root.
    weights = np.square(idf(documents.term_ids)) * documents.counts.astype(np.float32)
    return sums_between(weights, documents.ends)


def _shared(wanted: Int64, term_ids: UInt32) -> tuple[Int64, Int64]:
    """Return where the term ids [M] are among the wanted ones [U], and which of these they are.

    Both Int64[K]. Most term ids are not among them, which their lowest bits show, in a table that
    fits the cache of a processor; the others are searched for.
    """
    order = np.argsort(wanted)
    ascending = wanted.take(order).astype(np.uint32)
    used = np.zeros(_SLOTS, dtype=np.bool_)
    used[ascending.astype(np.uint16)] = True
    maybe = np.flatnonzero(used.take(term_ids.astype(np.uint16)))
    some = term_ids.take(maybe)
    rows = np.minimum(np.searchsorted(ascending, some), len(wanted) - 1)
    same = ascending.take(rows) == some
    return maybe[same], order.take(rows[same])


def shared_terms(
    term_ids: Int64, weights: Float32, documents: TermRows, limit: int
) -> Iterator[list[tuple[int, float]]]:
    """Yield, for each document, the terms that add most to its score, as shares of the whole.

    The shares of all shared terms of a document, not only of the returned ones, sum to 1. Of terms
    that add as much, those that come first in the query come first.

    Args:
        term_ids: Int64[U], of the query.
        weights: Float32[U], of these terms.
        documents: with weights whose products with those of the query are what terms add, or are
            in proportion to it.
        limit: how many terms of a document are returned at most.

    Yields:
        Positions in the query, and shares.
    """
    shared, positions = _shared(term_ids, documents.term_ids)
    parts = (weights.take(positions) * documents.weights.take(shared)).astype(np.float64)
    ends = np.searchsorted(shared, documents.ends)
    document = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    order = np.lexsort((positions, -parts, document))
    shares = parts / np.bincount(document, parts, len(ends)).take(document)
    for begin, end in pairwise([0, *ends.tolist()]):
        best = order[begin : min(end, begin + limit)]
        yield list(zip(positions[best].tolist(), shares[best].tolist(), strict=True))


def sums_between(values: Float32, ends: Int64) -> Float64:
    """Sum the values between ends Int64[N], the last of which is the end of the values."""
    starts = np.append(0, ends)[:-1]
    sums = np.zeros(len(ends), dtype=np.float64)
    filled = starts < ends
    if filled.any():  # `reduceat` takes no empty part
        sums[filled] = np.add.reduceat(values, starts[filled], dtype=np.float64)
    return sums
