"""Standing queries and what becomes of their data directory: restarts, backups, checkpoints."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.startup import open_engine
from tests.kit.command import Run
from tests.kit.service_fixtures import Client, fill
from tests.kit.waiting import wait_until
from tests.service.standing.test_standing_queries import events as events_of
from tests.service.standing.test_standing_queries import make as make_query
from tests.service.standing.test_standing_queries import put

TEXT = "Bees live in hives. Each hive has a queen."
NEW = "Wasps live in nests of paper. Each nest has a queen."


@contextmanager
def serving(make_settings: Callable[..., Any], **settings: Any) -> Iterator[Client]:
    engine = open_engine(make_settings(**settings))
    try:
        yield Client(create_app(engine.settings, engine))
    finally:
        engine.opened.close()


def make(client: Client, **body: Any) -> str:
    return str(make_query(client, min_score=-1, **body)["id"])


def events(client: Client, query_id: str, number: int) -> list[dict[str, Any]]:
    """Wait for so many events."""
    wait_until(lambda: len(events_of(client, query_id)) >= number)
    found = events_of(client, query_id)
    assert len(found) == number
    return found


def test_with_another_checkpoint_texts_are_encoded_again(
    make_settings: Callable[..., Any], longmatch: Run, tiny_terms: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with serving(make_settings) as client:
        fill(client)
        made = [make(client, text=TEXT, mode=mode) for mode in ("semantic", "hybrid")]
        made.append(make(client, id="bees"))
        put(client, {"before": NEW})
        for item in made:
            events(client, item, 1)
    assert longmatch("reencode", data, "--encoder", tiny_terms).status == 0
    with serving(make_settings, encoder=tiny_terms) as client:
        put(client, {"after": f"{NEW} It is new."})
        for first, mode in zip(made, ("semantic", "hybrid", "hybrid"), strict=True):
            event = events(client, first, 2)[-1]
            asked = {"id": "bees"} if first == made[2] else {"text": TEXT}
            body = {**asked, "mode": mode, "top_k": 50}
            matches = client.post("/match", json=body).json()["matches"]
            (match,) = (match for match in matches if match["id"] == "after")
            assert event["document"] == "after"
            assert event["score"] == pytest.approx(match["score"], abs=1e-5)


def test_queries_follow_a_store_restored_from_a_backup(
    make_settings: Callable[..., Any], tmp_path: Path
) -> None:
    """Somebody put an older store in place: vector ids begin again where they were."""
    data = tmp_path / "data"
    with serving(make_settings) as client:
        made = make(client, text=TEXT)
        put(client, {"a": NEW})
        events(client, made, 1)
    with closing(sqlite3.connect(data / "state.sqlite3")) as connection:
        connection.execute("UPDATE standing SET scanned = 1000")
        connection.commit()
    with serving(make_settings) as client:
        put(client, {"b": NEW})
        assert [event["document"] for event in events(client, made, 2)] == ["a", "b"]


def test_a_document_that_is_damaged_holds_only_its_own_query(
    make_settings: Callable[..., Any], tmp_path: Path
) -> None:
    with serving(make_settings) as client:
        fill(client)
        held, other = make(client, id="bees"), make(client, text=TEXT)
        store = tmp_path / "data" / "store.sqlite3"
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("UPDATE documents SET metadata = '{' WHERE id = 'bees'")
            connection.commit()
        put(client, {"a": NEW})
        events(client, other, 1)
        assert events(client, held, 0) == []
