"""Matching: the right documents, in the right order, and as many as were requested."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from index.document import Document
from index.search.records import NO_BOUNDS, Bounds, SearchOptions
from service.documents import index_documents
from service.encode import RequestText
from service.engine import Engine
from service.errors import DocumentNotFoundError, InvalidInputError, OverloadedError
from service.matching.match import MatchOptions, match
from service.matching.queries import Query, StoredQuery
from service.matching.retrieve import Matches


def text(content: str) -> RequestText:
    return RequestText("#/text", content)


def stored(document_id: str) -> StoredQuery:
    return StoredQuery("#/id", document_id)


def ask(
    engine: Engine, *queries: Query, top_k: int = 10, bounds: Bounds = NO_BOUNDS, **more: Any
) -> list[Matches]:
    options = MatchOptions(search=SearchOptions(top_k=top_k, bounds=bounds), **more)
    return asyncio.run(match(engine.default, queries, options))


def store(engine: Engine, documents: dict[str, str]) -> None:
    asyncio.run(
        index_documents(
            engine.default, [Document(name, content) for name, content in documents.items()]
        )
    )


def ids(matches: Matches) -> list[str]:
    return [one.id for one in matches.matches]


def counted(engine: Engine, name: str) -> float:
    return engine.metrics.registry.get_sample_value(name) or 0.0


@pytest.fixture
def holding(engine: Engine, texts: dict[str, str]) -> Engine:
    """Return an engine that holds the texts."""
    store(engine, texts)
    return engine


def test_a_stored_text_matches_itself_best(holding: Engine, texts: dict[str, str]) -> None:
    (found,) = ask(holding, text(texts["bees"]))
    assert ids(found)[0] == "bees"
    assert found.matches[0].score == pytest.approx(1.0, abs=1e-4)
    assert sorted(ids(found)) == sorted(texts)
    scores = [one.score for one in found.matches]
    assert scores == sorted(scores, reverse=True)
    assert all(-1.0 <= score <= 1.0 for score in scores)


def test_a_match_by_id_leaves_itself_out_and_encodes_nothing(
    holding: Engine, texts: dict[str, str]
) -> None:
    before = counted(holding, "longmatch_encoded_blocks_total")
    (found,) = ask(holding, stored("bees"))
    assert counted(holding, "longmatch_encoded_blocks_total") == before
    (by_text,) = ask(holding, text(texts["bees"]))
    assert ids(found) == ids(by_text)[1:]
    assert found.receipt == by_text.receipt
    searching = {"lexical", "search", "align", "fetch"}
    assert set(found.seconds) == searching
    assert set(by_text.seconds) == {"tokenize", "queue", "encode", *searching}


def test_a_copy_under_another_id_is_a_match(holding: Engine, texts: dict[str, str]) -> None:
    store(holding, {"copy": texts["bees"]})
    (found,) = ask(holding, stored("bees"), top_k=1)
    assert ids(found) == ["copy"]


@pytest.mark.parametrize("top_k", [1, 3, 4, 1000])
def test_top_k_matches_are_returned_if_so_many_exist(holding: Engine, top_k: int) -> None:
    (by_text,) = ask(holding, text("Insects live together."), top_k=top_k)
    (by_id,) = ask(holding, stored("ants"), top_k=top_k)
    assert len(by_text.matches) == min(top_k, 4)
    assert len(by_id.matches) == min(top_k, 3)


def test_no_match_is_under_min_score(holding: Engine) -> None:
    (everything,) = ask(holding, stored("ants"))
    middle = everything.matches[1].score
    (some,) = ask(holding, stored("ants"), bounds=Bounds(min_score=middle))
    assert ids(some) == ids(everything)[:2]
    (none,) = ask(holding, stored("ants"), bounds=Bounds(min_score=1.0))
    assert ids(none) == []


def test_documents_deleted_since_the_search_do_not_cost_a_place(engine: Engine) -> None:
    store(engine, {f"d{n}": f"{'ants ' * n}and bees live in colonies." for n in range(1, 40)})
    (everything,) = ask(engine, stored("d1"), top_k=38)
    # The store forgets them and the index does not know it yet, as between search and fetch.
    engine.default.data.store.delete(ids(everything)[:20])
    (found,) = ask(engine, stored("d1"), top_k=10)
    assert ids(found) == ids(everything)[20:30]
    (rest,) = ask(engine, stored("d1"), top_k=30)
    assert ids(rest) == ids(everything)[20:]


def test_several_queries_answer_as_each_alone(holding: Engine, texts: dict[str, str]) -> None:
    queries = [text(texts["ants"] * 9), stored("bees"), text("A tribunal."), stored("ants")]
    together = ask(holding, *queries, top_k=2)
    for query, found in zip(queries, together, strict=True):
        (alone,) = ask(holding, query, top_k=2)
        assert ids(found) == ids(alone)
        assert [one.score for one in found.matches] == pytest.approx(
            [one.score for one in alone.matches], abs=1e-4
        )
        assert found.receipt == alone.receipt


def test_an_empty_index_has_no_match(engine: Engine) -> None:
    (found,) = ask(engine, text("Is anything here?"))
    assert found.matches == ()


def test_an_unknown_id_is_named(holding: Engine) -> None:
    with pytest.raises(DocumentNotFoundError, match="'wasps'") as caught:
        ask(holding, stored("ants"), StoredQuery("#/queries/1/id", "wasps"))
    assert caught.value.pointer == "#/queries/1/id"


@pytest.mark.parametrize("top_k", [0, -1, 1001])
def test_top_k_has_its_limits(holding: Engine, top_k: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask(holding, stored("ants"), top_k=top_k)
    (error,) = caught.value.errors
    assert (error.pointer, error.limit) == ("#/top_k", 1000)


def test_too_many_queries_are_refused(holding: Engine) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask(holding, *([stored("ants")] * 33))
    (error,) = caught.value.errors
    assert (error.pointer, error.limit) == ("#/queries", 32)


@pytest.mark.parametrize("content", ["", "  \n\t ", "\x00\x00", "\u200b\ufeff"])
def test_a_text_without_a_token_is_refused_by_place(holding: Engine, content: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask(holding, text("Good."), RequestText("#/queries/1/text", content))
    (error,) = caught.value.errors
    assert error.pointer == "#/queries/1/text"
    assert "empty" in error.detail


def test_a_text_over_the_limit_of_characters_is_refused(
    make_client: Callable[..., Any],
) -> None:
    engine = make_client(max_text_characters=100).app.state.engine
    ask(engine, text("a" * 100))
    with pytest.raises(InvalidInputError) as caught:
        ask(engine, text("a" * 101))
    (error,) = caught.value.errors
    assert (error.pointer, error.limit) == ("#/text", 100)


def test_what_is_left_out_is_in_the_receipt_and_strict_refuses(holding: Engine) -> None:
    long = text("Ants carry leaves to the colony every day. " * 200)
    (found,) = ask(holding, long)
    receipt = found.receipt
    assert receipt.tokens_read < receipt.tokens
    assert receipt.blocks == 64
    assert receipt.blocks_left_out > 0
    left_out = receipt.tokens - receipt.tokens_read
    assert counted(holding, "longmatch_documents_truncated_total") == 1
    assert counted(holding, "longmatch_tokens_left_out_total") == left_out
    with pytest.raises(InvalidInputError) as caught:
        ask(holding, long, strict=True)
    (error,) = caught.value.errors
    assert (error.pointer, error.tokens) == ("#/text", receipt.tokens)
    assert error.limit == receipt.tokens_read
    ask(holding, text("Short enough."), strict=True)


def test_overload_is_reported_before_the_text_is_tokenised(holding: Engine) -> None:
    before = counted(holding, "longmatch_document_tokens_count")
    with holding.scheduler.reserve(4096), pytest.raises(OverloadedError):
        ask(holding, text("Any text."))
    assert counted(holding, "longmatch_document_tokens_count") == before
    ask(holding, text("Any text."))


def test_a_match_by_id_is_answered_while_the_queue_is_full(holding: Engine) -> None:
    with holding.scheduler.reserve(4096):
        (found,) = ask(holding, stored("ants"))
    assert len(found.matches) == 3
