"""The Python client knows every route of the server and every field of its answers."""

import inspect
import re
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import longmatch
import pytest
from longmatch import AsyncClient, Client, collection, operations, requests, results, search, status
from longmatch import standing as standing_queries
from pydantic import TypeAdapter

from index.lexical.scoring import TermWeight
from service import schemas as common
from service.app import describe_app
from service.collections import routes as collections
from service.compare import schemas as compare
from service.documents import schemas as documents
from service.embeddings import routes as embeddings
from service.feedback import store as feedback_store
from service.map import routes as corpus_map
from service.match import retrieve
from service.match import schemas as match
from service.ops import routes as ops
from service.standing import schemas as standing
from service.text import routes as files
from service.uploads import store

PACKAGE = Path(longmatch.__file__).parent
README = PACKAGE.parent / "README.md"

ANSWERS: dict[type, type[Any]] = {
    results.Receipt: common.ReceiptBody, results.Place: compare.PlaceBody,
    results.Passage: compare.PassageBody, results.BlockPair: compare.BlockPairBody,
    results.AttendedPair: compare.AttendedPairBody, results.Section: compare.SectionBody,
    results.Explanation: compare.ComparisonBody, results.ReadSide: compare.ReadBody,
    results.Comparison: compare.CompareResponse, results.Match: match.MatchBody,
    results.Difference: compare.DifferenceBody, results.Differences: compare.DifferencesBody,
    results.Alignment: match.AlignedBody, results.Reranking: retrieve.RerankedBody,
    results.Matches: match.MatchResponse, results.Indexed: documents.IndexedBody,
    results.IndexResult: documents.IndexResponse,
    results.StoredDocument: documents.DocumentResponse,
    status.Upload: store.Upload, status.LineError: store.LineError,
    status.Job: store.JobResponse, status.Ready: ops.ReadyResponse,
    status.Checkpoint: ops.CheckpointBody,
    status.Version: ops.VersionResponse, status.CollectionSummary: collections.CollectionBody,
    status.CollectionState: collections.CollectionResponse,
    status.ProblemType: ops.ProblemType, status.FileText: files.FileTextResponse,
    status.FacetValue: documents.FacetValueBody, status.Facet: documents.FacetBody,
    status.MapCluster: corpus_map.Cluster, status.DocumentMap: corpus_map.MapResponse,
    results.FeedbackQuery: feedback_store.AskedBody, results.Feedback: feedback_store.Verdict,
    results.Member: documents.MemberBody, status.WebhookState: standing.Webhook,
    status.StandingQuery: standing.StandingQuery, results.Event: standing.Event,
    requests.Webhook: standing.WebhookRequest, requests.Document: documents.DocumentBody,
    requests.Align: match.AlignBody, requests.Rerank: match.RerankBody,
    requests.Explain: match.ExplainBody,
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_class_has_the_fields_of_the_server(kind: Any) -> None:
    shown = TypeAdapter(ANSWERS[kind]).json_schema(mode="serialization")["properties"]
    assert names(kind) == shown.keys()


def names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_option_of_a_request_can_be_given() -> None:
    assert names(results.Term) == names(TermWeight)
    known = match.MatchRequest.model_fields.keys()
    assert names(search.MatchOptions) == known - {
        *("text", "title", "id", "queries", "like", "unlike"),
    }
    known = standing.StandingQueryRequest.model_fields.keys()
    assert names(longmatch.StandingOptions) == known - {"text", "title", "id", "webhook"}


def test_every_result_is_compared() -> None:
    # Parts of the first two are read; lines of pairs have no schema; a term is a dataclass there.
    mine = {results.Embedding, status.Model, results.Pair, results.Term}
    declared = {
        var
        for module in (results, status)
        for var in vars(module).values()
        if hasattr(var, "__dataclass_fields__")
    }
    assert declared - mine <= ANSWERS.keys()
    assert names(status.Model) < embeddings.ModelBody.model_fields.keys()


def test_every_route_has_a_method() -> None:
    """By the README, whose table names the requests of each method."""
    paths = describe_app().openapi()["paths"]
    # Those below a collection are the same, of `client.in_collection`.
    own = {path: item for path, item in paths.items() if "/{collection}/" not in path}
    routes = {f"{method.upper()} {path}" for path, item in own.items() for method in item}
    table = README.read_text(encoding="utf-8")
    assert set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`", table)) == routes


def test_both_clients_have_every_method() -> None:
    built = {
        name
        for module in (search, standing_queries, collection, operations)
        for name, var in vars(module).items()
        if getattr(var, "__module__", "") == module.__name__
        and callable(var)
        and name[0] != "_"
        and name[0].islower()
    }
    shared = {"close", "with_timeout", "with_retry", "in_collection"}
    for client in (Client, AsyncClient):
        methods = {name for name in dir(client) if name[0] != "_"}
        assert methods == built | shared
    text = README.read_text(encoding="utf-8")
    assert [name for name in built | shared - {"close"} if f"{name}(" not in text] == []


def test_help_shows_what_a_method_takes_and_returns() -> None:
    for client, iterator in ((Client, Iterator), (AsyncClient, AsyncIterator)):
        shown = inspect.signature(client.match)
        assert list(shown.parameters) == ["self", "query", "options"]
        assert shown.return_annotation is results.Matches
        assert inspect.signature(client.delete).return_annotation is None
        documents_of = inspect.signature(client.documents).return_annotation
        assert documents_of == iterator[results.StoredDocument]


RETRIEVERS = {PACKAGE / f"{name}.py" for name in ("haystack", "langchain", "llama_index")}


def test_the_package_is_typed_and_needs_httpx_alone() -> None:
    assert (PACKAGE / "py.typed").exists()
    imported = {
        found
        for path in set(PACKAGE.glob("*.py")) - RETRIEVERS
        for found in re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert imported - sys.stdlib_module_names - {"longmatch"} == {"httpx"}
