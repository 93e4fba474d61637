"""POST /v1/embeddings and GET /v1/models as a client sees them."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from service.embeddings.routes import NAME
from service.workers.scheduler import EncodeScheduler

PATH = "/v1/embeddings"
TEXT = "Bees live in hives. Each hive has a queen."


def ask(client: Any, given: object, **fields: Any) -> Any:
    return client.post(PATH, json={"model": NAME, "input": given, **fields})


def vectors(client: Any, given: object, **fields: Any) -> list[Any]:
    response = ask(client, given, **fields)
    assert response.status_code == 200, response.text
    return [item["embedding"] for item in response.json()["data"]]


def refused(response: Any, status: int, name: str) -> dict[str, Any]:
    """Check that a response is a problem, and the same error in OpenAI's shape; return this."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["type"] == f"/problems/{name}"
    error = content["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == name.replace("-", "_")
    assert content["detail"] in error["message"]
    return dict(error)


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("it was encoded")


def test_a_vector_is_the_one_that_is_stored(filled: Any, texts: dict[str, str]) -> None:
    store = filled.app.state.engine.default.data.store
    answer = ask(filled, list(texts.values())).json()
    assert [first["index"] for first in answer["data"]] == list(range(len(texts)))
    for first, name in zip(answer["data"], texts, strict=True):
        document = store.find([name])[name]
        _, [vector] = store.vectors([document.vector_id])
        assert np.linalg.norm(first["embedding"]) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(first["embedding"], vector, atol=1e-6)
        assert first["receipt"] == asdict(document.receipt)
    tokens = sum(first["receipt"]["tokens_read"] for first in answer["data"])
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_a_text_alone_is_a_list_of_one(library: Any) -> None:
    assert vectors(library, TEXT) == vectors(library, [TEXT])


def test_base64_has_the_same_numbers(library: Any) -> None:
    [plain] = vectors(library, TEXT, encoding_format="float")
    [packed] = vectors(library, TEXT, encoding_format="base64")
    unpacked = np.frombuffer(base64.b64decode(packed), "<f4")
    assert unpacked.tolist() == plain


def test_what_is_optional_may_be_null_or_ignored(library: Any) -> None:
    dimension = library.app.state.engine.encoder.dimension
    plain = vectors(library, TEXT)
    nothing = dict.fromkeys(("encoding_format", "dimensions", "user"))
    assert vectors(library, TEXT, **nothing) == plain
    assert vectors(library, TEXT, dimensions=dimension, user="ana") == plain


def test_the_model_has_two_names(library: Any) -> None:
    name = library.app.state.engine.encoder.checkpoint.name
    for given in (name, NAME):
        assert ask(library, TEXT, model=given).json()["model"] == name
        assert library.get(f"/v1/models/{given}").json()["id"] == name
    [listed] = library.get("/v1/models").json()["data"]
    assert listed == {"id": name, "object": "model", "created": 0, "owned_by": "longmatch"}


def test_another_model_is_not_found(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncodeScheduler, "encode", never)
    error = refused(ask(library, TEXT, model="text-embedding-3"), 404, "model-not-found")
    assert error["param"] == "model"
    assert repr(library.app.state.engine.encoder.checkpoint.name) in error["message"]
    assert refused(library.get("/v1/models/a/b"), 404, "model-not-found")["param"] is None


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"input": [1, 2]}, "input", "must be text: token ids are those of another tokenizer"),
        ({"input": ["a", 1]}, "input", "must be text: token ids"),
        ({"input": []}, "input", "must have at least one text"),
        ({"input": 1}, "input", "must be a text or a list of texts"),
        ({"input": [None]}, "input", "must be a text or a list of texts"),
        ({"input": ""}, "input", "input "),
        ({"input": ["a", " \n"]}, "input.1", "input.1 "),
        ({"input": ["a", "\ud800"]}, "input.1", "has a lone surrogate"),
        ({"input": "a", "dimensions": 7}, "dimensions", "cannot be shortened"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ([], None, "object"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    library: Any, body: Any, param: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncodeScheduler, "encode", never)
    if isinstance(body, dict):
        body = {"model": NAME, **body}
    content, headers = json.dumps(body), {"content-type": "application/json"}
    error = refused(library.post(PATH, content=content, headers=headers), 422, "invalid-input")
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert message in error["message"]


def test_more_texts_than_the_limit_are_refused_before_the_work(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncodeScheduler, "encode", never)
    response = ask(library, [TEXT] * 2049)
    refused(response, 422, "invalid-input")
    assert response.json()["errors"] == [
        {"pointer": "#/input", "detail": "has more than 2048 texts", "limit": 2048}
    ]


def test_a_long_text_is_read_in_part_or_refused(library: Any) -> None:
    long = "Ants dig. " * 2000
    [read] = ask(library, long).json()["data"]
    assert read["receipt"]["blocks_left_out"] > 0
    error = refused(ask(library, ["a", long], strict=True), 422, "invalid-input")
    assert error["param"] == "input.1"


def test_tokens_are_charged(make_client: Callable[..., Any]) -> None:
    client = make_client(rate_limit_tokens_per_minute=1000)
    first, second = (ask(client, "ants " * 500) for _ in range(2))
    assert first.status_code == 200
    assert "RateLimit" in first.headers
    error = refused(second, 429, "rate-limited")
    assert error["type"] == "rate_limit_error"
    assert int(second.headers["retry-after"]) >= 1


def test_a_deadline_and_a_full_server_are_obeyed(
    make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(max_active_requests=1)

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(EncodeScheduler, "encode", hang)
        late = client.post(
            PATH, json={"model": NAME, "input": "a"}, headers={"X-Request-Timeout-Ms": "50"}
        )
    assert refused(late, 504, "deadline-passed")["type"] == "server_error"
    with client.app.state.engine.admission.admit():
        response = ask(client, "a")
    assert refused(response, 503, "overloaded")["type"] == "server_error"
    assert int(response.headers["retry-after"]) >= 1
    assert ask(client, "a").status_code == 200


def test_every_error_below_v1_has_openais_shape_and_no_other(library: Any) -> None:
    headers = {"content-type": "application/json"}
    refused(library.post(PATH, content=b"{", headers=headers), 400, "malformed-body")
    refused(library.post(PATH, content=b"a"), 415, "unsupported-media-type")
    refused(library.get(PATH), 405, "method-not-allowed")
    refused(library.get("/v1/files"), 404, "no-such-route")
    assert "error" not in library.get("/documents/none").json()
