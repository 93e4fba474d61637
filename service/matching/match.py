"""The first visible way: a document -> the documents that match it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from index.directory.data_directory import DataDirectory
from index.vectors.vector_index import NO_VECTOR
from service.encode import EncodedText, PointedText, encode_texts
from service.engine import Engine
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.matching.calibration import refused_bounds
from service.matching.collapse import find_distinct
from service.matching.compare import Explaining, explain
from service.matching.queries import Query, Source, StoredQuery
from service.matching.rerank import Rerank, find_reranked, refused_reranking
from service.matching.retrieve import Matches, Search, Sought
from service.metrics import Stage
from service.threads import run_in


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """What to do for each query.

    Attributes:
        search: how many documents to find, and by what.
        rerank: how many of the first ones to read together with the query; None for none.
        explaining: which matches to explain, in their last order; nothing is encoded for it.
        strict: refuse rather than leave a part of a text out.
    """

    search: Search
    rerank: Rerank | None = None
    explaining: Explaining | None = None
    strict: bool = False


async def match(engine: Engine, queries: Sequence[Query], wanted: MatchOptions) -> list[Matches]:
    """Find the documents that match each query.

    Args:
        engine: what to search, and with what.
        queries: texts, which are encoded, or stored documents, whose vectors are used and which
            are left out of their own matches.
        wanted: of each.

    Raises:
        InvalidInputError: a number is over its limit, a bound cannot be kept because nothing was
            calibrated, there is no reranker, or a text is refused.
        DocumentNotFoundError: a stored document is not there.
        ServiceError: the other errors of `encode_texts`, or the reranker failed.
    """
    if refused := _refused(engine, queries, wanted):
        raise InvalidInputError(refused)
    sought = await _read_queries(engine, queries, strict=wanted.strict)
    if wanted.rerank is None:
        found = await find_distinct(engine, sought, wanted.search)
    else:
        found = await find_reranked(engine, sought, wanted.search, wanted.rerank)
    if wanted.explaining is None:
        return found
    return [
        await _explained(engine, query, matches, wanted.explaining)
        for query, matches in zip(sought, found, strict=True)
    ]


def _refused(engine: Engine, queries: Sequence[Query], wanted: MatchOptions) -> list[FieldError]:
    settings, search, explaining = engine.settings, wanted.search, wanted.explaining
    refused = []
    limit = settings.max_queries_per_request
    if len(queries) > limit:
        refused.append(FieldError("#/queries", f"has more than {limit} queries", limit))
    limit = settings.max_top_k
    if not 1 <= search.top_k <= limit:
        refused.append(FieldError("#/top_k", f"must be from 1 to {limit}", limit))
    limit = settings.max_explained_matches
    if explaining is not None and min(explaining.matches, search.top_k) * len(queries) > limit:
        detail = f"asks for more than {limit} explanations in one request"
        refused.append(FieldError("#/explain", detail, limit))
    refused += refused_bounds(engine.judge, search.mode, search.bounds)
    if wanted.rerank is not None:
        refused += refused_reranking(engine, search, wanted.rerank)
    return refused


async def _read_queries(engine: Engine, queries: Sequence[Query], *, strict: bool) -> list[Sought]:
    """Return each query as a vector, in their order; only texts are encoded."""
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, PointedText)]
    known = iter(await run_in(engine.readers, _find_stored, engine.data, stored) if stored else [])
    read = iter(await encode_texts(engine, texts, strict=strict))
    return [
        next(known) if isinstance(query, StoredQuery) else _sought_text(query, next(read))
        for query in queries
    ]


def _sought_text(query: PointedText, read: EncodedText) -> Sought:
    return Sought(
        query.text, read.vector, read.receipt, read.seconds, blocks=read.blocks, title=query.title
    )


def _find_stored(data: DataDirectory, queries: Sequence[StoredQuery]) -> list[Sought]:
    documents = data.store.find([query.document_id for query in queries])
    ids, rows = data.store.vectors([document.vector_id for document in documents.values()])
    vectors = dict(zip(ids.tolist(), rows, strict=True))
    sought = []
    for query in queries:
        document = documents.get(query.document_id)
        if document is None or document.vector_id not in vectors:
            raise DocumentNotFoundError(query.document_id, query.pointer)
        vector = vectors[document.vector_id]
        text, title = document.document.text, document.document.title
        sought.append(Sought(text, vector, document.receipt, {}, document.vector_id, title=title))
    return sought


async def _explained(
    engine: Engine, query: Sought, found: Matches, explaining: Explaining
) -> Matches:
    """Explain the first matches of a query."""
    started = time.perf_counter()
    blocks = query.blocks
    if query.itself != NO_VECTOR:
        stored = await run_in(engine.readers, engine.data.store.block_vectors, [query.itself])
        blocks = stored.get(query.itself)
    source = Source(None, "", query.text, query.vector, blocks, query.receipt)
    explained = await explain(engine, source, [match.id for match in found.matches], explaining)
    matches = tuple(replace(match, explained=explained.get(match.id)) for match in found.matches)
    seconds: dict[Stage, float] = {**found.seconds, "explain": time.perf_counter() - started}
    return replace(found, matches=matches, seconds=seconds)
