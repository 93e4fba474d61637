"""The one search of HTTP and the command line: a query -> the documents that match it.

Candidates are ranked (`index.search.modes`), read from the store, and checked again: a document may
have been deleted or changed since it was ranked. Where too few are left, more are ranked. The index
may hold vectors rounded: it decides which documents are the best, and their scores are then
computed from the vectors of the store.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from encoder.arrays import Int64
from index.common_text.collection import mark
from index.directory.data_directory import DataDirectory
from index.errors import LexicalIndexNotReadyError
from index.id_set import IdSet, without
from index.lexical.lexical_index import CANDIDATES
from index.near_duplicates.families import Families
from index.search.alignment import known
from index.search.calibrator import CalibratedScore, ScoreCalibrator, calibrate_scores, within
from index.search.fusion import LinearFusion
from index.search.modes import Ranking, timed
from index.search.parallel_steps import PARALLEL_STEPS
from index.search.rankers import ExamplesRanker, QueryRanker, Ranker
from index.search.records import EncodedQuery, Examples, Hit, SearchAnswer, SearchOptions
from index.store.document_store import SQLiteDocumentStore
from index.store.filters import matches
from index.store.records import DocumentSummary
from index.vectors.vector_index import NO_VECTOR

# Copies and versions are found like any other documents. What was found is then hidden, with all of
# its families, and the search is repeated for the rest, until there are enough families or no more
# documents: at most as many rounds as hits, however large a family is.

MAX_COLLAPSED = 10  # ids that a hit lists of the others of its family


def collapse_families(
    families: Families,
    found: Sequence[Hit],
    find_others: Callable[[Int64], Sequence[Hit]],
    top_k: int,
) -> list[Hit]:
    """Return the best hit of each of the `top_k` best families; a document may be one alone.

    Args:
        families: of the store that was searched.
        found: the `top_k` best hits, or all where there are fewer.
        find_others: returns the same of the documents without these vector ids Int64[N].
        top_k: how many to return, at most.
    """
    best: dict[int | str, Hit] = {}
    while True:
        numbers = families.of_ids([hit.id for hit in found])
        for hit in found:
            family = numbers.get(hit.id)
            best.setdefault(hit.id if family is None else family, replace(hit, family=family))
        if len(best) >= top_k or len(found) < top_k:
            return list(best.values())[:top_k]
        found = find_others(families.hidden_by([hit.id for hit in best.values()]))


def list_collapsed(
    store: SQLiteDocumentStore, hit: Hit, queries: AbstractSet[int], among: IdSet | None
) -> tuple[str, ...]:
    """Return the ids of the documents that are collapsed behind a hit, the first of them."""
    if hit.family is None:
        return ()
    others = store.families.vector_ids([hit.family])
    if among is not None:
        others = others[among.contains(others)]
    # More than are listed: the hit and the queries may be among them.
    most = MAX_COLLAPSED + 1 + len(queries)
    some = [other for other in others[:most].tolist() if other not in queries]
    ids = [summary.id for _, summary in sorted(store.get(some, skip_damaged=True).items())]
    return tuple(vector_id for vector_id in ids if vector_id != hit.id)[:MAX_COLLAPSED]


_WIDER = 4  # how many times more candidates to rank when too few of them could be used


@dataclass(frozen=True, slots=True)
class _Search:
    """The arguments of one search."""

    data: DataDirectory
    ranker: Ranker
    options: SearchOptions
    calibrator: ScoreCalibrator


def selects(options: SearchOptions) -> bool:
    """Return whether `where` or `exclude` leave documents out."""
    return options.where is not None or bool(options.exclude)


def select_documents(data: DataDirectory, options: SearchOptions) -> IdSet | None:
    """Return the documents that pass `where` and `exclude`; None for all."""
    if not selects(options):
        return None
    return data.store.select(options.where, options.exclude)


@PARALLEL_STEPS.searching()
def search(
    data: DataDirectory,
    query: EncodedQuery | Examples,
    options: SearchOptions,
    *,
    fusion: LinearFusion,
    calibrator: ScoreCalibrator,
    among: IdSet | None,
) -> SearchAnswer:
    """Find the documents that match a query, best first: `top_k` whenever so many exist.

    Args:
        data: where to search.
        query: what to search for: one document, or several examples, whose hits have neither a
            probability nor a false positive rate.
        options: how many documents to find, by what, and which.
        fusion: how hybrid mode combines the scores of vectors and words.
        calibrator: of the scores.
        among: what `select_documents` returns for these options.
    """
    options = _possible_now(data, options)
    ranker: Ranker
    if isinstance(query, Examples):
        ranker = ExamplesRanker(data, query, options, fusion)
    else:
        ranker = QueryRanker(data, query, options, fusion)
    run = _Search(data, ranker, options, calibrator)
    first = replace(_find(run, among), common_text=_common_share(data.store, query))
    if not options.collapse:
        return first

    def find_others(hidden: Int64) -> tuple[Hit, ...]:
        everything = data.store.select(None) if among is None else among
        return _find(run, without(everything, hidden)).hits

    kept = collapse_families(data.store.families, first.hits, find_others, options.top_k)
    hits = [
        replace(hit, collapsed=list_collapsed(data.store, hit, ranker.left_out, among))
        for hit in kept
    ]
    return replace(first, hits=tuple(hits), seconds=dict(run.ranker.seconds))


def _common_share(store: SQLiteDocumentStore, query: EncodedQuery | Examples) -> float:
    if isinstance(query, Examples):
        return float(np.mean([_common_share(store, example) for example in query.all]))
    if query.vector_id != NO_VECTOR:
        return store.common_text.share(query.vector_id)
    marks = mark(query.text, None, store.common_text.read())
    return 0.0 if marks is None else marks.share


def _possible_now(data: DataDirectory, options: SearchOptions) -> SearchOptions:
    """Return options of which every step of the search can be done without waiting for the words.

    Waiting takes seconds to minutes, and would keep other requests from the threads that search.
    """
    if options.mode == "semantic" or not data.store.lexical.building:
        return options
    if options.mode == "lexical":
        raise LexicalIndexNotReadyError
    return replace(options, mode="semantic")


def _find(run: _Search, among: IdSet | None) -> SearchAnswer:
    """Rank, read and check, widening until `top_k` documents are left or no more exist."""
    options, k = run.options, run.options.top_k
    damaged: frozenset[int] = frozenset()  # whose vectors cannot be read
    while True:
        ranking = run.ranker.rank(k, among)
        documents = _read(run, ranking, damaged)
        if len(documents) < options.top_k and not ranking.exhausted:
            k = _WIDER * max(k, CANDIDATES)
            continue
        ranking, documents, lost = _scored_exactly(run, ranking, documents)
        if not lost:
            break
        damaged |= lost
    return SearchAnswer(
        hits=_hits(run, ranking, documents),
        scored_as=ranking.scored_as,
        generation=ranking.generation,
        sequence=ranking.sequence,
        seconds=dict(run.ranker.seconds),
        alignment=ranking.receipt,
    )


def _read(run: _Search, ranking: Ranking, damaged: frozenset[int]) -> dict[int, DocumentSummary]:
    """Read the best `top_k` documents that may be returned, by their rows in the ranking."""
    top_k, where = run.options.top_k, run.options.where
    ids, left_out = ranking.vector_ids.tolist(), run.ranker.left_out | damaged
    rows = [row for row, vector_id in enumerate(ids) if vector_id not in left_out]
    kept: dict[int, DocumentSummary] = {}
    size = top_k  # mostly all of these can be used
    with timed(run.ranker.seconds, "fetch"):
        while rows and len(kept) < top_k:
            some, rows, size = rows[:size], rows[size:], max(size, CANDIDATES)
            documents = run.data.store.get([ids[row] for row in some], skip_damaged=True)
            found = ((row, documents.get(ids[row])) for row in some)
            kept |= {
                row: document
                for row, document in found
                if document is not None and (where is None or matches(where, document.metadata))
            }
    return {row: kept[row] for row in list(kept)[:top_k]}


def _scored_exactly(
    run: _Search, ranking: Ranking, documents: dict[int, DocumentSummary]
) -> tuple[Ranking, dict[int, DocumentSummary], frozenset[int]]:
    """Rank the documents that were read, by their rows, by the vectors of the store.

    Returns:
        The ranking, its documents, and the vector ids of those whose vectors are damaged.
    """
    if run.data.index.exact or not documents:
        return ranking, documents, frozenset()
    kept = ranking.take(np.array(list(documents), dtype=np.int64))
    by_id = dict(zip(kept.vector_ids.tolist(), documents.values(), strict=True))
    with timed(run.ranker.seconds, "fetch"):
        # Without what was deleted since; what is damaged must not keep its rounded score.
        ids, vectors = run.data.store.vectors(kept.vector_ids, skip_damaged=True)
    order = np.argsort(kept.vector_ids)
    rows = order if len(ids) == len(order) else order[np.isin(kept.vector_ids[order], ids)]
    exact = run.ranker.rescored(kept, rows, vectors)
    unread = by_id.keys() - set(ids.tolist())
    lost = frozenset(vector_id for vector_id in unread if vector_id in run.data.store.damage)
    ranked = enumerate(exact.vector_ids.tolist())
    return (
        exact,
        {row: by_id[vector_id] for row, vector_id in ranked if vector_id not in lost},
        lost,
    )


def _hits(run: _Search, ranking: Ranking, documents: dict[int, DocumentSummary]) -> tuple[Hit, ...]:
    """Return the documents that are inside the bounds, with their scores.

    Calibrated values are monotone in the score, so no lower candidate could be inside.
    """
    rows = list(documents)
    ids, scores = ranking.vector_ids[rows].tolist(), ranking.scores[rows].tolist()
    terms = run.ranker.terms(ranking, ids)
    calibrated = calibrate_scores(run.calibrator, ranking.scored_as, scores)
    if ranking.parts:  # no pair of documents has such a score
        calibrated = [CalibratedScore() for _ in rows]
    by_example = {row: run.ranker.example_scores(ranking, row) for row in rows}
    return tuple(
        Hit(
            id=documents[row].id,
            score=score,
            title=documents[row].title,
            metadata=documents[row].metadata,
            semantic_score=float(ranking.semantic[row]),
            vector_score=float(ranking.vector[row]),
            alignment_score=known(ranking.alignment, row),
            lexical_score=None if ranking.lexical is None else float(ranking.lexical[row]),
            terms=terms.get(vector_id, ()),
            probability=measures.probability,
            false_positive_rate=measures.false_positive_rate,
            relevant=measures.relevant,
            like_scores=by_example[row][0],
            unlike_scores=by_example[row][1],
        )
        for row, vector_id, score, measures in zip(rows, ids, scores, calibrated, strict=True)
        if within(run.options.bounds, score, measures)
    )
