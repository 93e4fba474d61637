"""An API key that is bound to a collection sees that one, and nothing of any other."""

from collections.abc import Callable
from typing import Any

import pytest

from index.directory.data_directory import KEY_FILE
from service.keys import SCOPES, change_keys, make_key
from tests.kit.service_fixtures import Client, counted
from tests.kit.waiting import wait_until

NAMES = ("papers", "laws")
BLOCKS = "longmatch_encoded_blocks_total"


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    made = make_client(open_information=False)
    for name in NAMES:
        assert made.request("PUT", f"/collections/{name}").status_code == 201
    for name in (*NAMES, "default"):
        body = {"documents": [{"id": f"of {name}", "text": f"A text on {name}."}]}
        assert made.post(f"/collections/{name}/index", json=body).status_code == 200
    return made


@pytest.fixture
def ask(client: Client) -> Callable[..., Any]:
    """Ask with a key that is bound to a collection: `ask(METHOD, PATH, BODY, to=NAME)`."""
    file = client.app.state.engine.settings.data / KEY_FILE
    tokens: dict[str | None, str] = {}
    for name in (*NAMES, "default", "none", None):
        key, tokens[name] = make_key(f"of {name}", frozenset(SCOPES), None, name)
        change_keys(file, lambda known, key=key: known.update({key.id: key}))

    def send(method: str, path: str, body: object = None, *, to: str | None = "papers") -> Any:
        headers = {"authorization": f"Bearer {tokens[to]}"}
        return client.request(method, path, json=body, headers=headers)

    return send


def bare(answer: Any) -> dict[str, Any]:
    """Return a problem without what differs for each request."""
    left_out = ("request_id", "instance", "detail", "error")
    return {name: part for name, part in answer.json().items() if name not in left_out}


def test_paths_without_a_prefix_are_those_of_its_collection(ask: Callable[..., Any]) -> None:
    for name in (*NAMES, "default"):
        listed = ask("GET", "/documents", to=name).json()["documents"]
        assert [entry["id"] for entry in listed] == [f"of {name}"]
        found = ask("POST", "/match", {"text": "A text on laws."}, to=name).json()["matches"]
        assert [item["id"] for item in found] == [f"of {name}"]
        same = ask("GET", f"/collections/{name}/documents", to=name).json()["documents"]
        assert same == listed


def test_routes_of_another_collection_do_not_exist(client: Client, ask: Callable[..., Any]) -> None:
    ids = {"{id:path}": "of laws", "{id}": "x"}
    asked = 0
    for route in client.app.router.routes:
        if not route.rules.collection or route.path != route.template:
            continue
        path = route.path
        for name, value in ids.items():
            path = path.replace(name, value)
        for method in route.methods:
            for other in ("laws", "default"):
                refused = ask(method, f"/collections/{other}{path}", {})
                missing = ask(method, f"/collections/nowhere{path}", {})
                assert refused.status_code == missing.status_code == 404
                assert bare(refused) == bare(missing)
                assert refused.json()["type"] == "/problems/collection-not-found"
                assert refused.headers.keys() == missing.headers.keys()
                asked += 1
    assert asked >= 2 * 11
    for method in ("GET", "PUT", "DELETE"):
        refused, missing = (ask(method, f"/collections/{item}") for item in ("laws", "nowhere"))
        assert refused.status_code == missing.status_code == 404
        assert bare(refused) == bare(missing)
    assert ask("GET", "/collections/laws/documents", to="laws").status_code == 200


def test_it_lists_its_own_collection_and_an_unbound_key_all(ask: Callable[..., Any]) -> None:
    for key, expected in (
        ("papers", ["papers"]),
        ("none", []),
        (None, ["default", "laws", "papers"]),
    ):
        listed = ask("GET", "/collections", to=key).json()["collections"]
        assert [entry["name"] for entry in listed] == expected
    for name in (*NAMES, "default"):
        assert ask("GET", f"/collections/{name}/documents", to=None).status_code == 200
    assert ask("GET", "/documents", to=None).json()["documents"][0]["id"] == "of default"


def test_metrics_are_of_all_and_so_not_for_it(ask: Callable[..., Any]) -> None:
    refused = ask("GET", "/metrics")
    assert refused.status_code == 403
    assert "bound to one collection" in refused.json()["detail"]
    assert ask("GET", "/metrics", to=None).status_code == 200


def test_a_key_of_a_missing_collection_sees_nothing(
    ask: Callable[..., Any],
) -> None:
    for path in ("/documents", "/version", "/collections/none/documents", "/collections/none"):
        assert ask("GET", path, to="none").status_code == 404
    assert ask("PUT", "/collections/none", to="none").status_code == 201
    assert ask("GET", "/documents", to="none").json()["documents"] == []
    assert ask("DELETE", "/collections/none", to="none").status_code == 204
    assert ask("GET", "/documents", to="none").status_code == 404


def test_it_learns_nothing_of_texts_that_others_stored(
    client: Client, ask: Callable[..., Any]
) -> None:
    engine = client.app.state.engine
    secret = {"text": "The merger of both firms is signed on Friday."}
    body = {"documents": [{"id": "secret", **secret}]}
    assert ask("POST", "/index", body, to="laws").json()["timings"] == {}
    blocks = counted(engine, BLOCKS)
    wait_until(lambda: engine.scheduler.cache.written >= blocks)

    def encoded(name: str) -> float:
        before = counted(engine, BLOCKS)
        assert ask("POST", "/match", secret, to=name).json()["timings"] == {}
        return counted(engine, BLOCKS) - before

    assert encoded("papers") > 0  # as a text that nobody stored
    assert encoded("laws") == 0
    pair = {"left": secret, "right": {"id": "of papers"}}
    assert ask("POST", "/compare", pair).json()["timings"] == {}
    assert ask("GET", "/documents/of%20papers/similar").json()["timings"] == {}
    assert ask("POST", "/match", secret, to=None).json()["timings"]["encode"] > 0
