"""The first stage of matching: vectors and words find documents."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.id_set import IdSet, without
from index.lexical.scoring import TermWeight
from index.search.search import DEFAULT_MODE, Asked, Mode, search_hybrid, search_lexical
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import Filter, matches
from index.store.records import DocumentSummary
from index.vectors.vector_index import NO_VECTOR, SearchResult
from service.engine import Engine
from service.matching.calibration import (
    NO_BOUNDS,
    Bounds,
    ScoreCalibrator,
    calibrate_scores,
    within,
)
from service.matching.compare import Explained
from service.metrics import Stage
from service.threads import run_in
from service.workers.rerank_pool import RerankReceipt

_WIDER = 4  # how many times more candidates to ask for when too few of them could be used


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
        explained: why it matches, where that was asked for.
        first_stage_score: what it was found by, where `score` is that of the reranker.
        family: the number of its family, where families were collapsed and it is in one.
        collapsed: ids of other documents of its family that stand behind it, some of them.
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
    explained: Explained | None = None
    first_stage_score: float | None = None
    family: int | None = None
    collapsed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        matches: best first.
        receipt: what was read of the query's document.
        seconds: time of each stage.
        generation: of the index that was searched.
        sequence: of the store that the index held: every change up to it is in the answer; what
            was deleted later is left out.
        scored_as: the mode whose scores those of the first stage are.
        rerank: what became of the second stage, where one was asked for.
    """

    matches: tuple[Match, ...]
    receipt: Receipt
    seconds: Mapping[Stage, float]
    generation: int
    sequence: int
    scored_as: Mode
    rerank: RerankReceipt | None = None


@dataclass(frozen=True, slots=True)
class Sought:
    """A query as a vector Float32[dimension]; `itself` is its own vector id, if it is stored.

    A reranker reads `title` above the text.
    """

    text: str
    vector: Float32
    receipt: Receipt
    seconds: Mapping[Stage, float]
    itself: int = NO_VECTOR
    blocks: BlockVectors | None = None
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to search for.

    Attributes:
        top_k: how many matches to give for each query, at most.
        mode: by what documents are found and ranked: vectors, words, or both.
        bounds: give no match outside them.
        where: give no match for whose metadata it does not hold.
        exclude: ids of documents that are not to be given.
        collapse: give one document of each family, the best; see `service.matching.collapse`.
        hidden: vector ids, ascending, that are not to be given.
    """

    top_k: int
    mode: Mode = DEFAULT_MODE
    bounds: Bounds = NO_BOUNDS
    where: Filter | None = None
    exclude: tuple[str, ...] = ()
    collapse: bool = False
    hidden: tuple[int, ...] = ()


async def find(engine: Engine, sought: Sequence[Sought], search: Search) -> list[Matches]:
    """Find the documents that match each query, best first."""
    among, seconds = await run_in(engine.readers, _select, engine, search)
    sought = [replace(one, seconds={**one.seconds, **seconds}) for one in sought]
    if search.mode == "semantic":
        return await run_in(engine.readers, _find_by_vectors, engine, sought, search, among)
    return [
        await run_in(engine.readers, _find_by_words, engine, one, search, among) for one in sought
    ]


def _select(engine: Engine, search: Search) -> tuple[IdSet | None, dict[Stage, float]]:
    """Return what a search is kept to, None for nothing, and the time that it took to find."""
    if search.where is None and not search.exclude and not search.hidden:
        return None, {}
    started = time.perf_counter()
    among = engine.data.store.select(search.where, search.exclude)
    if search.hidden:
        among = without(among, np.array(search.hidden, dtype=np.int64))
    seconds: dict[Stage, float] = {"filter": time.perf_counter() - started}
    _observe(engine, seconds)
    return among, seconds


def _find_by_vectors(
    engine: Engine, sought: Sequence[Sought], search: Search, among: IdSet | None
) -> list[Matches]:
    """Search and fetch, with more candidates until each query has its `top_k` or no more exist.

    A candidate can be of no use: it is the query itself, or was deleted or changed since.
    """
    index, store = engine.data.index, engine.data.store
    top_k, bounds = search.top_k, search.bounds
    vectors = np.stack([query.vector for query in sought])
    searching = fetching = 0.0
    wanted = top_k + 1
    while True:
        started = time.perf_counter()
        found = index.search(vectors, wanted, among=among)
        searched = time.perf_counter()
        documents = store.get(np.unique(found.ids[found.ids != NO_VECTOR]).tolist())
        searching += searched - started
        fetching += time.perf_counter() - searched
        candidates = [_candidates(found, row, bounds.min_score) for row in range(len(sought))]
        usable = [
            _usable(some, documents, query.itself, search.where)[:top_k]
            for some, query in zip(candidates, sought, strict=True)
        ]
        if all(
            len(some) < wanted or len(kept) == top_k
            for some, kept in zip(candidates, usable, strict=True)
        ):
            break
        wanted *= _WIDER
    seconds: dict[Stage, float] = {"search": searching, "fetch": fetching}
    _observe(engine, seconds)
    for query in sought if among is None else ():  # what checks them does not filter
        engine.recall_monitor.offer(query.vector, stored=query.itself != NO_VECTOR)
    judged = [_judged(engine.judge, "semantic", kept, bounds) for kept in usable]
    return [
        Matches(
            kept,
            query.receipt,
            {**query.seconds, **seconds},
            found.generation,
            found.sequence,
            "semantic",
        )
        for kept, query in zip(judged, sought, strict=True)
    ]


def _find_by_words(engine: Engine, query: Sought, search: Search, among: IdSet | None) -> Matches:
    """Search by words, or by words and vectors, and fetch."""
    asked = Asked(query.text, query.vector, query.itself, query.title)
    if search.mode == "lexical":
        answer = search_lexical(engine.data, asked, search.top_k, among=among)
    else:
        answer = search_hybrid(engine.data, asked, search.top_k, engine.fusion, among=among)
        if among is None:
            engine.recall_monitor.offer(query.vector, stored=query.itself != NO_VECTOR)
    started = time.perf_counter()
    documents = engine.data.store.get([one.vector_id for one in answer.found])
    seconds: dict[Stage, float] = {
        "lexical": answer.lexical_seconds,
        "search": answer.search_seconds,
        "fetch": time.perf_counter() - started,
    }
    _observe(engine, seconds)
    least = -1.0 if search.bounds.min_score is None else search.bounds.min_score
    found = [
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
        if _is_given(documents.get(one.vector_id), search.where) and one.score >= least
    ]
    judged = _judged(engine.judge, answer.scored_as, found, search.bounds)
    taken = {**query.seconds, **seconds}
    return Matches(
        judged, query.receipt, taken, answer.generation, answer.sequence, answer.scored_as
    )


def _observe(engine: Engine, seconds: Mapping[Stage, float]) -> None:
    for stage, duration in seconds.items():
        engine.metrics.stage_duration.labels(stage).observe(duration)


def _judged(
    judge: ScoreCalibrator, mode: Mode, matches: Sequence[Match], bounds: Bounds
) -> tuple[Match, ...]:
    """Say what each match is worth, and leave out those that are not worth enough.

    What a score is worth rises with it, so that no lower candidate could take their place.
    """
    worths = calibrate_scores(judge, mode, [match.score for match in matches])
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


def _is_given(document: DocumentSummary | None, where: Filter | None) -> bool:
    """Say whether a document that was found is still there and still as the filter wants it."""
    return document is not None and (where is None or matches(where, document.metadata))


def _usable(
    candidates: Sequence[tuple[int, float]],
    documents: Mapping[int, DocumentSummary],
    itself: int,
    where: Filter | None,
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
        if vector_id != itself and _is_given(documents.get(vector_id), where)
    ]
