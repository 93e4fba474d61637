"""Lexical scores of many pairs of documents at once, as search gives them for stored documents."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from index.lexical_query import inverse_document_frequencies, sums_between
from index.lexical_tables import MAX_COUNT, DocumentTerms
from index.observer import Observer
from index.title_terms import count_corpus
from index.vector_index import Float32, Int64


@dataclass(frozen=True, slots=True)
class TermRows:
    """N documents as vectors over terms, of unit norm; one without terms is all zero.

    Attributes:
        term_ids: UInt32[M], those of the first document, then those of the second, and so on.
        weights: Float32[M].
        ends: Int64[N], where those of each document end.
    """

    term_ids: NDArray[np.uint32]
    weights: Float32
    ends: Int64

    def __len__(self) -> int:
        return len(self.ends)


def weigh_rows(documents: Sequence[DocumentTerms], idf: Float32) -> TermRows:
    """Weigh the terms of documents by sqrt(count) * idf, Float32[T] by term id, to unit norm.

    A term that weighs nothing is left out.
    """
    lengths = np.array([len(term_ids) for term_ids, _ in documents], dtype=np.int64)
    empty = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint16))
    term_ids = np.concatenate([empty[0], *(one for one, _ in documents)])
    counts = np.concatenate([empty[1], *(one for _, one in documents)]).astype(np.float32)
    # The last place stands for the terms that were not counted, and weighs 0.
    known = np.append(idf, np.float32(0.0))[np.minimum(term_ids, len(idf))]
    weights = np.sqrt(counts) * known
    norms = np.sqrt(sums_between(np.square(weights), np.cumsum(lengths)))
    weights /= np.repeat(np.maximum(norms, 1e-12), lengths)
    kept = weights > 0
    ends = np.append(0, np.cumsum(kept))[np.cumsum(lengths)]
    return TermRows(term_ids[kept], weights[kept].astype(np.float32), ends)


def join_rows(parts: Sequence[TermRows]) -> TermRows:
    """Join at least one part to one; the documents of each follow those before."""
    before = np.cumsum([0, *(len(part.term_ids) for part in parts)])
    return TermRows(
        np.concatenate([part.term_ids for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.ends + start for part, start in zip(parts, before, strict=False)]),
    )


def take_rows(rows: TermRows, chosen: Int64) -> TermRows:
    """Return the chosen documents Int64[K], in this order, weighed as they are."""
    starts = np.append(0, rows.ends[:-1])
    bounds = zip(starts[chosen].tolist(), rows.ends[chosen].tolist(), strict=True)
    places = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(*one) for one in bounds)])
    ends = np.cumsum(rows.ends[chosen] - starts[chosen])
    return TermRows(rows.term_ids[places], rows.weights[places], ends)


def rows_of_texts(texts: Iterable[str], titles: Sequence[str] = ()) -> TermRows:
    """Weigh the terms of texts as a store that held all of them, and nothing else, would.

    Args:
        texts: of the documents.
        titles: of the documents; without any, words alone are weighed.
    """
    term_id_of: dict[str, int] = {}
    documents: list[DocumentTerms] = []
    having = Counter[int]()
    for counted in count_corpus(texts, titles):
        term_ids = [term_id_of.setdefault(term, len(term_id_of)) for term in counted]
        having.update(term_ids)
        counts = np.minimum(list(counted.values()), MAX_COUNT)
        documents.append((np.array(term_ids, dtype=np.uint32), counts.astype(np.uint16)))
    frequencies = np.array([having[one] for one in range(len(term_id_of))], dtype=np.int64)
    idf = inverse_document_frequencies(frequencies, len(documents))
    return weigh_rows(documents, idf * (frequencies >= 2))


def term_cosines(rows: TermRows, pairs: Int64, observer: Observer) -> Float32:
    """Return the cosine Float32[P] of the terms of each pair of rows Int64[P, 2], from 0 to 1.

    The observer hears of P pairs.
    """
    starts = np.append(0, rows.ends[:-1])
    asked = np.zeros(int(rows.term_ids.max(initial=0)) + 1, dtype=np.float32)
    found = np.zeros(len(pairs), dtype=np.float32)
    order = np.argsort(pairs[:, 0], kind="stable")
    firsts, begins = np.unique(pairs[order, 0], return_index=True)
    for first, some in zip(firsts.tolist(), np.split(order, begins[1:]), strict=True):
        own = slice(starts[first], rows.ends[first])
        asked[rows.term_ids[own]] = rows.weights[own]
        found[some] = _dots(rows, starts, pairs[some, 1], asked)
        asked[rows.term_ids[own]] = 0.0
        observer.advanced(documents=len(some), tokens=0)
    return np.minimum(found, np.float32(1.0))


def _dots(rows: TermRows, starts: Int64, chosen: Int64, asked: Float32) -> Float32:
    slices = [slice(*ends) for ends in zip(starts[chosen], rows.ends[chosen], strict=True)]
    term_ids = np.concatenate([rows.term_ids[one] for one in slices])
    weights = np.concatenate([rows.weights[one] for one in slices])
    lengths = rows.ends[chosen] - starts[chosen]
    dots: Float32 = sums_between(asked[term_ids] * weights, np.cumsum(lengths)).astype(np.float32)
    return dots
