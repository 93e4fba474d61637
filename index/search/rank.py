"""The one search of HTTP and the command line: a query -> the documents that match it.

Candidates of the engine are scored by the rule (`index.search.score`), aligned, read from the
store, and checked again: a document may have been deleted or changed since it was ranked. Where too
few are left, more are ranked. The engine may hold vectors rounded: it decides which documents are
the best, and their scores are then computed from the vectors of the store, read with them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from encoder.arrays import Int64
from index.common_text.collection import mark
from index.directory.data_directory import DataDirectory
from index.engine.parallel_steps import PARALLEL_STEPS
from index.engine.port import BLOCKS, VECTOR, WORDS, EncodedQuery, QuerySearch, Seconds, timed
from index.errors import LexicalIndexNotReadyError
from index.id_set import IdSet, without
from index.lexical.lexical_index import CANDIDATES
from index.search.align import known
from index.search.calibrate import CalibratedScore, Scoring, calibrate_scores, within
from index.search.collapse import collapse_families, list_collapsed
from index.search.ranker import Ranker
from index.search.records import Examples, Hit, SearchAnswer, SearchOptions
from index.search.score import Ranking
from index.store.document_store import DocumentStore
from index.store.filters import matches
from index.store.records import DocumentSummary
from index.vectors.vector_index import NO_VECTOR

_WIDER = 4  # how many times more candidates to rank when too few of them could be used


def select_documents(data: DataDirectory, options: SearchOptions) -> IdSet | None:
    """Return the documents that pass `where` and `exclude`; None for all.

    A filter that the engine has itself is left to it: no ids are read for that.
    """
    where = options.where
    if where is not None and data.engine.filters(where):
        where = None
    if where is None and not options.exclude:
        return None
    return data.store.select(where, options.exclude)


@PARALLEL_STEPS.searching()
def search(
    data: DataDirectory,
    query: EncodedQuery | Examples,
    options: SearchOptions,
    *,
    scoring: Scoring,
    among: IdSet | None = None,
) -> SearchAnswer:
    """Find the documents that match a query, best first: `top_k` whenever so many exist.

    Args:
        data: where to search.
        query: what to search for: one document, or several examples, whose hits have neither a
            probability nor a false positive rate.
        options: how many documents to find, by what, and which.
        scoring: how scores are combined and calibrated.
        among: the documents to search; by default what `select_documents` returns.
    """
    options = _possible_now(data, options)
    seconds = Seconds()
    if among is None and options.selects:
        with timed(seconds, "filter"):
            among = select_documents(data, options)
    examples = query if isinstance(query, Examples) else Examples((query,))
    searches = tuple(data.engine.open(example, seconds, options.where) for example in examples.all)
    alone = examples is not query
    ranker = Ranker(examples, options, scoring.rule, searches, seconds, alone=alone)
    common = [
        _common_share(data.store, example, search)
        for example, search in zip(examples.all, searches, strict=True)
    ]
    find = partial(_find, data, ranker, scoring)
    first = replace(find(among), common_text=sum(common) / len(common))
    if not options.collapse:
        return first

    def find_others(hidden: Int64) -> tuple[Hit, ...]:
        everything = data.store.select(None) if among is None else among
        return find(without(everything, hidden)).hits

    kept = collapse_families(data.store.families, first.hits, find_others, options.top_k)
    hits = [
        replace(
            hit,
            collapsed=list_collapsed(data.store, hit, ranker.left_out, among, options.where),
        )
        for hit in kept
    ]
    return replace(first, hits=tuple(hits), seconds=dict(seconds))


def _common_share(store: DocumentStore, query: EncodedQuery, search: QuerySearch) -> float:
    if query.vector_id != NO_VECTOR:
        return search.common_share()
    marks = mark(query.text, None, store.common_text.read())
    return 0.0 if marks is None else marks.share


def _possible_now(data: DataDirectory, options: SearchOptions) -> SearchOptions:
    """Return options of which every step of the search can be done without waiting for the words.

    Waiting takes seconds to minutes, and would keep other requests from the threads that search.
    """
    if options.mode == "semantic" or not data.store.counts_words:
        return options
    if options.mode == "lexical":
        raise LexicalIndexNotReadyError
    return replace(options, mode="semantic")


def _find(
    data: DataDirectory, ranker: Ranker, scoring: Scoring, among: IdSet | None
) -> SearchAnswer:
    """Rank, read and check, widening until `top_k` documents are left or no more exist."""
    top_k = k = ranker.options.top_k
    while True:
        ranking = ranker.rank(k, among)
        best, documents = _read(data, ranker, ranking)
        if len(documents) >= top_k or ranking.candidates.exhausted:
            break
        k = _WIDER * max(k, CANDIDATES)
    return SearchAnswer(
        hits=_hits(ranker, scoring, best, documents),
        scored_as=best.scored_as,
        generation=best.candidates.generation,
        sequence=best.candidates.position,
        seconds=dict(ranker.seconds),
        alignment=best.receipt,
    )


def _read(
    data: DataDirectory, ranker: Ranker, ranking: Ranking
) -> tuple[Ranking, list[DocumentSummary]]:
    """Read the best `top_k` documents that may be returned, and score them by their vectors.

    Returns:
        Their ranking, and the documents.
    """
    top_k, where = ranker.options.top_k, ranker.options.where
    ids = ranking.vector_ids.tolist()
    rows = range(len(ids))
    kept: dict[int, DocumentSummary] = {}
    size = top_k  # mostly all of these can be used
    with timed(ranker.seconds, "fetch"):
        while rows and len(kept) < top_k:
            wanted, rows, size = rows[:size], rows[size:], max(size, CANDIDATES)
            documents = data.store.get([ids[row] for row in wanted])
            found = ((row, documents.get(ids[row])) for row in wanted)
            kept |= {
                row: document
                for row, document in found
                if document is not None and (where is None or matches(where, document.metadata))
            }
        kept = {row: kept[row] for row in list(kept)[:top_k]}
        best = ranking.take(np.array(list(kept), dtype=np.int64))
        if data.engine.exact or not kept:
            return best, list(kept.values())
        # Without what was deleted since.
        present, vectors = data.store.vectors(best.vector_ids)
        queries = [example.vector for example in ranker.examples.all]
        compared = data.store.alignment.whiten(np.concatenate([vectors, queries]))
        cosines = [compared[: len(present)] @ query for query in compared[len(present) :]]
    order = np.argsort(best.vector_ids)
    order = order if len(present) == len(order) else order[np.isin(best.vector_ids[order], present)]
    by_id = dict(zip(best.vector_ids.tolist(), kept.values(), strict=True))
    best = ranker.rescored(best, order, cosines)
    return best, [by_id[vector_id] for vector_id in best.vector_ids.tolist()]


def _hits(
    ranker: Ranker,
    scoring: Scoring,
    ranking: Ranking,
    documents: Sequence[DocumentSummary],
) -> tuple[Hit, ...]:
    """Return the documents that are inside the bounds, with their scores.

    Calibrated values are monotone in the score, so no lower candidate could be inside.
    """
    ids, scores = ranking.vector_ids.tolist(), ranking.scores.tolist()
    channels = ranking.candidates.scores
    terms = ranker.terms(ranking) if ranker.options.explain else {}
    calibrated = calibrate_scores(scoring, ranking.scored_as, scores)
    if ranking.parts:  # no pair of documents has such a score
        calibrated = [CalibratedScore() for _ in ids]
    by_example = [ranker.example_scores(ranking, row) for row in range(len(ids))]
    return tuple(
        Hit(
            id=document.id,
            score=scores[row],
            title=document.title,
            metadata=document.metadata,
            semantic_score=float(ranking.semantic[row]),
            vector_score=float(channels[VECTOR][row]),
            alignment_score=known(channels.get(BLOCKS), row),
            lexical_score=known(channels.get(WORDS), row),
            terms=terms.get(ids[row], ()),
            probability=measures.probability,
            false_positive_rate=measures.false_positive_rate,
            relevant=measures.relevant,
            like_scores=by_example[row][0],
            unlike_scores=by_example[row][1],
        )
        for row, (document, measures) in enumerate(zip(documents, calibrated, strict=True))
        if within(ranker.options.bounds, scores[row], measures)
    )
