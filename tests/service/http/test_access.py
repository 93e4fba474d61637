"""Who may do what: API keys, their scopes, and the log of changes."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Body

from index.directory.data_directory import KEY_FILE
from service.access import AUDIT_FILE
from service.app import check_exposure
from service.deps import CollectionDep
from service.errors import SettingsError
from service.gate import declare
from service.keys import SCOPES, Scope, change_keys, make_key, split_token
from service.openapi import READ, Router
from service.telemetry import configured_logs
from tests.kit.service_fixtures import counted

DOCUMENT = {"id": "ants", "text": "Ants find short paths to their food."}
READS = [
    ("POST", "/match", {"text": "ants"}),
    ("POST", "/compare", {"left": {"text": "ants"}, "right": {"text": "bees"}}),
    ("POST", "/v1/embeddings", {"input": "ants", "model": "longmatch"}),
    ("GET", "/v1/models", None),
    ("GET", "/documents", None),
    ("GET", "/documents/ants", None),
    ("HEAD", "/documents/ants", None),
    ("GET", "/documents/ants/similar", None),
    ("GET", "/pairs?min_score=0", None),
    ("GET", "/standing-queries", None),
    ("GET", "/standing-queries/events", None),
    ("GET", "/version", None),
]
WRITES = [
    ("POST", "/index", {"documents": [DOCUMENT]}),
    ("GET", "/jobs", None),
    ("POST", "/standing-queries", {"text": "ants", "min_score": 0}),
    ("GET", "/feedback", None),
    ("DELETE", "/documents/nothing", None),
]
PROBES = ["/livez", "/readyz"]


def holding(client: Any) -> Any:
    assert client.post("/index", json={"documents": [DOCUMENT]}).status_code == 200
    return client


@pytest.fixture
def client(make_client: Callable[..., Any]) -> Any:
    return holding(make_client(open_information=False, rate_limit_tokens_per_minute=60_000))


@pytest.fixture(scope="module")
def locked(make_shared_client: Callable[..., Any]) -> Any:
    """Return a client of a service that asks for keys."""
    made = make_shared_client(open_information=False, rate_limit_tokens_per_minute=60_000)
    token_of(keys_of(holding(made)), "read")
    return made


def keys_of(client: Any) -> Path:
    path: Path = client.app.state.engine.settings.data / KEY_FILE
    return path


@pytest.fixture
def keys(client: Any) -> Path:
    return keys_of(client)


def token_of(keys: Path, *scopes: Scope) -> str:
    key, token = make_key(f"a {'-'.join(scopes)} key", frozenset(scopes), None)
    change_keys(keys, lambda known: known.update({key.id: key}))
    return token


def ask(client: Any, method: str, path: str, body: object = None, token: str | None = None) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return client.request(method, path, json=body, headers=headers)


def assert_refused(response: Any, status: int, name: str) -> None:
    assert response.status_code == status
    if response.request.method != "HEAD":
        assert response.json()["type"] == f"/problems/{name}"
    assert ("www-authenticate" in response.headers) == (status == 401)


def every_request(client: Any) -> Iterator[tuple[str, str]]:
    """Yield method and path of every route."""
    names = {
        "{id:path}": "ants",
        "{id}": "x",
        "{name}": "x",
        "{collection}": "default",
        "{model:path}": "x",
    }
    for route in client.app.router.routes:
        path = route.path
        for name, value in names.items():
            path = path.replace(name, value)
        for method in getattr(route, "methods", None) or {"GET"}:
            yield method, path


def test_without_keys_nobody_needs_one(client: Any) -> None:
    for method, path, body in [*READS, *WRITES[:-1]]:
        assert ask(client, method, path, body).is_success, path


def test_with_keys_every_route_needs_one_but_the_probes(locked: Any) -> None:
    for method, path in every_request(locked):
        response = ask(locked, method, path)
        if path in PROBES:
            assert response.status_code == 200
        else:
            assert_refused(response, 401, "key-required")
    assert_refused(ask(locked, "GET", "/unknown"), 401, "key-required")
    assert_refused(ask(locked, "PUT", "//match"), 401, "key-required")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_does_what_its_scope_says(client: Any, keys: Path, scope: Scope) -> None:
    token = token_of(keys, scope)
    for allowed, requests in ((("read", "admin"), READS), (("write", "admin"), WRITES[:-1])):
        for method, path, body in requests:
            response = ask(client, method, path, body, token)
            if scope in allowed:
                assert response.is_success, path
            else:
                assert_refused(response, 403, "scope-missing")


def test_a_body_is_not_read_for_a_request_that_may_not_send_it(locked: Any) -> None:

    async def endless() -> Any:
        for _ in range(10):
            yield b"x"
        raise AssertionError("the body was read")

    response = locked.request("POST", "/index", content=endless())
    assert_refused(response, 401, "key-required")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic {token}", "{token}", "Bearer {token}x", "Bearer {token}, a"],
)
def test_other_headers_are_no_key(locked: Any, header: str) -> None:
    given = header.format(token=token_of(keys_of(locked), "read"))
    response = locked.get("/documents", headers={"authorization": given, "x-api-key": given})
    assert_refused(response, 401, "key-required")


def test_a_revoked_key_is_refused_at_once(locked: Any) -> None:
    token = token_of(keys_of(locked), "read")
    assert ask(locked, "GET", "/documents", token=token).status_code == 200
    parts = split_token(token)
    assert parts is not None
    change_keys(keys_of(locked), lambda known: known.__delitem__(parts[0]))
    assert_refused(ask(locked, "GET", "/documents", token=token), 401, "key-required")


def test_the_rate_of_a_key_is_its_own(locked: Any) -> None:
    first, second = token_of(keys_of(locked), "read"), token_of(keys_of(locked), "read")
    body = {"text": "ants", "title": "x" * 200_000}  # 50,000 tokens of the 60,000 of a minute
    statuses = [
        ask(locked, "POST", "/match", body, token).status_code for token in (first, first, second)
    ]
    assert statuses == [422, 429, 422]


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/metrics", "GET", "read"),
        ("/docs/static", "GET", "read"),
        ("/", "GET", "read"),
        ("/jobs/{id}/cancel", "POST", "write"),
        ("/text", "POST", "read"),
        ("/standing-queries/{id}/events", "GET", "read"),
        ("/standing-queries/{id}", "DELETE", "write"),
        ("/standing-queries/{id}/resume", "POST", "write"),
        ("/collections", "GET", "read"),
        ("/collections/{collection}", "GET", "read"),
        ("/collections/{collection}", "PUT", "write"),
        ("/collections/{collection}", "DELETE", "admin"),
        ("/collections/{collection}/match", "POST", "read"),
        ("/collections/{collection}/index", "POST", "write"),
        ("/collections/{collection}/jobs", "GET", "write"),
        ("/collections/{collection}/documents/{id:path}", "DELETE", "write"),
    ],
)
def test_scopes_of_routes(library: Any, path: str, method: str, expected: object) -> None:
    scopes = {
        route.rules.scope_for(method)
        for route in library.app.router.routes
        if route.path == path and method in (getattr(route, "methods", None) or {"GET"})
    }
    assert scopes == {expected}


def test_a_new_route_declares_all_that_the_gate_knows(client: Any, keys: Path) -> None:
    """In one file: its router and its function."""
    router = Router(prefix="/words", tags=["words"])

    @router.post("", responses=READ({200: {"description": "The words"}}))
    @declare(scope="read")
    async def post_words(words: Annotated[list[str], Body()], collection: CollectionDep) -> str:
        """Join words."""
        return f"{collection.name}: {' '.join(words)}"

    client.app.router.routes += router.all_routes
    read, write = token_of(keys, "read"), token_of(keys, "write")
    for path in ("/words", "/collections/default/words"):
        assert ask(client, "POST", path, ["a", "b"], read).json() == "default: a b"
        assert_refused(ask(client, "POST", path, ["a"], write), 403, "scope-missing")
        assert_refused(ask(client, "PUT", path, ["a"], read), 405, "method-not-allowed")
        refused = client.post(path, content=b"a", headers={"authorization": f"Bearer {read}"})
        assert_refused(refused, 415, "unsupported-media-type")
    missing = ask(client, "POST", "/collections/none/words", ["a"], read)
    assert_refused(missing, 404, "collection-not-found")
    engine = client.app.state.engine
    with engine.scheduler.reserve(engine.settings.max_queue_tokens):
        assert_refused(ask(client, "POST", "/words", ["a"], read), 503, "overloaded")
    assert (
        counted(engine, "longmatch_requests_total", route="/words", method="PUT", code="405") == 2
    )
    operation = client.app.openapi()["paths"]["/collections/{collection}/words"]["post"]
    assert operation["security"] == [{"key": []}]


def test_metrics_and_documentation_may_be_open(make_client: Any) -> None:
    client = make_client()
    token_of(client.app.state.engine.settings.data / KEY_FILE, "read")
    for path in ("/metrics", "/openapi.json", "/docs", "/problems/overloaded"):
        assert ask(client, "GET", path).status_code == 200
    assert_refused(ask(client, "GET", "/version"), 401, "key-required")


def test_changes_are_logged_without_texts(client: Any, keys: Path) -> None:
    token = token_of(keys, "write")
    key_id = token.split("_")[1]
    ask(client, "POST", "/index", {"documents": [DOCUMENT]}, token)
    ask(client, "DELETE", "/documents/ants", token=token)
    ask(client, "POST", "/match", {"text": "ants"}, token)
    lines = (keys.parent / AUDIT_FILE).read_text().splitlines()
    first, second, third = (json.loads(line) for line in lines)
    assert (first["key"], first["ids"], first["status"]) == (None, ["ants"], 200)
    assert first["collection"] == "default"
    assert (second["key"], second["name"]) == (key_id, "a write key")
    assert second["ids"] == ["ants"]
    assert (third["method"], third["path"], third["status"]) == ("DELETE", "/documents/ants", 204)
    assert "food" not in "".join(lines)
    assert token.split("_", 2)[2] not in "".join(lines)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_names_request_key_and_collection(
    locked: Any, form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    token = token_of(keys_of(locked), "read")
    with configured_logs("info", form):
        answer = ask(locked, "POST", "/match", {"text": "ants"}, token)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "POST /match" in line]
    named = {
        "request_id": answer.headers["X-Request-ID"],
        "key": token.split("_")[1],
        "collection": "default",
    }
    if form == "json":
        assert named.items() <= json.loads(line).items()
    else:
        assert line.endswith(f"[{' '.join(f'{name}={value}' for name, value in named.items())}]")


def test_a_full_disk_of_the_log_fails_no_change(
    client: Any, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token, log = token_of(keys, "write", "read"), keys.parent / AUDIT_FILE
    log.unlink(missing_ok=True)
    log.symlink_to("/dev/full")
    assert ask(client, "POST", "/index", {"documents": [DOCUMENT]}, token).status_code == 200
    assert f"{AUDIT_FILE}: an entry was not written: [Errno 28]" in caplog.text
    assert ask(client, "GET", "/documents/ants", token=token).status_code == 200
    log.unlink()
    assert ask(client, "DELETE", "/documents/ants", token=token).status_code == 204
    assert [json.loads(line)["method"] for line in log.read_text().splitlines()] == ["DELETE"]


def test_only_the_owner_may_read_log_databases_and_keys(client: Any, keys: Path) -> None:
    token = token_of(keys, "write")
    assert ask(client, "POST", "/index", {"documents": [DOCUMENT]}, token).status_code == 200
    files = [keys, keys.parent / AUDIT_FILE, *keys.parent.glob("*.sqlite3*")]
    assert {"store.sqlite3", "state.sqlite3-wal"} < {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_no_control_character_is_in_an_id_or_the_log(client: Any, keys: Path) -> None:
    token = token_of(keys, "write")
    refused = ask(client, "POST", "/index", {"documents": [DOCUMENT | {"id": "a\x9bb"}]}, token)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "#/documents/0/id"
    assert ask(client, "DELETE", "/documents/a%C2%9B2Jb", token=token).status_code == 404
    line = (keys.parent / AUDIT_FILE).read_text().splitlines()[-1]
    assert line.isprintable()
    assert json.loads(line)["path"] == "/documents/a\x9b2Jb"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "search.example"])
def test_an_open_service_listens_on_loopback_only(
    make_settings: Any, tmp_path: Path, host: str
) -> None:
    settings = make_settings()
    for loopback in ("127.0.0.1", "::1", "localhost"):
        check_exposure(settings, loopback)
    with pytest.raises(SettingsError, match="longmatch keys create"):
        check_exposure(settings, host)
    check_exposure(make_settings(allow_anonymous=True), host)
    settings.data.mkdir()
    token_of(settings.data / KEY_FILE, "read")
    check_exposure(settings, host)


def test_the_document_says_what_needs_a_key(library: Any) -> None:
    paths = library.app.openapi()["paths"]
    assert "security" not in paths["/livez"]["get"]
    assert paths["/match"]["post"]["security"] == [{"key": []}]


def test_a_stored_response_is_for_its_key_alone(client: Any, keys: Path) -> None:
    first, second = token_of(keys, "write"), token_of(keys, "write")
    answers = []
    for token in (first, first, second):
        headers = {"authorization": f"Bearer {token}", "idempotency-key": "k1"}
        answers.append(client.post("/index", json={"documents": [DOCUMENT]}, headers=headers))
    replayed = ["idempotency-replayed" in answer.headers for answer in answers]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert replayed == [False, True, False]
