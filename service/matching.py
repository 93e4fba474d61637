"""The first visible way: a document -> the documents that match it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder.blocks import Receipt
from index.data_directory import DataDirectory
from index.sqlite_store import DocumentSummary
from index.vector_index import NO_VECTOR, SearchResult
from service.encoding import EncodedText, Float32, PointedText, encode_texts
from service.engine import Engine
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.metrics import Stage
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
    """One document that matches; `score` is the cosine of the two document vectors."""

    id: str
    score: float
    title: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        matches: best first.
        receipt: what was read of the query's document.
        seconds: time of each stage.
        generation: of the index that was searched.
    """

    matches: tuple[Match, ...]
    receipt: Receipt
    seconds: Mapping[Stage, float]
    generation: int


@dataclass(frozen=True, slots=True)
class _Sought:
    """A query as a vector Float32[dimension]; `itself` is its own vector id, if it is stored."""

    vector: Float32
    receipt: Receipt
    seconds: Mapping[Stage, float]
    itself: int = NO_VECTOR


async def match(
    engine: Engine,
    queries: Sequence[Query],
    *,
    top_k: int,
    min_score: float | None = None,
    strict: bool = False,
) -> list[Matches]:
    """Find the documents that match each query.

    Args:
        engine: what to search, and with what.
        queries: texts, which are encoded, or stored documents, whose vectors are used and which
            are left out of their own matches.
        top_k: how many matches to give for each, at most.
        min_score: give no match under this cosine.
        strict: refuse rather than leave a part of a text out.

    Raises:
        InvalidInputError: a number is over its limit or a text is refused.
        DocumentNotFoundError: a stored document is not there.
        ServiceError: the other errors of `encode_texts`.
    """
    _check_limits(engine, queries, top_k)
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, PointedText)]
    known = iter(await run_in(engine.readers, _find_stored, engine.data, stored) if stored else [])
    read = iter(await encode_texts(engine, texts, strict=strict))
    sought = [
        next(known) if isinstance(query, StoredQuery) else _sought_text(next(read))
        for query in queries
    ]
    return await run_in(engine.readers, _find_matches, engine, sought, top_k, min_score)


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


def _sought_text(read: EncodedText) -> _Sought:
    return _Sought(vector=read.vector, receipt=read.receipt, seconds=read.seconds)


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
        sought.append(_Sought(vector, document.receipt, {}, document.vector_id))
    return sought


def _find_matches(
    engine: Engine, sought: Sequence[_Sought], top_k: int, min_score: float | None
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
        candidates = [_candidates(found, row, min_score) for row in range(len(sought))]
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
    for stage, duration in seconds.items():
        engine.metrics.stage_duration.labels(stage).observe(duration)
    return [
        Matches(tuple(usable), query.receipt, {**query.seconds, **seconds}, generation)
        for usable, query in zip(matches, sought, strict=True)
    ]


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
        )
        for vector_id, score in candidates
        if vector_id != itself and vector_id in documents
    ]
