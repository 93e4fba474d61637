"""Systems of an evaluation: each scores documents for queries, and ranks them in a run (TREC)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from index.lexical.scoring import inverse_document_frequencies
from index.lexical.terms import count_corpus
from index.optional_packages import require_extra
from index.vectors.bulk import products
from index.vectors.vector_index import NO_VECTOR

DEPTH = 100  # of a run: no measure reads further
_QUERIES_PER_CALL = 128


@dataclass(frozen=True, slots=True)
class System:
    """One way to score documents against each other, given as rows.

    Rows 0 to N - 1 are the documents of the corpus. Queries that are no documents follow.

    Attributes:
        name: as tables show it.
        settings: describes what the scores depend on.
        score: rows Int64[Q] -> Float32[Q, N], the score of every document for each of them.
        score_pairs: rows Int64[P], rows Int64[P] -> Float32[P].
    """

    name: str
    settings: str
    score: Callable[[Int64], Float32]
    score_pairs: Callable[[Int64, Int64], Float32]


@dataclass(frozen=True, slots=True)
class Run:
    """The best documents of each of Q queries, by exact search.

    Attributes:
        query_ids: Q document or query ids.
        rows: Int64[Q, K], rows of the corpus, best first; -1 if there are fewer.
        scores: Float32[Q, K]; -inf if there are fewer.
    """

    query_ids: tuple[str, ...]
    rows: Int64
    scores: Float32


def vector_system(
    name: str, settings: str, vectors: Float32, documents: int | None = None
) -> System:
    """Make the system of unit vectors Float32[N + others, dimension]: the score is the cosine.

    Args:
        name: of the system.
        settings: of the system.
        vectors: one per row, unit norm; those of the corpus come first.
        documents: N; all rows when not given.
    """
    corpus = vectors[:documents]

    def score(rows: Int64) -> Float32:
        return products(vectors[rows], corpus)

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        cosines: Float32 = np.einsum("ph,ph->p", vectors[sources], vectors[targets])
        return cosines

    return System(name, settings, score, score_pairs)


def rank(
    system: System, ids: Sequence[str], query_ids: Sequence[str], rows: Int64, depth: int = DEPTH
) -> Run:
    """Rank a corpus for each query; a query that is in the corpus is not ranked for itself.

    Args:
        system: scores the documents.
        ids: N ids of the documents.
        query_ids: Q ids.
        rows: Int64[Q], the rows of the queries.
        depth: K of the run; fewer if there are fewer documents.
    """
    starts = range(0, len(query_ids), _QUERIES_PER_CALL)
    calls = [slice(start, start + _QUERIES_PER_CALL) for start in starts]
    runs = [rank_scores(system.score(rows[some]), ids, query_ids[some], depth) for some in calls]
    shape = (0, min(depth, len(ids)))
    return Run(
        tuple(query_ids),
        np.concatenate([np.empty(shape, np.int64), *(run.rows for run in runs)]),
        np.concatenate([np.empty(shape, np.float32), *(run.scores for run in runs)]),
    )


def rank_scores(
    scores: Float32, ids: Sequence[str], query_ids: Sequence[str], depth: int = DEPTH
) -> Run:
    """Rank a corpus by scores; a query that is in the corpus is not ranked for itself.

    Args:
        scores: Float32[Q, N].
        ids: N ids of the documents.
        query_ids: Q ids.
        depth: K of the run; fewer if there are fewer documents.
    """
    row_of = {document_id: row for row, document_id in enumerate(ids)}
    scores = scores.copy()
    for number, query_id in enumerate(query_ids):
        if query_id in row_of:
            scores[number, row_of[query_id]] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")
    best: Int64 = order[:, : min(depth, len(ids))].astype(np.int64)
    found: Float32 = np.take_along_axis(scores, best, axis=1)
    best[np.isneginf(found)] = NO_VECTOR
    return Run(tuple(query_ids), best, found)


LEXICAL, HYBRID = "lexical", "hybrid"


def lexical_system(
    texts: Sequence[str], titles: Sequence[str] = (), documents: int | None = None
) -> System:
    """Make the system of lexical mode, which here scores every document, not only candidates.

    A word that only one document contains has no weight, as when the query is a stored document.

    Args:
        texts: of the documents, then of queries that are no documents.
        titles: of all of them; without titles, only words are compared.
        documents: how many of the texts are documents; all when not given.

    Raises:
        MissingExtraError: scipy is not installed.
    """
    require_extra("evaluate", "the lexical system", "scipy")
    import scipy.sparse

    number = len(texts) if documents is None else documents
    columns: dict[str, int] = {}
    places: list[int] = []
    counts: list[int] = []
    ends = [0]
    for counted in count_corpus(texts, titles, number):
        places += [columns.setdefault(term, len(columns)) for term in counted]
        counts += counted.values()
        ends.append(len(places))
    shape = (len(texts), len(columns))
    roots = np.sqrt(np.array(counts, dtype=np.float32))
    matrix = scipy.sparse.csr_matrix((roots, places, ends), shape=shape)
    having = np.bincount(places[: ends[number]], minlength=len(columns))
    idf = inverse_document_frequencies(having, number) * (having >= 2)
    weighted = matrix @ scipy.sparse.diags(idf)
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    unit = (scipy.sparse.diags(1.0 / np.maximum(norms, 1e-12)) @ weighted).tocsr()
    unit = unit.astype(np.float32)
    transposed = unit[:number].T.tocsr()

    def score(rows: Int64) -> Float32:
        scores: Float32 = (unit[rows] @ transposed).toarray()
        return scores

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        sums = unit[sources].multiply(unit[targets]).sum(axis=1)
        return np.asarray(sums, dtype=np.float32).ravel()

    return System(
        LEXICAL,
        "cosine of sqrt(count) * idf, of words and of titles that occur",
        score,
        score_pairs,
    )


def cache_scores(system: System) -> System:
    """Make a system that scores the same rows only once, however often they are scored."""
    known: dict[bytes, Float32] = {}

    def score(rows: Int64) -> Float32:
        key = rows.tobytes()
        if key not in known:
            known[key] = system.score(rows)
        return known[key].copy()

    return System(system.name, system.settings, score, system.score_pairs)
