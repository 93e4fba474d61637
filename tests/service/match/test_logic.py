"""Matching: the right documents, in the right order, and as many as were requested."""

import asyncio

import pytest

from index.document import Document
from service.documents.logic import index_documents
from service.encode import Query, RequestText, StoredQuery
from service.engine import Engine
from service.errors import OverloadedError
from service.match.logic import match
from service.match.retrieve import Matches
from service.match.schemas import MatchRequest
from tests.kit.service_fixtures import counted


def text(content: str) -> RequestText:
    return RequestText("#/text", content)


def stored(document_id: str) -> StoredQuery:
    return StoredQuery("#/id", document_id)


def ask(engine: Engine, *queries: Query, top_k: int = 10) -> list[Matches]:
    request = MatchRequest.model_construct(top_k=top_k)
    return asyncio.run(match(engine.default, queries, request))


def store(engine: Engine, documents: dict[str, str]) -> None:
    asyncio.run(
        index_documents(
            engine.default, [Document(name, content) for name, content in documents.items()]
        )
    )


def ids(matches: Matches) -> list[str]:
    return [hit.id for hit in matches.answer.hits]


@pytest.fixture
def holding(engine: Engine, texts: dict[str, str]) -> Engine:
    """Return an engine that holds the texts."""
    store(engine, texts)
    return engine


def test_a_match_by_id_leaves_itself_out_and_encodes_nothing(
    holding: Engine, texts: dict[str, str]
) -> None:
    before = counted(holding, "longmatch_encoded_blocks_total")
    (found,) = ask(holding, stored("bees"))
    assert counted(holding, "longmatch_encoded_blocks_total") == before
    (by_text,) = ask(holding, text(texts["bees"]))
    assert ids(found) == ids(by_text)[1:]
    assert found.receipt == by_text.receipt
    store(holding, {"copy": texts["bees"]})
    assert ids(ask(holding, stored("bees"), top_k=1)[0]) == ["copy"]
    searching = {"lexical", "search", "align", "fetch"}
    assert set(found.seconds) == searching
    assert set(by_text.seconds) == {"tokenize", "queue", "encode", *searching}


def test_overload_is_reported_before_the_text_is_tokenised(holding: Engine) -> None:
    before = counted(holding, "longmatch_document_tokens_count")
    with holding.scheduler.reserve(4096):
        (by_id,) = ask(holding, stored("ants"))
        assert len(by_id.answer.hits) == 3
        with pytest.raises(OverloadedError):
            ask(holding, text("Any text."))
    assert counted(holding, "longmatch_document_tokens_count") == before
    ask(holding, text("Any text."))
