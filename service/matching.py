"""The first visible way: a document -> the documents that match it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder.blocks import Receipt
from index.data_directory import DataDirectory
from index.lexical_query import TermWeight
from index.modes import DEFAULT_MODE, Asked, Mode, search_hybrid, search_lexical
from index.sqlite_store import DocumentSummary
from index.vector_index import NO_VECTOR, SearchResult
from service.calibration import NO_BOUNDS, Bounds, Judge, judge_scores, refused_bounds, within
from service.encoding import EncodedText, Float32, PointedText, encode_texts
from service.engine import Engine
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.metrics import Stage
from service.reranking import RerankReceipt
from service.threads import run_in

_WIDER = 4  # how many times more candidates to ask for when too few of them could be used


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """Match a stored document; `pointer` says where in the request its id stands."""

    pointer: str
    document_id: str


Query = PointedText | StoredQuery


@dataclass(frozen=True, slots=True)
class Match:
    """One document that matches.

    Attributes:
        id: of the document.
        score: that of the mode, by which matches are ranked.
        title: of the document.
        metadata: of the document.
        semantic_score: cosine of the two document vectors.
        lexical_score: cosine of the words; None in semantic mode, which reads none.
        terms: that give most to the lexical score, each with its share of it.
        probability: that it is a match; None where the checkpoint has no calibration for it.
        false_positive_rate: share of random pairs of the corpus that score as high; None where
            the data directory has no calibration.
        first_stage_score: what it was found by, where `score` is that of the reranker.
    """

    id: str
    score: float
    title: str
    metadata: Mapping[str, Any]
    semantic_score: float
    lexical_score: float | None = None
    terms: tuple[TermWeight, ...] = ()
    probability: float | None = None
    false_positive_rate: float | None = None
    first_stage_score: float | None = None


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        matches: best first.
        receipt: what was read of the query's document.
        seconds: time of each stage.
        generation: of the index that was searched.
        rerank: what became of the second stage, where one was asked for.
    """

    matches: tuple[Match, ...]
    receipt: Receipt
    seconds: Mapping[Stage, float]
    generation: int
    rerank: RerankReceipt | None = None


@dataclass(frozen=True, slots=True)
class _Sought:
    """A query as a vector Float32[dimension]; `itself` is its own vector id, if it is stored."""

    text: str
    vector: Float32
    receipt: Receipt
    seconds: Mapping[Stage, float]
    itself: int = NO_VECTOR


async def match(
    engine: Engine,
    queries: Sequence[Query],
    *,
    top_k: int,
    mode: Mode = DEFAULT_MODE,
    bounds: Bounds = NO_BOUNDS,
    strict: bool = False,
) -> list[Matches]:
    """Find the documents that match each query.

    Args:
        engine: what to search, and with what.
        queries: texts, which are encoded, or stored documents, whose vectors are used and which
            are left out of their own matches.
        top_k: how many matches to give for each, at most.
        mode: by what documents are found and ranked: vectors, words, or both.
        bounds: give no match outside them.
        strict: refuse rather than leave a part of a text out.

    Raises:
        InvalidInputError: a number is over its limit, a bound cannot be kept because nothing was
            calibrated, or a text is refused.
        DocumentNotFoundError: a stored document is not there.
        ServiceError: the other errors of `encode_texts`.
    """
    _check_limits(engine, queries, top_k)
    if refused := refused_bounds(engine.judge, mode, bounds):
        raise InvalidInputError(refused)
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, PointedText)]
    known = iter(await run_in(engine.readers, _find_stored, engine.data, stored) if stored else [])
    read = iter(await encode_texts(engine, texts, strict=strict))
    sought = [
        next(known) if isinstance(query, StoredQuery) else _sought_text(query, next(read))
        for query in queries
    ]
    if mode == "semantic":
        return await run_in(engine.readers, _find_by_vectors, engine, sought, top_k, bounds)
    return [
        await run_in(engine.readers, _find_by_words, engine, query, top_k, mode, bounds)
        for query in sought
    ]


def _check_limits(engine: Engine, queries: Sequence[Query], top_k: int) -> None:
    refused = []
    limit = engine.settings.max_queries_per_request
    if len(queries) > limit:
        refused.append(FieldError("#/queries", f"has more than {limit} queries", limit))
    limit = engine.settings.max_top_k
    if not 1 <= top_k <= limit:
        refused.append(FieldError("#/top_k", f"must be from 1 to {limit}", limit))
    if refused:
        raise InvalidInputError(refused)


def _sought_text(query: PointedText, read: EncodedText) -> _Sought:
    return _Sought(query.text, read.vector, read.receipt, read.seconds)


def _find_stored(data: DataDirectory, queries: Sequence[StoredQuery]) -> list[_Sought]:
    documents = data.store.find([query.document_id for query in queries])
    ids, rows = data.store.vectors([document.vector_id for document in documents.values()])
    vectors = dict(zip(ids.tolist(), rows, strict=True))
    sought = []
    for query in queries:
        document = documents.get(query.document_id)
        if document is None or document.vector_id not in vectors:
            raise DocumentNotFoundError(query.document_id, query.pointer)
        vector = vectors[document.vector_id]
        text = document.document.text
        sought.append(_Sought(text, vector, document.receipt, {}, document.vector_id))
    return sought


def _find_by_vectors(
    engine: Engine, sought: Sequence[_Sought], top_k: int, bounds: Bounds
) -> list[Matches]:
    """Search and fetch, with more candidates until each query has its `top_k` or no more exist.

    A candidate can be of no use: it is the query itself, or was deleted since the search.
    """
    index, store = engine.data.index, engine.data.store
    vectors = np.stack([query.vector for query in sought])
    searching = fetching = 0.0
    wanted = top_k + 1
    while True:
        generation = index.generation
        started = time.perf_counter()
        found = index.search(vectors, wanted)
        searched = time.perf_counter()
        documents = store.get(np.unique(found.ids[found.ids != NO_VECTOR]).tolist())
        searching += searched - started
        fetching += time.perf_counter() - searched
        candidates = [_candidates(found, row, bounds.min_score) for row in range(len(sought))]
        matches = [
            _usable(some, documents, query.itself)[:top_k]
            for some, query in zip(candidates, sought, strict=True)
        ]
        if all(
            len(some) < wanted or len(usable) == top_k
            for some, usable in zip(candidates, matches, strict=True)
        ):
            break
        wanted *= _WIDER
    seconds: dict[Stage, float] = {"search": searching, "fetch": fetching}
    _observe(engine, seconds)
    judged = [_judged(engine.judge, "semantic", usable, bounds) for usable in matches]
    return [
        Matches(usable, query.receipt, {**query.seconds, **seconds}, generation)
        for usable, query in zip(judged, sought, strict=True)
    ]


def _find_by_words(
    engine: Engine, query: _Sought, top_k: int, mode: Mode, bounds: Bounds
) -> Matches:
    """Search by words, or by words and vectors, and fetch."""
    generation = engine.data.index.generation
    asked = Asked(query.text, query.vector, query.itself)
    if mode == "lexical":
        answer = search_lexical(engine.data, asked, top_k)
    else:
        answer = search_hybrid(engine.data, asked, top_k, engine.fusion)
    started = time.perf_counter()
    documents = engine.data.store.get([one.vector_id for one in answer.found])
    seconds: dict[Stage, float] = {
        "lexical": answer.lexical_seconds,
        "search": answer.search_seconds,
        "fetch": time.perf_counter() - started,
    }
    _observe(engine, seconds)
    least = -1.0 if bounds.min_score is None else bounds.min_score
    matches = [
        Match(
            id=documents[one.vector_id].id,
            score=one.score,
            title=documents[one.vector_id].title,
            metadata=documents[one.vector_id].metadata,
            semantic_score=one.semantic,
            lexical_score=one.lexical,
            terms=one.terms,
        )
        for one in answer.found
        if one.vector_id in documents and one.score >= least
    ]
    judged = _judged(engine.judge, mode, matches, bounds)
    return Matches(judged, query.receipt, {**query.seconds, **seconds}, generation)


def _observe(engine: Engine, seconds: Mapping[Stage, float]) -> None:
    for stage, duration in seconds.items():
        engine.metrics.stage_duration.labels(stage).observe(duration)


def _judged(
    judge: Judge, mode: Mode, matches: Sequence[Match], bounds: Bounds
) -> tuple[Match, ...]:
    """Say what each match is worth, and leave out those that are not worth enough.

    What a score is worth rises with it, so that no lower candidate could take their place.
    """
    worths = judge_scores(judge, mode, [match.score for match in matches])
    return tuple(
        replace(match, probability=worth.probability, false_positive_rate=worth.false_positive_rate)
        for match, worth in zip(matches, worths, strict=True)
        if within(bounds, worth)
    )


def _candidates(found: SearchResult, row: int, min_score: float | None) -> list[tuple[int, float]]:
    """Return vector ids and scores that one query found and that score high enough."""
    return [
        (vector_id, min(1.0, max(-1.0, score)))  # rounding may carry a cosine past its bounds
        for vector_id, score in zip(
            found.ids[row].tolist(), found.scores[row].tolist(), strict=True
        )
        if vector_id != NO_VECTOR and (min_score is None or score >= min_score)
    ]


def _usable(
    candidates: Sequence[tuple[int, float]], documents: Mapping[int, DocumentSummary], itself: int
) -> list[Match]:
    return [
        Match(
            id=documents[vector_id].id,
            score=score,
            title=documents[vector_id].title,
            metadata=documents[vector_id].metadata,
            semantic_score=score,
        )
        for vector_id, score in candidates
        if vector_id != itself and vector_id in documents
    ]
