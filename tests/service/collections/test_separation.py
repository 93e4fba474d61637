"""Two collections of one server do not see each other, whatever is done with them at once."""

import json
from typing import Any

import pytest

from tests.kit.service_fixtures import TEXTS, Client
from tests.kit.waiting import wait_until

LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def two(client: Client) -> Client:
    """A client of a server with `papers` besides the default one, both with the document `ants`."""
    assert client.request("PUT", "/collections/papers").status_code == 201
    put(client, "", "ants", TEXTS["ants"])
    put(client, "/collections/papers", "ants", TEXTS["ants"] + " Nests are deep.")
    put(client, "/collections/papers", "tax law", TEXTS["tax law"])
    return client


def put(client: Client, prefix: str, name: str, text: str) -> None:
    body = {"documents": [{"id": name, "text": text, "metadata": {"of": prefix}}]}
    assert client.post(f"{prefix}/index", json=body).status_code == 200


def ids(found: Any) -> list[str]:
    return [hit["id"] for hit in found["matches"]]


def test_a_document_is_found_in_its_collection_alone(two: Client) -> None:
    for mode in ("semantic", "lexical", "hybrid"):
        asked = {"text": TEXTS["tax law"], "mode": mode}
        assert "tax law" in ids(two.post("/collections/papers/match", json=asked).json())
        assert "tax law" not in ids(two.post("/match", json=asked).json())
    by_id = {"id": "tax law"}
    assert two.post("/match", json=by_id).status_code == 404
    assert two.post("/compare", json={"left": by_id, "right": {"id": "ants"}}).status_code == 404
    for path in ("/documents/tax%20law", "/documents/tax%20law/similar"):
        assert two.get(path).status_code == 404
        assert two.get(f"/collections/papers{path}").status_code == 200
    assert two.get("/collections/default/documents/tax%20law").status_code == 404
    assert two.delete("/collections/papers/documents/ants").status_code == 204
    assert two.get("/documents/ants").status_code == 200


def test_a_document_is_listed_in_its_collection_alone(two: Client) -> None:
    export = {"accept": "application/x-ndjson"}
    listed = {}
    for prefix in ("", "/collections/papers"):
        page = two.get(f"{prefix}/documents").json()["documents"]
        lines = two.get(f"{prefix}/documents", headers=export).text.splitlines()
        assert [item["id"] for item in page] == [json.loads(line)["id"] for line in lines]
        listed[prefix] = [(item["id"], item["metadata"]["of"]) for item in page]
    of_papers = [(name, "/collections/papers") for name in ("ants", "tax law")]
    assert listed == {"": [("ants", "")], "/collections/papers": of_papers}
    states = two.get("/collections").json()["collections"]
    counts = [(item["name"], item["documents"], item["sequence"]) for item in states]
    assert counts == [("default", 1, 1), ("papers", 2, 2)]
    assert two.get("/readyz").json()["documents"] == 1
    metrics = two.get("/metrics").text
    assert 'longmatch_index_documents{collection="default"} 1.0' in metrics
    assert 'longmatch_index_documents{collection="papers"} 2.0' in metrics


def test_the_same_text_in_two_collections_is_no_family(two: Client) -> None:
    text = " ".join(f"Colony {n} has {n * 7} workers, {n + 3} soldiers." for n in range(20))
    for prefix in ("", "/collections/papers"):
        put(two, prefix, "long", text)
        assert two.get(f"{prefix}/documents/long/family").json()["documents"] == []
    put(two, "/collections/papers", "copy", text)
    family = two.get("/collections/papers/documents/long/family").json()["documents"]
    assert [item["id"] for item in family] == ["copy", "long"]
    assert two.get("/documents/long/family").json()["documents"] == []


def test_jobs_belong_to_a_collection(two: Client) -> None:
    line = b'{"id": "new", "text": "Foxes sleep by day."}\n'
    accepted = two.post("/collections/papers/index", content=line, headers=LINES)
    assert accepted.status_code == 202
    location = accepted.headers["location"]
    assert location == f"/collections/papers/jobs/{accepted.json()['id']}"
    wait_until(lambda: two.get(location).json()["state"] == "done")
    own = location.removeprefix("/collections/papers")
    assert two.get(own).status_code == two.post(f"{own}/cancel").status_code == 404
    assert two.get("/jobs").json() == {"jobs": []}
    assert two.get("/documents/new").status_code == 404
    assert two.get("/collections/papers/documents/new").status_code == 200


def test_an_idempotency_key_belongs_to_a_collection(two: Client) -> None:
    given = {"idempotency-key": "k1"}
    for prefix, replayed in (("", False), ("/collections/papers", False), ("", True)):
        body = {"documents": [{"id": "once", "text": "Owls hunt."}]}
        answer = two.post(f"{prefix}/index", json=body, headers=given)
        assert answer.status_code == 200
        assert ("idempotency-replayed" in answer.headers) == replayed
    counter = two.app.state.engine.metrics.registry.get_sample_value
    assert not counter("longmatch_block_cache_hits_total")  # nothing cached is of another one
