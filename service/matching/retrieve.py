"""Retrieval: the search, run in reader threads and measured."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from encoder.blocks import Receipt
from index.id_set import IdSet
from index.search.records import (
    AlignmentReceipt,
    EncodedQuery,
    Examples,
    Hit,
    Mode,
    SearchAnswer,
    SearchOptions,
)
from index.search.search import search, select_documents, selects
from index.vectors.vector_index import NO_VECTOR
from service.encode import EncodedText
from service.engine import Collection
from service.matching.compare import Explanation
from service.matching.queries import StoredQuery, find_all_stored
from service.metrics import Stage
from service.telemetry.stages import observe_stage
from service.threads import run_in
from service.workers.rerank_pool import RerankReceipt


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        matches: best first.
        receipt: what was read of the query.
        seconds: time of each stage.
        generation: of the index that was searched.
        sequence: of the store that the index held: every change up to it is in the answer; what
            was deleted later is left out.
        scored_as: the mode whose scores the search returned.
        alignment: what became of the alignment, if there was to be one.
        rerank: what the reranker read, if reranking was requested.
        explanations: why documents match, by document id, if that was requested.
    """

    matches: tuple[Hit, ...]
    receipt: Receipt
    seconds: Mapping[Stage, float]
    generation: int
    sequence: int
    scored_as: Mode
    alignment: AlignmentReceipt | None = None
    rerank: RerankReceipt | None = None
    explanations: Mapping[str, Explanation] = field(default_factory=dict)


async def retrieve(
    collection: Collection, queries: Sequence[EncodedText], options: SearchOptions
) -> list[Matches]:
    """Find the documents that match each query, best first.

    Raises:
        StoreError: the store cannot be read.
    """
    searchers = collection.engine.searchers
    among, seconds = await _selected(collection, options)
    return [
        await run_in(searchers, _search, collection, query, options, among, seconds)
        for query in queries
    ]


async def retrieve_stored(
    collection: Collection, query: StoredQuery, options: SearchOptions
) -> tuple[EncodedText, Matches]:
    """Find the documents that match a stored one, which is read by the thread that searches.

    To hand it from one thread to another would take as long as to read it.

    Returns:
        The document, without block vectors, and its matches.

    Raises:
        DocumentNotFoundError: it does not exist.
        DamagedDocumentError: it is damaged.
        StoreError: the store cannot be read.
    """
    among, seconds = await _selected(collection, options)

    def find() -> tuple[EncodedText, Matches]:
        (text,) = find_all_stored(collection.data, [query])
        return text, _search(collection, text, options, among, seconds)

    return await run_in(collection.engine.searchers, find)


async def retrieve_by_examples(
    collection: Collection,
    like: Sequence[EncodedText],
    unlike: Sequence[EncodedText],
    options: SearchOptions,
) -> Matches:
    """Find the documents that match all of some texts, and none of others better, best first.

    Raises:
        StoreError: the store cannot be read.
    """
    searchers = collection.engine.searchers
    among, seconds = await _selected(collection, options)
    return await run_in(
        searchers, _search_by_examples, collection, like, unlike, options, among, seconds
    )


async def _selected(
    collection: Collection, options: SearchOptions
) -> tuple[IdSet | None, dict[Stage, float]]:
    if not selects(options):
        return None, {}
    return await run_in(collection.engine.searchers, _select, collection, options)


def _select(
    collection: Collection, options: SearchOptions
) -> tuple[IdSet | None, dict[Stage, float]]:
    """Return the documents that filters let through, and the time it took."""
    started = time.perf_counter()
    among = select_documents(collection.data, options)
    seconds: dict[Stage, float] = {"filter": time.perf_counter() - started}
    _observe(collection, seconds)
    return among, seconds


def _search(
    collection: Collection,
    text: EncodedText,
    options: SearchOptions,
    among: IdSet | None,
    selecting: Mapping[Stage, float],
) -> Matches:
    query = _to_query(text)
    answer = _find(collection, query, options, among)
    if among is None and options.mode != "lexical":  # recall is measured without filters
        collection.recall_monitor.offer(query.vector, stored=query.vector_id != NO_VECTOR)
    return _to_matches(answer, text.receipt, {**text.seconds, **selecting})


def _search_by_examples(
    collection: Collection,
    like: Sequence[EncodedText],
    unlike: Sequence[EncodedText],
    options: SearchOptions,
    among: IdSet | None,
    selecting: Mapping[Stage, float],
) -> Matches:
    examples = Examples(tuple(map(_to_query, like)), tuple(map(_to_query, unlike)))
    texts = [*like, *unlike]
    receipt = Receipt(*map(sum, zip(*(astuple(one.receipt) for one in texts), strict=True)))
    stages = {stage for one in texts for stage in one.seconds}
    encoding = {one: max(text.seconds.get(one, 0.0) for text in texts) for one in stages}
    answer = _find(collection, examples, options, among)
    return _to_matches(answer, receipt, {**encoding, **selecting})


def _to_query(text: EncodedText) -> EncodedQuery:
    blocks = None if text.blocks is None else text.blocks.vectors
    return EncodedQuery(text.text, text.vector, text.title, blocks, text.vector_id)


def _find(
    collection: Collection,
    query: EncodedQuery | Examples,
    options: SearchOptions,
    among: IdSet | None,
) -> SearchAnswer:
    answer = search(
        collection.data,
        query,
        options,
        fusion=collection.fusion,
        calibrator=collection.calibrator,
        among=among,
    )
    _observe(collection, dict(answer.seconds.items()))
    return answer


def _to_matches(answer: SearchAnswer, receipt: Receipt, before: Mapping[Stage, float]) -> Matches:
    """Return the answer to a query, given what was read of it and the time of earlier stages."""
    seconds: dict[Stage, float] = dict(answer.seconds.items())
    return Matches(
        matches=answer.hits,
        receipt=receipt,
        seconds={**before, **seconds},
        generation=answer.generation,
        sequence=answer.sequence,
        scored_as=answer.scored_as,
        alignment=answer.alignment,
    )


def _observe(collection: Collection, seconds: Mapping[Stage, float]) -> None:
    for stage, duration in seconds.items():
        observe_stage(collection.engine.metrics, stage, duration)
