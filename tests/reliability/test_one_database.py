"""Servers over one PostgreSQL: what one has acknowledged, every one has; also after faults."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from index.directory.data_directory import open_data_directory
from index.postgresql.connections import drop_collection
from index.store.document_store import DocumentStore
from tests.kit.command import Run
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry
from tests.kit.postgresql import PostgreSQLServer, run_postgresql
from tests.kit.process_fixtures import Server, serving
from tests.kit.tiers import Tier
from tests.kit.waiting import wait_until

RIVER = "Rivers carry stones and sand to the sea. In spring they flood the fields. " * 9
MUSIC = "A sonata has three movements. The second of them is slow and quiet. " * 9
Serve = Callable[..., Any]


@pytest.fixture
def postgresql() -> Iterator[PostgreSQLServer]:
    with run_postgresql() as server:
        yield server


def put(server: Server, name: str, text: str, **other: object) -> None:
    body = {"documents": [{"id": name, "text": text, **other}]}
    status, answer = server.request("POST", "/index", body)
    assert status == 200, answer


def found(server: Server, text: str, **other: object) -> list[str]:
    body = {"text": text, "top_k": 10, **other}
    status, answer = server.request("POST", "/match", body)
    assert status == 200, answer
    return [match["id"] for match in answer["matches"]]


def test_two_servers_are_one(
    serve: Serve,
    postgresql: PostgreSQLServer,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    given = {"database": postgresql.url}
    with (
        serve(tmp_path / "a", tiny_checkpoint, **given) as a,
        serve(tmp_path / "b", tiny_checkpoint, **given) as b,
    ):
        put(a, "river", RIVER, metadata={"year": 1})
        put(b, "music", MUSIC)
        put(a, "copy", RIVER)
        for server in (a, b):
            for mode in ("semantic", "lexical", "hybrid"):
                assert set(found(server, RIVER, mode=mode)) >= {"river", "copy"}
            assert set(found(server, MUSIC, mode="hybrid")) >= {"music"}
            assert server.request("GET", "/documents/river")[1]["family"] is not None
        put(b, "river", RIVER, title="Rivers", metadata={"year": 2})  # the text is unchanged
        year = {"field": "/year", "range": {"gte": 2}}
        assert found(a, RIVER, filter=year) == ["river"]
        assert b.request("DELETE", "/documents/river")[0] == 204
        for server in (a, b):
            assert server.request("GET", "/documents/river")[0] == 404
            assert "river" not in found(server, RIVER)
            assert server.request("GET", "/documents/copy")[1].get("family") is None
        for server in (a, b):
            assert server.request("PUT", "/collections/papers")[0] in (200, 201)
        status, answer = a.request(
            "POST", "/collections/papers/index", {"documents": [{"id": "p", "text": RIVER}]}
        )
        assert status == 200, answer
        assert b.request("GET", "/collections/papers/documents/p")[0] == 200
    with serve(tmp_path / "c", tiny_checkpoint, **given) as c:  # from an empty directory
        assert set(found(c, MUSIC)) == {"copy", "music"}
        assert c.request("GET", "/collections/papers/documents/p")[0] == 200


def test_changes_are_seen_in_their_order(
    postgresql: PostgreSQLServer, tmp_path: Path, entry: MakeEntry
) -> None:
    """Who has read change n + 1 never finds change n later, nor a lower vector id."""

    def opened(name: str) -> DocumentStore:
        folder = tmp_path / name
        folder.mkdir()
        given = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, "database": postgresql.url}
        return DocumentStore(folder / "store.sqlite3", **given)

    with ThreadPoolExecutor() as threads:
        stores = [made.result() for made in [threads.submit(opened, f"{n}") for n in range(4)]]
        *writers, reader = stores

        def write(number: int, store: DocumentStore) -> None:
            for turn in range(15):
                store.put([entry(f"{number} {turn} {part}") for part in range(1 + turn % 3)])

        writing = [threads.submit(write, n, store) for n, store in enumerate(writers)]
        seen, sequence, last = list[int](), 0, 0
        while sequence < 45:
            assert not any(call.done() and call.exception() for call in writing)
            change = reader.changes_since(sequence)
            assert all(number > last for number in change.added)
            seen += change.added.tolist()
            sequence, last = change.sequence, max(seen, default=0)
        assert sorted(seen) == list(range(1, 1 + len(reader)))
        for store in stores:
            store.close()


def test_commands_use_the_database_or_say_what_does(
    longmatch: Run,
    postgresql: PostgreSQLServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGMATCH_DATABASE", postgresql.url)
    file, folder = tmp_path / "river.txt", tmp_path / "texts"
    file.write_text(RIVER)
    folder.mkdir()
    for name, text in (("river", RIVER), ("music", MUSIC)):
        (folder / f"{name}.txt").write_text(text)
    data, other = tmp_path / "data", tmp_path / "other"
    assert longmatch("match", file).status == 2  # nothing is there yet
    assert longmatch("index", folder).status == 0
    assert not (data / "store.sqlite3").exists()
    for directory in (data, other):  # the other one is empty
        answer = longmatch("match", file, "--data", directory, "--json")
        assert json.loads(answer.out)["matches"][0]["id"] == "river.txt"
    assert longmatch("delete", "river.txt", "--data", other).status == 0
    answer = longmatch("match", file, "--json")
    assert [match["id"] for match in json.loads(answer.out)["matches"]] == ["music.txt"]
    for arguments, instead in (
        (("snapshot", data, "-o", tmp_path / "backup"), "back it up with pg_dump"),
        (("restore", file, other), "restore that with pg_restore"),
        (("doctor", data), "examine that with pg_amcheck"),
        (("reencode", data, "--encoder", "fast"), "index into a new database"),
    ):
        answer = longmatch(*arguments)
        assert (answer.status, instead in answer.err) == (2, True), answer


def test_a_snapshot_of_another_store_is_not_used(
    postgresql: PostgreSQLServer, tmp_path: Path, entry: MakeEntry
) -> None:
    given: Any = {
        "fingerprint": FINGERPRINT,
        "dimension": DIMENSION,
        "database": postgresql.url,
    }
    for name, text in (("a", "former"), ("b", "present")):
        with closing(open_data_directory(tmp_path / name, **given)) as data:
            data.engine.apply(data.store.put([entry("d", text)]))
            data.index.publish()
        if name == "a":
            drop_collection(postgresql.url, "default")
    with closing(open_data_directory(tmp_path / "a", **given)) as data:
        ids = data.store.changes_since(0).added
        assert data.index.scores(entry("d", "present").vector, ids)[0] > 0.99


def test_nothing_acknowledged_is_lost_when_a_server_is_killed(
    postgresql: PostgreSQLServer, tiny_checkpoint: Path, tmp_path: Path, tier: Tier
) -> None:
    """Writes through two servers, one of which is killed and started again."""
    moments = random.Random(tier.seed)
    held: dict[str, str | None] = {}  # what is acknowledged; None is deleted

    def write(server: Server, prefix: str, stop: threading.Event) -> str | None:
        """Write until the server is gone; return the document of the last, open request."""
        number = 0
        while not stop.is_set():
            number += 1
            name, text = f"{prefix}{number % 40}", f"{number}. {RIVER}"
            try:
                if number % 5:
                    body = {"documents": [{"id": name, "text": text}]}
                    done = server.request("POST", "/index", body)[0] == 200
                else:
                    text = None
                    done = server.request("DELETE", f"/documents/{name}")[0] in (204, 404)
            except OSError:
                return name
            assert done
            held[name] = text
        return None

    def start(server: Server, prefix: str, stop: threading.Event) -> tuple[Any, list[str | None]]:
        last: list[str | None] = []
        thread = threading.Thread(target=lambda: last.append(write(server, prefix, stop)))
        thread.start()
        return thread, last

    given = {"database": postgresql.url}
    with serving(tmp_path, tmp_path / "b", tiny_checkpoint, **given) as stays:
        for _ in range(20 if tier.sweep else 3):
            stop = threading.Event()
            with serving(tmp_path, tmp_path / "a", tiny_checkpoint, **given) as killed:
                threads = [start(killed, "a", stop), start(stays, "b", stop)]
                threads[0][0].join(moments.uniform(0.1, 1.5))
                killed.process.kill()
                threads[0][0].join()
                stop.set()
                threads[1][0].join()
            assert threads[1][1] == [None]
            unknown = threads[0][1][0]
            held |= {unknown: held.get(unknown)} if unknown else {}
            for name, text in held.items():
                status, answer = stays.request("GET", f"/documents/{name}?text=true")
                if name == unknown:  # either
                    held[name] = answer["text"] if status == 200 else None
                elif text is None:
                    assert status == 404, f"{name} is back"
                else:
                    assert (status, answer["text"]) == (200, text), f"{name} is lost"
    with serving(tmp_path, tmp_path / "a", tiny_checkpoint, **given) as again:
        present = {name for name, text in held.items() if text is not None}
        assert set(found(again, RIVER, top_k=100)) == present


def test_a_database_that_fails_is_named_and_comes_back(
    serve: Serve, postgresql: PostgreSQLServer, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    body = {"documents": [{"id": "music", "text": MUSIC}]}

    def refused(kind: str, detail: str) -> None:
        status, answer = server.request("POST", "/index", body)
        assert (status, answer["type"]) == (507 if "full" in kind else 503, f"/problems/{kind}")
        assert detail in answer["detail"]
        assert server.request("GET", "/readyz")[1]["degraded"] == ["storage"]

    def administer(*statements: str) -> None:
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    with serve(tmp_path / "data", tiny_checkpoint, database=postgresql.url) as server:
        put(server, "river", RIVER)
        administer("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        wait_until(lambda: server.request("POST", "/index", body)[0] == 503)
        refused("storage-failed", "PostgreSQL takes no writes")
        assert found(server, RIVER) == ["river"]
        administer(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
        wait_until(lambda: server.request("POST", "/index", body)[0] == 200)
        assert server.request("DELETE", "/documents/music")[0] == 204
        administer(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$",
            """DO $$ BEGIN EXECUTE (SELECT format('CREATE TRIGGER no_room
            BEFORE INSERT ON %I.documents EXECUTE FUNCTION public.no_room()', schemaname)
            FROM pg_tables WHERE tablename = 'documents'); END $$""",
        )
        refused("storage-full", "the database has no room")
        assert found(server, RIVER) == ["river"]
        administer("DROP FUNCTION no_room CASCADE")
        postgresql.stop()
        refused("storage-failed", "PostgreSQL cannot be reached")
        assert server.request("POST", "/match", {"text": RIVER})[0] == 503
        postgresql.start()
        assert found(server, RIVER) == ["river"]
        put(server, "music", MUSIC)
        wait_until(lambda: server.request("GET", "/readyz")[1]["degraded"] == [])
