"""The OpenAPI document: examples everywhere, and nothing that the served page cannot read."""

import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from fastapi.responses import JSONResponse

from index.search.calibrate import ScoreCalibrator
from index.search.corpus_calibration import CorpusCalibration, NullDistribution
from index.search.records import Mode
from service.app import create_app
from service.compare.schemas import CompareRequest
from service.documents.schemas import IndexRequest
from service.embeddings.routes import EmbeddingsRequest
from service.gate import TIMEOUT_HEADER
from service.match.schemas import MatchRequest
from service.problems import PROBLEM_TYPES
from service.settings import Settings
from service.standing.schemas import StandingQueryRequest
from tests.kit.calibrations import RULE, STATISTICS, of_checkpoint
from tests.kit.service_fixtures import with_parts

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
    return create_app(Settings()).openapi()


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


def test_every_operation_has_examples_of_question_and_answer(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if path.startswith("/collections/{collection}/"):
            continue  # described where it has no collection
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        good = {code for code in operation["responses"] if code.startswith("2")}
        assert good, (method, path)
        for code in good - {"204"}:
            for content in operation["responses"][code]["content"].values():
                assert content["examples"], (method, path)
        if "requestBody" in operation:
            for content in operation["requestBody"]["content"].values():
                assert content["examples"], (method, path)
        for given in operation.get("parameters", []):
            parameter = resolved(document, given)
            assert "examples" in parameter or parameter["schema"]["type"] == "boolean"


def test_every_error_is_a_problem_with_an_example(document: dict[str, Any]) -> None:
    seen = set()
    for path, method, operation in operations(document):
        assert "default" in operation["responses"], (method, path)
        for code, response in operation["responses"].items():
            if code.startswith("2"):
                continue
            content = resolved(document, response)["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
            for name, example in content["examples"].items():
                value = resolved(document, example)["value"]
                assert PROBLEM_TYPES[name].status == value["status"]
                seen.add(name)
    assert seen == set(PROBLEM_TYPES)


@pytest.mark.parametrize("path", BODIES)
def test_the_example_requests_are_good(document: dict[str, Any], path: str) -> None:
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    for example in content["examples"].values():
        BODIES[path].model_validate(example["value"])


REAL_ANSWERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("post", "/match"): lambda client: measured(client).post(
        "/match", json={"text": TEXT, "mode": "hybrid", "explain": True}
    ),
    ("post", "/compare"): lambda client: measured(client).post("/compare", json=COMPARED),
    ("post", "/index"): lambda client: client.post(
        "/index", json={"documents": [{"id": "a", "text": "b"}]}
    ),
    ("post", "/v1/embeddings"): lambda client: client.post(
        "/v1/embeddings", json={"input": TEXT, "model": "longmatch"}
    ),
    ("get", "/v1/models"): lambda client: client.get("/v1/models"),
    ("get", "/v1/models/{model}"): lambda client: client.get("/v1/models/longmatch"),
    ("get", "/documents"): lambda client: client.get("/documents?limit=1"),
    ("get", "/documents/{id}"): lambda client: client.get("/documents/bees"),
    ("get", "/documents/{id}/similar"): lambda client: measured(client).get(
        "/documents/bees/similar"
    ),
    ("get", "/documents/{id}/family"): lambda client: with_a_copy(client).get(
        "/documents/bees/family"
    ),
    ("get", "/jobs"): lambda client: client.get(upload(client)[:5]),
    ("get", "/jobs/{id}"): lambda client: client.get(upload(client)),
    ("get", "/standing-queries"): lambda client: client.get(standing_query(client)[:17]),
    ("get", "/standing-queries/events"): lambda client: client.get(
        f"{standing_query(client)[:17]}/events"
    ),
    ("get", "/standing-queries/{id}"): lambda client: client.get(standing_query(client)),
    ("get", "/version"): lambda client: measured(client).get("/version"),
    ("get", "/collections"): lambda client: client.get("/collections"),
    ("get", "/collections/{collection}"): lambda client: measured(client).get(
        "/collections/default"
    ),
}


@pytest.mark.parametrize(("method", "path"), REAL_ANSWERS)
def test_the_example_answers_have_the_fields_of_a_real_one(
    document: dict[str, Any], filled: Any, method: str, path: str
) -> None:
    content = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]
    example = content["examples"]["answer"]["value"]
    real = REAL_ANSWERS[method, path](filled).json()
    assert shape(example) == shape(real, example)


def standing_query(client: Any) -> str:
    """Make a standing query with a webhook, and another one with an event; return its path."""
    webhook = {"url": "https://hooks.invalid/"}  # which gets nothing: no document is the same
    body = {"text": "The tribunal.", "min_score": 1, "mode": "lexical", "webhook": webhook}
    path: str = client.post("/standing-queries", json=body).headers["location"]
    client.post("/standing-queries", json={"text": TEXT, "min_score": -1})
    client.post("/index", json={"documents": [{"id": "new", "text": "Bees."}]})
    while not client.get("/standing-queries/events").json()["events"]:
        time.sleep(0.01)
    return path


def with_a_copy(client: Any) -> Any:
    """Return a client of the same engine, which now has another document of the text of bees."""
    text = client.get("/documents/bees?text=true").json()["text"]
    client.post("/index", json={"documents": [{"id": "bees-2", "text": text}]})
    return client


def upload(client: Any) -> str:
    """Return where a job is that has ended, with a line that is refused."""
    lines = {"content-type": "application/x-ndjson"}
    location = client.post("/index", content=b"{}", headers=lines).headers["location"]
    while client.get(location).json()["state"] != "done":
        time.sleep(0.01)
    return str(location)


def measured(client: Any) -> Any:
    """Return a client of the same engine, as if its data directory had been calibrated."""
    pairs = NullDistribution(400, 79_800, (-1.0, 1.0), (1.0, 0.001))
    engine = client.app.state.engine
    kinds = dict.fromkeys(get_args(Mode), pairs)
    judge = ScoreCalibrator(of_checkpoint(), CorpusCalibration("f", STATISTICS, RULE, kinds), "1")
    return type(client)(create_app(engine.settings, with_parts(engine, calibrator=judge)))


def shape(value: Any, example: Any = None) -> Any:
    """Return the field names of an answer, all the way down but for metadata.

    Null is left out where the example has no such field: FastAPI takes nulls out of examples.
    """
    if isinstance(value, dict):
        known = example if isinstance(example, dict) else {}
        return {
            name: shape(part, known.get(name))
            for name, part in value.items()
            if name != "metadata" and not (example and part is None and name not in known)
        }
    if not isinstance(value, list):
        return None
    first = example[0] if isinstance(example, list) and example else None
    return [shape(part, first) for part in value[:1]]


def test_limits_are_limits_of_the_schemas(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["MatchRequest"]["properties"]
    assert fields["top_k"]["anyOf"][0]["maximum"] == 1000
    assert fields["queries"]["anyOf"][0]["maxItems"] == 32
    assert {"type": "null"} in fields["mode"]["anyOf"]
    parameters = document["paths"]["/documents/{id}/similar"]["get"]["parameters"]
    known = {part["name"]: part for part in (resolved(document, given) for given in parameters)}
    assert known["top_k"]["schema"]["anyOf"][0]["maximum"] == 1000
