"""Retrieval: the search, run in search processes or threads, and measured."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.search.rank import selects
from index.search.records import (
    AlignmentReceipt,
    EncodedQuery,
    Examples,
    Hit,
    Mode,
    SearchOptions,
)
from index.vectors.vector_index import NO_VECTOR
from service.compare.logic import Explanation
from service.encode import EncodedText
from service.engine import Collection
from service.match.queries import StoredQuery, stored_text
from service.metrics import Stage
from service.searchers.protocol import Outcome, Task, perform
from service.telemetry import observe_stage
from service.threads import run_in
from service.workers.rerank_pool import RerankReceipt

MAX_TOP_K = 1000  # matches of one query: their titles and metadata are held in memory
DEFAULT_TOP_K = 10


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        matches: best first.
        receipt: what was read of the query.
        common_text: share of its words that count for nothing, as in `SearchAnswer`.
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
    common_text: float
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
    """Find the documents that match each query, best first."""
    searchers = collection.engine.searchers
    return [await run_in(searchers, _search, collection, query, options) for query in queries]


async def retrieve_stored(
    collection: Collection, query: StoredQuery, options: SearchOptions
) -> tuple[EncodedText, Matches]:
    """Find the documents that match a stored one, which is read where the search is done.

    To hand it from one thread to another would take as long as to read it.

    Returns:
        The document, without block vectors, and its matches.
    """
    return await run_in(collection.engine.searchers, _search_stored, collection, query, options)


async def retrieve_by_examples(
    collection: Collection,
    like: Sequence[EncodedText],
    unlike: Sequence[EncodedText],
    options: SearchOptions,
) -> Matches:
    """Find the documents that match all of some texts, and none of others better, best first."""
    searchers = collection.engine.searchers
    return await run_in(searchers, _search_by_examples, collection, like, unlike, options)


def _search(collection: Collection, text: EncodedText, options: SearchOptions) -> Matches:
    query = _to_query(text)
    outcome = _perform(collection, Task(query, options))
    _offer(collection, query.vector, options, stored=query.vector_id != NO_VECTOR)
    return _to_matches(outcome, text.receipt, text.seconds)


def _search_stored(
    collection: Collection, query: StoredQuery, options: SearchOptions
) -> tuple[EncodedText, Matches]:
    outcome = _perform(collection, Task(query.document_id, options, query.pointer))
    (found,) = outcome.stored
    text = stored_text(found.document, found.vector)
    _offer(collection, text.vector, options, stored=True)
    return text, _to_matches(outcome, text.receipt, {})


def _search_by_examples(
    collection: Collection,
    like: Sequence[EncodedText],
    unlike: Sequence[EncodedText],
    options: SearchOptions,
) -> Matches:
    examples = Examples(tuple(map(_to_query, like)), tuple(map(_to_query, unlike)))
    texts = [*like, *unlike]
    receipt = Receipt(*map(sum, zip(*(astuple(text.receipt) for text in texts), strict=True)))
    stages = {stage for text in texts for stage in text.seconds}
    encoding = {stage: max(text.seconds.get(stage, 0.0) for text in texts) for stage in stages}
    return _to_matches(_perform(collection, Task(examples, options)), receipt, encoding)


def _to_query(text: EncodedText) -> EncodedQuery:
    query = EncodedQuery(text.text, text.vector, text.title, vector_id=text.vector_id)
    if text.blocks is None:
        return query
    return replace(query, blocks=text.blocks.vectors, offsets=text.blocks.offsets)


def _perform(collection: Collection, task: Task) -> Outcome:
    """Search in a process, or in this thread where there is none that can; count the stages."""
    processes, served = collection.engine.search_processes, collection.served
    outcome = None if processes is None else processes.search(served, task)
    if outcome is None:
        outcome = perform(served.data, task, fusion=served.fusion, calibrator=served.calibrator)
    for stage, duration in outcome.seconds.items():
        observe_stage(collection.engine.metrics, stage, duration)
    return outcome


def _offer(
    collection: Collection, vector: Float32, options: SearchOptions, *, stored: bool
) -> None:
    """Let the recall of a search be measured, which is done without filters."""
    if not selects(options) and options.mode != "lexical":
        collection.recall_monitor.offer(vector, stored=stored)


def _to_matches(outcome: Outcome, receipt: Receipt, before: Mapping[Stage, float]) -> Matches:
    """Return the answer to a query, given what was read of it and the time of earlier stages."""
    answer = outcome.answer
    return Matches(
        matches=answer.hits,
        receipt=receipt,
        common_text=answer.common_text,
        seconds={**before, **outcome.seconds},
        generation=answer.generation,
        sequence=answer.sequence,
        scored_as=answer.scored_as,
        alignment=answer.alignment,
    )
