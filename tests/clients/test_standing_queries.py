"""The Python client and standing queries, with a real server."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from longmatch import (
    AsyncClient,
    Client,
    Document,
    InvalidRequestError,
    NotFoundError,
    StandingOptions,
    Stored,
    Webhook,
)
from longmatch.results import Event

ALL = StandingOptions(min_score=-1)


def put(client: Client, *names: str) -> None:
    client.index([Document(name, f"A text on {name}.") for name in names])


def take(client: Client, number: int, query_id: str | None = None, after: int = 0) -> list[Event]:
    followed = client.follow_events(query_id, after=after)
    return [next(followed) for _ in range(number)]


def test_events_are_followed_listed_and_resumed(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server, Client(server.url) as client:
        put(client, "first")
        where = {"field": "/kind", "in": ["a"]}
        options = StandingOptions(mode="lexical", min_score=0.5, filter=where)
        narrow = client.create_standing_query("Any text.", options)
        assert (narrow.mode, narrow.min_score, narrow.filter) == ("lexical", 0.5, where)
        wide = client.create_standing_query(Stored("first"), ALL)
        assert list(client.standing_queries(page_size=1)) == [narrow, wide]
        assert client.standing_query(wide.id) == wide
        put(client, "a")
        put(client, "b")
        taken = take(client, 2, wide.id)
        assert [item.document for item in taken] == ["a", "b"]
        assert list(client.events(wide.id, page_size=1)) == taken
        assert list(client.events(after=taken[0].number)) == taken[1:]
        assert take(client, 1, after=taken[0].number) == taken[1:]

        async def ask() -> None:
            async with AsyncClient(server.url) as other:
                async for event in other.follow_events(wide.id):
                    assert event == taken[0]
                    break
                assert [event async for event in other.events(wide.id)] == taken

        asyncio.run(ask())
        paused = client.change_standing_query(wide.id, {"paused": True, "min_score": 0.5})
        assert (paused.paused, paused.min_score, paused.webhook) == (True, 0.5, None)
        client.delete_standing_query(wide.id)
        for gone in (client.standing_query, client.delete_standing_query):
            with pytest.raises(NotFoundError):
                gone(wide.id)
        with pytest.raises(NotFoundError):
            take(client, 1, wide.id)


@pytest.mark.slow
def test_a_webhook_is_given_and_its_secret_shown_once(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serve(tmp_path / "data", tiny_checkpoint) as server, Client(server.url) as client:
        webhook = Webhook("https://hooks.invalid/path")
        made = client.create_standing_query("Any text.", ALL, webhook=webhook)
        assert made.webhook is not None
        assert made.webhook.secret is not None
        assert made.webhook.secret not in repr(made)
        resumed = client.resume_standing_query(made.id)
        assert resumed.webhook is not None
        assert (resumed.webhook.url, resumed.webhook.secret) == ("https://hooks.invalid", None)
        inside = Webhook("https://169.254.169.254/")
        with pytest.raises(InvalidRequestError):
            client.create_standing_query("Any text.", ALL, webhook=inside)
