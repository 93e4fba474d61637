"""PATCH /standing-queries/{id}: bounds, webhook and pause, and what waits for them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import Receiver, status
from tests.service.standing.test_standing_queries import events, make, put, settled

MakeClient = Callable[..., Any]
LOCAL = ("127.0.0.0/8", "localhost")
TEXT = "Bees live in hives. Each hive has a queen."


def change(client: Any, query_id: str, **body: Any) -> dict[str, Any]:
    response = client.request("PATCH", f"/standing-queries/{query_id}", json=body)
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json()
    return changed


def test_another_bound_counts_from_then_on(client: Any) -> None:
    made = make(client, text=TEXT, min_score=-1)
    put(client, {"a": "The court held that the appeal was void."})
    assert len(events(client, made["id"])) == 1
    changed = change(client, made["id"], min_score=0.999)
    assert changed == {**made, "min_score": 0.999}
    put(client, {"b": "The costs of the appeal were allowed.", "c": TEXT})
    assert [event["document"] for event in events(client, made["id"])] == ["a", "c"]
    assert client.get(f"/standing-queries/{made['id']}").json() == changed


def test_a_pause_leaves_nothing_out_and_delivers_nothing(make_client: MakeClient) -> None:
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as receiver:
        receiver.answers = [status(500)]
        url = f"http://localhost:{receiver.port}/"
        made = make(client, text=TEXT, min_score=-1, webhook={"url": url})
        other = make(client, text=TEXT, min_score=-1)
        put(client, {"a": "Bees fly."})
        receiver.take(1)
        assert change(client, made["id"], paused=True)["paused"] is True
        metrics = client.get("/metrics").text
        for state, count in (("all", 2), ("failed", 0), ("paused", 1)):
            name = f'standing_queries{{collection="default",state="{state}"}}'
            assert f"{name} {count}.0" in metrics
        put(client, {"b": "Bees sting."})
        assert [event["document"] for event in events(client, other["id"])] == ["a", "b"]
        assert [event["document"] for event in events(client, made["id"])] == ["a"]
        receiver.answers = [status(204)]
        assert client.post(f"/standing-queries/{made['id']}/resume").status_code == 200
        change(client, made["id"], min_score=-0.9)
        assert client.get(f"/standing-queries/{made['id']}").json()["paused"] is True
        settled(client)
        assert not receiver.arrived.acquire(timeout=0.5)
        assert change(client, made["id"], paused=False)["paused"] is False
        assert [message.document for message in receiver.take(2)] == ["a", "a", "b"]
        assert [event["document"] for event in events(client, made["id"])] == ["a", "b"]


def test_another_webhook_goes_on_where_the_former_one_failed(make_client: MakeClient) -> None:
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as gone, Receiver() as next_one:
        gone.answers = [status(410)]
        first = f"http://localhost:{gone.port}/old"
        made = make(client, text=TEXT, min_score=-1, webhook={"url": first})
        put(client, {"a": "Bees fly."})
        gone.take(1)
        path = f"/standing-queries/{made['id']}"
        wait_until(lambda: client.get(path).json()["webhook"]["state"] == "failed")
        url = f"http://localhost:{next_one.port}/new?token=hidden"
        changed = change(client, made["id"], webhook={"url": url})
        assert changed["webhook"]["secret"] is None  # as before, and shown once
        assert changed["webhook"]["url"] == f"http://localhost:{next_one.port}"
        (message,) = next_one.take(1)
        assert (message.document, message.path) == ("a", "/new?token=hidden")
        assert message.is_signed_by(made["webhook"]["secret"])
        changed = change(client, made["id"], webhook={"secret": None})
        secret = changed["webhook"]["secret"]
        assert secret not in (None, made["webhook"]["secret"])
        put(client, {"b": "Bees sting."})
        assert next_one.take(1)[-1].is_signed_by(secret)
        assert change(client, made["id"], webhook=None)["webhook"] is None
        put(client, {"c": "Bees dance."})
        settled(client)
        changed = change(client, made["id"], webhook={"url": url})
        assert changed["webhook"]["secret"] not in (None, secret)
        put(client, {"d": "Bees hum."})
        taken = [item.document for item in next_one.take(1)]
        assert taken == ["a", "b", "d"]  # c was found without
        assert [event["document"] for event in events(client, made["id"])] == ["a", "b", "c", "d"]


def test_a_webhook_that_was_replaced_is_sent_nothing_more(make_client: MakeClient) -> None:
    """Also where many events wait, and its answer to one of them comes after the change."""
    client = make_client(webhook_hosts=LOCAL)
    with Receiver() as former, Receiver() as later:
        ids: dict[str, str] = {}

        def replace_it(handler: Any) -> None:
            url = f"http://localhost:{later.port}/"
            change(client, ids["query"], webhook={"url": url})
            status(204)(handler)

        former.answers = [replace_it]
        url = f"http://localhost:{former.port}/"
        made = make(client, text=TEXT, min_score=-1, webhook={"url": url})
        ids["query"] = made["id"]
        put(client, {"a": "Bees fly.", "b": "Bees sting.", "c": "Bees hum."})
        found = [item.document for item in later.take(3)]
        assert found == [event["document"] for event in events(client, made["id"])]
        assert len(former.messages) == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#"),
        ({"webhook": {}}, "#/webhook"),
        ({"webhook": {"url": None}}, "#/webhook/url"),
        ({"webhook": {"secret": None}}, "#/webhook/url"),
        ({"webhook": {"url": "https://a.example", "secret": "short"}}, "#/webhook/secret"),
        ({"min_score": None}, "#/max_false_positive_rate"),
        ({"min_probability": 0.5, "min_score": 2}, "#/min_score"),
        ({"max_false_positive_rate": 0.1}, "#/max_false_positive_rate"),
        ({"text": "Wasps."}, "#/text"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    empty: Any, body: dict[str, Any], pointer: str
) -> None:
    made = make(empty, text=TEXT, min_score=0.5)
    path = f"/standing-queries/{made['id']}"
    refused = empty.request("PATCH", path, json=body)
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["pointer"] == pointer
    assert empty.get(path).json() == made
    assert empty.request("PATCH", f"{path}x", json={"paused": True}).status_code == 404
    assert empty.delete(path).status_code == 204
