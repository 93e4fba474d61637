"""The OpenAPI document: examples everywhere, and nothing that the served page cannot read."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.responses import JSONResponse

from service.app import describe_app
from service.compare.schemas import CompareRequest
from service.documents.schemas import IndexRequest
from service.embeddings.routes import EmbeddingsRequest
from service.errors import PROBLEM_TYPES
from service.gate import TIMEOUT_HEADER
from service.match.schemas import MatchRequest
from service.standing.schemas import StandingQueryRequest

BODIES = {
    "/match": MatchRequest,
    "/compare": CompareRequest,
    "/index": IndexRequest,
    "/v1/embeddings": EmbeddingsRequest,
    "/standing-queries": StandingQueryRequest,
}

TEXT = "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home."
COMPARED = {"left": {"text": TEXT}, "right": {"id": "bees"}}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe_app().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from nodes(value)


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the document, or the component that it refers to."""
    found: dict[str, Any] = document
    for name in node["$ref"].split("/")[1:] if "$ref" in node else ():
        found = found[name]
    return found if "$ref" in node else node


def test_paths_of_collections_are_described_alike(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for path, method, operation in operations(document):
        below = document["paths"].get(f"/collections/{{collection}}{path}", {}).get(method)
        if below is not None:
            mine, others = (
                {given["$ref"].rpartition("/")[2] for given in described.get("parameters", ())}
                for described in (below, operation)
            )
            assert mine == (others | {"collection"}) - {TIMEOUT_HEADER}
            assert below["responses"].keys() <= operation["responses"].keys()
            assert below["security"] == operation["security"]


def test_the_document_is_small_enough_to_be_read(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert len(JSONResponse(document).body) < 150_000


def test_every_operation_is_described_with_examples(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if path.startswith("/collections/{collection}/"):
            continue  # described where it has no collection
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        good = {code for code in operation["responses"] if code.startswith("2")}
        assert good, (method, path)
        if "requestBody" in operation:
            for content in operation["requestBody"]["content"].values():
                assert content["examples"], (method, path)
        for given in operation.get("parameters", []):
            parameter = resolved(document, given)
            assert "examples" in parameter or parameter["schema"]["type"] == "boolean"


def test_every_error_is_a_problem_that_is_named(document: dict[str, Any]) -> None:
    said = ""
    for path, method, operation in operations(document):
        assert "default" in operation["responses"], (method, path)
        for code, response in operation["responses"].items():
            if code.startswith("2"):
                continue
            found = resolved(document, response)
            content = found["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
            said += found["description"]
    assert all(f"`{name}`" in said for name in PROBLEM_TYPES)


@pytest.mark.parametrize("path", BODIES)
def test_the_example_requests_are_good(document: dict[str, Any], path: str) -> None:
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    for example in content["examples"].values():
        BODIES[path].model_validate(example["value"])


def test_limits_are_limits_of_the_schemas(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["MatchRequest"]["properties"]
    assert fields["top_k"]["anyOf"][0]["maximum"] == 1000
    assert fields["queries"]["anyOf"][0]["maxItems"] == 32
    assert {"type": "null"} in fields["mode"]["anyOf"]
    parameters = document["paths"]["/documents/{id}/similar"]["get"]["parameters"]
    known = {part["name"]: part for part in (resolved(document, given) for given in parameters)}
    assert known["top_k"]["schema"]["maximum"] == 1000  # what is absent is not null
