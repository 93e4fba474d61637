"""The OWASP API Security Top 10 (2023): an attack for each item, which its guard alone stops.

Each attack is made twice: with its guard, where it is refused, and with the guard taken out, where
it succeeds. So a guard that no longer decides anything is noticed.
"""

import json
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from starlette.responses import Response
from starlette.routing import Route

from index.directory.data_directory import KEY_FILE
from service.api.app import check_exposure
from service.api.http.access import AllowedHosts
from service.api.schemas.common import DocumentBody
from service.api.standing import _webhook_response
from service.errors import SettingsError
from service.jobs.uploads import MAX_UPLOADS_OF_CLIENT
from service.keys import ApiKey, KeyRing, Scope, change_keys, make_key
from service.limits import LocalRateLimiter, client_name, rate_limit_status
from service.settings import Settings
from service.standing.targets import AllowedTargets
from tests.tools.redis_server import RedisServer
from tests.tools.service_fixtures import Client
from tests.tools.webhook_receiver import Receiver

MakeClient = Callable[..., Client]
Attack = Callable[[MakeClient], bool]  # whether it succeeded
TakeOut = Callable[[pytest.MonkeyPatch], None]

SECRET = {"id": "plan", "text": "The plan of the merger is kept by the board of the company."}
OK, ACCEPTED = 200, 202


def key_of(client: Client, *scopes: Scope, collection: str | None = None) -> dict[str, str]:
    key, token = make_key("of the test", frozenset(scopes), None, collection)
    file = client.app.state.engine.settings.data / KEY_FILE
    change_keys(file, lambda known: known.update({key.id: key}))
    return {"authorization": f"Bearer {token}"}


def holding_a_secret(make_client: MakeClient, **settings: Any) -> Client:
    client = make_client(**settings)
    assert client.post("/index", json={"documents": [SECRET]}).status_code == OK
    return client


def read_an_object_of_others(make_client: MakeClient) -> bool:
    client = holding_a_secret(make_client)
    client.request("PUT", "/collections/mine")
    mine = key_of(client, "read", collection="mine")
    return client.get("/collections/default/documents/plan", headers=mine).status_code == OK


def come_with_a_forged_key(make_client: MakeClient) -> bool:
    client = holding_a_secret(make_client)
    known = key_of(client, "read")["authorization"].split("_", 2)  # the secret may have one
    forged = "_".join([*known[:-1], known[-1][::-1]])
    return client.get("/documents/plan", headers={"authorization": forged}).status_code == OK


def read_the_secret_of_a_webhook(make_client: MakeClient) -> bool:
    """Of a standing query that another client made."""
    client = make_client()
    query = {"text": "A plan.", "webhook": {"url": "https://hooks.example.com/"}, "min_score": 0}
    made = client.post("/standing-queries", json=query, headers=key_of(client, "write"))
    reader = key_of(client, "read", "write", "admin")
    found = client.get(made.headers["location"], headers=reader)
    return made.json()["webhook"]["secret"] in found.text


def set_what_the_service_sets(_: MakeClient) -> bool:
    try:
        DocumentBody.model_validate({**SECRET, "family": 1, "receipt": {"tokens": 0}})
    except ValidationError:
        return False
    return True


def ask_for_more_than_a_share(make_client: MakeClient) -> bool:
    client = make_client(rate_limit_tokens_per_minute=300)
    text = {"text": "A page of many words. " * 50}
    return all(client.post("/match", json=text).status_code == OK for _ in range(3))


def delete_with_a_key_for_reading(make_client: MakeClient) -> bool:
    client = holding_a_secret(make_client)
    headers = key_of(client, "read")
    return client.request("DELETE", "/documents/plan", headers=headers).is_success


def take_every_place_for_uploads(make_client: MakeClient) -> bool:
    """Begin an upload while others of the same client are received, and places are left."""
    client = make_client()
    jobs = client.app.state.engine.default.jobs
    headers = {"content-type": "application/x-ndjson"}
    with ExitStack() as received:
        for _ in range(MAX_UPLOADS_OF_CLIENT):
            received.enter_context(jobs.receiving(client_name("127.0.0.1"), 0))
        answer = client.post("/index", content=json.dumps(SECRET), headers=headers)
    return answer.status_code == ACCEPTED


def rebind_a_name(make_client: MakeClient) -> bool:
    client = holding_a_secret(make_client)
    return client.get("/documents/plan", headers={"host": "evil.example"}).status_code == OK


def reach_into_the_network(make_client: MakeClient) -> bool:
    """Have the server send an event to a port of its own machine."""
    client = make_client()
    with Receiver() as receiver:
        webhook = {"url": f"http://127.0.0.1:{receiver.port}/"}
        query = {"text": "A plan.", "min_score": -1, "webhook": webhook}
        if not client.post("/standing-queries", json=query).is_success:
            return False
        client.post("/index", json={"documents": [SECRET]})
        return [item.document for item in receiver.take(1)] == [SECRET["id"]]


def reach_into_the_network_by_a_name(make_client: MakeClient) -> bool:
    """The same by a name, which is known to be inside only when it is resolved."""
    client = make_client()
    client.app.state.engine.default.standing.webhooks.attempts = 1
    with Receiver() as receiver:
        webhook = {"url": f"https://localhost:{receiver.port}/"}
        query = {"text": "A plan.", "min_score": -1, "webhook": webhook}
        path = client.post("/standing-queries", json=query).headers["location"]
        client.post("/index", json={"documents": [SECRET]})
        while client.get(path).json()["webhook"]["state"] != "failed":
            time.sleep(0.01)
        return receiver.connections > 0


def listen_to_everybody(_: MakeClient) -> bool:
    try:
        check_exposure(Settings(data="/nonexistent"), "0.0.0.0")
    except SettingsError:
        return False
    return True


GUARDS: dict[str, tuple[Attack, TakeOut]] = {
    "API1 broken object level authorization": (
        read_an_object_of_others,
        lambda patch: patch.setattr("service.api.http.access.bound_to", lambda scope: None),
    ),
    "API2 broken authentication": (
        come_with_a_forged_key,
        lambda patch: patch.setattr("service.keys.has_secret", lambda *_: True),
    ),
    "API3 broken object property level authorization: reading": (
        read_the_secret_of_a_webhook,
        lambda patch: patch.setattr(
            "service.api.standing._webhook_response",
            lambda query, **_: _webhook_response(query, with_secret=True),
        ),
    ),
    "API3 broken object property level authorization: writing": (
        set_what_the_service_sets,
        lambda patch: patch.setattr(
            DocumentBody, "model_validate", lambda given: DocumentBody.model_construct(**given)
        ),
    ),
    "API4 unrestricted resource consumption": (
        ask_for_more_than_a_share,
        lambda patch: patch.setattr(
            LocalRateLimiter, "spend", lambda *_: rate_limit_status(300, 0, True, 0.0)
        ),
    ),
    "API5 broken function level authorization": (
        delete_with_a_key_for_reading,
        lambda patch: patch.setattr(ApiKey, "allows", lambda *_: True),
    ),
    "API6 unrestricted access to sensitive business flows": (
        take_every_place_for_uploads,
        lambda patch: patch.setattr("service.jobs.uploads.MAX_UPLOADS_OF_CLIENT", 1000),
    ),
    "API7 server side request forgery: addresses": (
        reach_into_the_network,
        lambda patch: patch.setattr(AllowedTargets, "_permits", lambda *_: True),
    ),
    "API7 server side request forgery: names": (
        reach_into_the_network_by_a_name,
        lambda patch: patch.setattr(AllowedTargets, "_permits", lambda *_: True),
    ),
    "API8 security misconfiguration: names": (
        rebind_a_name,
        lambda patch: patch.setattr(AllowedHosts, "__contains__", lambda *_: True),
    ),
    "API8 security misconfiguration: addresses": (
        listen_to_everybody,
        lambda patch: patch.setattr(KeyRing, "required", True),
    ),
}


@pytest.mark.parametrize("item", GUARDS)
def test_the_guard_and_nothing_else_stops_the_attack(
    item: str, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    attack, take_out = GUARDS[item]
    assert not attack(partial(make_client, data=tmp_path / "guarded"))
    take_out(monkeypatch)
    assert attack(partial(make_client, data=tmp_path / "open"))


def test_api7_server_side_request_forgery(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address in a document or a query is ever connected to."""
    client = make_client()
    asked: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: asked.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    address = "http://169.254.169.254/latest/meta-data"
    document = {"id": address, "text": f"See {address} and file:///etc/passwd for more."}
    html = {"id": "page", "text": f'<img src="{address}"><a href="{address}">more</a>'}
    client.post("/index", json={"documents": [document, html]})
    client.post("/match", json={"text": f"See {address}", "explain": True})
    client.post("/compare", json={"left": {"id": "page"}, "right": {"text": address}})
    assert asked == []


def undescribed(app: Any) -> set[str]:
    """Return the paths that the OpenAPI document does not have."""
    served = {route.path.replace(":path", "") for route in app.router.routes}
    return served - set(app.openapi()["paths"])


def test_api9_improper_inventory_management(make_client: MakeClient) -> None:
    """Every route is in the OpenAPI document, but those of the pages of the browser."""
    app = make_client().app
    assert undescribed(app) == {"/", "/static", "/docs", "/openapi.json", "/docs/static"}
    app.router.routes.append(Route("/v0/match", lambda _: Response()))
    assert "/v0/match" in undescribed(app)


def plant_a_vector(make_client: MakeClient, redis: RedisServer) -> bool:
    """Put what overflows, with a right checksum, in place of vectors that Redis keeps.

    Several times, with another text each: a busy Redis is not waited for, and then not asked.
    """
    client = holding_a_secret(make_client, redis_url=redis.url)
    return any(planted(client, redis, f"The board plans merger {number}.") for number in range(5))


def planted(client: Client, redis: RedisServer, text: str) -> bool:
    """Say whether what is put in place of the vectors of a text changes its matches."""
    before = client.post("/match", json={"text": text}).json()["matches"]
    for key in redis.client.keys("longmatch:block:*"):
        content = np.full((len(redis.client.get(key)) - 4) // 4, 3e38, dtype="<f4").tobytes()
        redis.client.set(key, content + zlib.crc32(content).to_bytes(4, "big"))
    answer = client.post("/match", json={"text": text})
    return answer.status_code != OK or answer.json()["matches"] != before


def test_api10_unsafe_consumption_of_apis(
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    """What Redis answers is examined before it is used."""
    assert not plant_a_vector(partial(make_client, data=tmp_path / "guarded"), redis_server)
    redis_server.flush()
    monkeypatch.setattr("service.workers.block_cache._LARGEST", np.inf)
    assert plant_a_vector(partial(make_client, data=tmp_path / "open"), redis_server)
