"""What is decided about a body before it is read: by its path, its method, its type, its length."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest

from service.body import TimedBody
from service.errors import UploadTooSlowError
from tests.kit.problems import problem

JSON = "application/json"
NDJSON = "application/x-ndjson"
JSON_ROUTES = ["/match", "/compare", "/index"]


async def never() -> AsyncIterator[bytes]:
    pytest.fail("the body was read")
    yield b""


async def unfinished() -> AsyncIterator[bytes]:
    yield b"x" * 1000
    await asyncio.sleep(60)


def unread(client: Any, method: str, path: str, **headers: str) -> httpx.Response:
    """Send a body that must not be read."""
    url = f"http://localhost{path}"
    answer: httpx.Response = client.request(method, url, content=never(), headers=headers)
    return answer


def dropped(client: Any, method: str, path: str, **headers: str) -> httpx.Response:
    """Send a body that never ends and that must not be waited for."""
    answer: httpx.Response = client.request(method, path, content=unfinished(), headers=headers)
    return answer


async def some_part() -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"type": "http.request", "more_body": True}


def test_a_body_has_ten_seconds_and_one_for_each_64_kib(library: Any) -> None:
    with library.app.state.engine.scheduler.reserve(1) as reservation:
        body = TimedBody(some_part, reservation, cast(Any, None), repr, 2**23)
        body.received, body.waited = 64 * 64 * 1024, 4.0 + 64
        asyncio.run(body.receive())
        body.waited = 11.0 + 64
        with pytest.raises(UploadTooSlowError):
            asyncio.run(body.receive())


@pytest.mark.parametrize("path", ["//x", "/nowhere", "/match/", "/problems/a/b", "/docs/more"])
def test_a_body_to_a_path_that_does_not_exist_is_not_read(library: Any, path: str) -> None:
    problem(unread(library, "POST", path), 404, "no-such-route")


@pytest.mark.parametrize(
    "path",
    [
        "/version",
        "/livez",
        "/readyz",
        "/metrics",
        "/jobs",
        "/",
        "/docs",
        "/openapi.json",
    ],
)
def test_a_body_for_a_method_that_does_not_exist_is_not_read(library: Any, path: str) -> None:
    response = unread(library, "POST", path)
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/livez", "/version", "/documents/ants", "/docs", "/jobs"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_that_a_resource_does_not_take_is_not_waited_for(
    library: Any, path: str, method: str
) -> None:
    assert dropped(library, method, path, **{"content-length": "100"}).status_code == 200


def test_a_body_is_not_waited_for_where_a_post_takes_none(library: Any) -> None:
    problem(dropped(library, "POST", "/jobs/none/cancel"), 404, "job-not-found")
    response = dropped(library, "POST", "/docs/static/swagger-ui.css")
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize("kind", [NDJSON, "text/plain", "application/jsonlines", "json", ""])
def test_the_type_of_a_body_is_judged_before_it_is_read(library: Any, path: str, kind: str) -> None:
    if (path, kind) != ("/index", NDJSON):
        problem(
            unread(library, "POST", path, **{"content-type": kind}), 415, "unsupported-media-type"
        )


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.a+json"]
)
def test_every_spelling_of_json_is_accepted(library: Any, kind: str) -> None:
    headers = {"content-type": kind}
    assert library.post("/match", content=b'{"id": "ants"}', headers=headers).status_code == 200


@pytest.mark.parametrize("length", ["2001", "9" * 30])
def test_an_upload_that_is_announced_too_large_is_not_read(make_client: Any, length: str) -> None:
    client = make_client(max_upload_bytes=2000)
    response = unread(
        client, "POST", "/index", **{"content-type": NDJSON, "content-length": length}
    )
    problem(response, 413, "body-too-large")
    assert response.json()["limit"] == 2000


def test_each_allowed_method_is_named_once(library: Any) -> None:
    response = library.request("PUT", "/documents/ants/family")
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "DELETE, GET, HEAD"


@pytest.mark.parametrize(
    "path",
    ["/livez", "/version", "/documents", "/documents/ants", "/documents/ants/similar", "/docs"],
)
def test_head_answers_as_get_does_without_a_body(library: Any, path: str) -> None:
    full, head = library.get(path), library.request("HEAD", path)
    assert head.status_code == full.status_code == 200
    assert head.content == b""
    for name in ("content-type", "content-length"):
        assert len(head.headers[name]) >= len(full.headers[name]) - 1
