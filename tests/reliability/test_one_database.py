"""Servers over one PostgreSQL: what one has acknowledged, every one has; also after faults."""

import json
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import index.postgresql.connections
from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory
from index.engine.qdrant.engine import QdrantEngine, connect
from index.postgresql.connections import drop_collection
from index.store.document_store import DocumentStore
from tests.kit.command import Run
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry
from tests.kit.postgresql import PostgreSQLServer, run_postgresql
from tests.kit.process_fixtures import Server, serving, start_program
from tests.kit.qdrant_server import QdrantServer, holds_the_store, run_qdrant
from tests.kit.tiers import Tier
from tests.kit.waiting import TIMEOUT_S, wait_until

RIVER = "Rivers carry stones and sand to the sea. In spring they flood the fields. " * 9
MUSIC = "A sonata has three movements. The second of them is slow and quiet. " * 9
Serve = Callable[..., Any]


@pytest.fixture
def postgresql() -> Iterator[PostgreSQLServer]:
    with run_postgresql() as server:
        yield server


@contextmanager
def searched_by(engine: str, folder: Path) -> Iterator[QdrantServer | None]:
    """Run what searches, besides the servers; None for "local"."""
    if engine == "local":
        yield None
    else:
        with run_qdrant(folder / "engine") as server:
            yield server


def settings(postgresql: PostgreSQLServer, qdrant: QdrantServer | None) -> dict[str, str]:
    return {"database": postgresql.url} | ({} if qdrant is None else {"engine": qdrant.url})


def put(server: Server, name: str, text: str, **other: object) -> None:
    body = {"documents": [{"id": name, "text": text, **other}]}
    status, answer = server.request("POST", "/index", body)
    assert status == 200, answer


def found(server: Server, text: str, **other: object) -> list[str]:
    body = {"text": text, "top_k": 10, **other}
    status, answer = server.request("POST", "/match", body)
    assert status == 200, answer
    return [match["id"] for match in answer["matches"]]


@pytest.mark.parametrize("engine", ["local", pytest.param("qdrant", marks=pytest.mark.slow)])
def test_two_servers_are_one(
    serve: Serve, postgresql: PostgreSQLServer, engine: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with searched_by(engine, tmp_path) as qdrant:
        given = settings(postgresql, qdrant)
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
                assert len(found(server, RIVER, collapse=True)) == 2  # a family, and music
                assert server.request("GET", "/documents/river")[1]["family"] is not None
            put(b, "river", RIVER, title="Rivers", metadata={"year": 2})  # the text is unchanged
            year = {"field": "/year", "range": {"gte": 2}}
            assert found(a, RIVER, filter=year) == ["river"]
            verdict = {"query": {"text": RIVER}, "match": "copy", "grade": 1}
            assert a.request("POST", "/feedback", verdict)[0] == 200
            assert b.request("GET", "/feedback")[1]["feedback"][0]["grade"] == 1
            made = a.request("POST", "/standing-queries", {"text": RIVER, "min_score": -1})[1]
            put(b, "late", RIVER)
            events = f"/standing-queries/{made['id']}/events"
            for server in (a, b):
                wait_until(lambda server=server: "late" in str(server.request("GET", events)[1]))
            assert b.request("DELETE", "/documents/late")[0] == 204
            assert b.request("DELETE", "/documents/river")[0] == 204
            for server in (a, b):
                assert server.request("GET", "/documents/river")[0] == 404
                assert "river" not in found(server, RIVER)
                assert server.request("GET", "/documents/copy")[1].get("family") is None
            for server in (a, b):
                assert server.request("PUT", "/collections/papers")[0] in (200, 201)
            body = {"documents": [{"id": "p", "text": RIVER}]}
            status, answer = a.request("POST", "/collections/papers/index", body)
            assert status == 200, answer
            assert b.request("GET", "/collections/papers/documents/p")[0] == 200
        with serve(tmp_path / "c", tiny_checkpoint, **given) as c:  # from an empty directory
            assert set(found(c, MUSIC)) == {"copy", "music"}
            assert c.request("GET", "/collections/papers/documents/p")[0] == 200
            derived = {path.name for path in (tmp_path / "c").iterdir()}
            assert not derived & {"families.sqlite3", "store.sqlite3"}
            assert engine == "local" or not derived & {"blocks.sqlite3", "lexical", "vectors.faiss"}


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
            changes = reader.log.since(sequence)
            assert changes is not None
            assert all(number > last for number in changes.changed)
            seen += changes.changed
            sequence, last = changes.sequence, max(seen, default=0)
        assert sorted(seen) == list(range(1, 1 + len(reader)))
        for store in stores:
            store.close()


@pytest.mark.parametrize(
    "hit",
    [
        None,
        *(pytest.param(hit, marks=pytest.mark.slow) for hit in (signal.SIGKILL, signal.SIGSTOP)),
    ],
)
def test_one_server_at_a_time_makes_a_generation(
    postgresql: PostgreSQLServer,
    tmp_path: Path,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
    hit: signal.Signals | None,
) -> None:
    """The other waits for what is made, unless its maker is killed, or paused for long."""
    monkeypatch.setattr(index.postgresql.connections, "LEASE_SECONDS", 1 if hit else 600)
    goes_on, given = tmp_path / "goes on", (str(tmp_path), postgresql.url)
    with run_qdrant(tmp_path / "engine") as qdrant, ThreadPoolExecutor() as threads:
        engine = open_engine(*given, qdrant.url)
        with closing(engine.store):
            engine.store.put([entry("d")])
            maker = start_program(f"{__name__}:make_slowly", *given, qdrant.url, goes_on)
            wait_until(lambda: engine.client.get_collections().collections)
            if hit is not None:
                maker.send_signal(hit)
            waits = threads.submit(engine.rebuild)
            if hit is None:
                with psycopg.connect(postgresql.url, autocommit=True) as connection:
                    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
                    wait_until(lambda: connection.execute(waiting).rowcount)
                goes_on.touch()
            waits.result()
            assert holds_the_store(engine)
            maker.send_signal(signal.SIGCONT)
            goes_on.touch()
            assert bool(maker.wait(TIMEOUT_S)) == (hit is not None)
            assert holds_the_store(engine)
            (made,) = engine.client.get_collections().collections
            assert made.name.endswith("-2" if hit else "-1")


def open_engine(folder: str, database: str, url: str) -> QdrantEngine:
    given: Any = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, "database": database}
    store = DocumentStore(Path(folder, "store.sqlite3"), **given, searched_elsewhere=True)
    return connect(store, url)


def make_slowly() -> None:
    """Make a generation in a process of its own, which writes no point until a file is there."""
    *given, goes_on = sys.argv[1:]
    engine = open_engine(*given)
    write = engine._upsert

    def wait_and_write(*points: Any) -> None:
        wait_until(Path(goes_on).exists)
        write(*points)

    engine._upsert = wait_and_write  # type: ignore[method-assign]
    engine.rebuild()


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
        ids = data.store.log.added_after(0)[1]
        assert data.index.scores(entry("d", "present").vector, ids)[0] > 0.99


class Writes:
    """Writes of documents through servers, and what may be there after them."""

    def __init__(self) -> None:
        self.allowed: dict[str, set[str | None]] = {}  # None is a document that is not there
        self._open: dict[str, list[str | None]] = defaultdict(list)
        self._last: dict[str, str | None] = {}  # that was begun
        self._number = count(1)

    def write(self, server: Server, name: str, text: str | None) -> None:
        """Put a document, or delete it; of writes at the same time either may be the last."""
        opened = self._open[name]
        others, mine = set(opened), {text}
        opened.append(text)
        self._last[name] = text
        self.allowed[name] = self.allowed.get(name, {None}) | mine
        try:
            if text is None:
                done = server.request("DELETE", f"/documents/{name}")[0] in (204, 404)
            else:
                body = {"documents": [{"id": name, "text": text}]}
                status, answer = server.request("POST", "/index", body)
                assert status in (200, 503), answer
                done = status == 200
        except OSError:
            return
        if done and self._last[name] == text:
            self.allowed[name] = mine | others
        if done:
            opened.remove(text)

    def write_on(self, server: Server, prefix: str, stop: threading.Event) -> None:
        """Write different documents until `stop`, and leave the processor to the servers."""
        while not stop.wait(0.02):
            number = next(self._number)
            text = f"{number}. {RIVER}" if number % 5 else None
            self.write(server, f"{prefix}{number % 40}", text)

    def check(self, server: Server) -> None:
        """Compare with what a server has, which is known from now on."""
        for name, allowed in self.allowed.items():
            status, answer = server.request("GET", f"/documents/{name}?text=true")
            assert status in (200, 404), answer
            text = answer["text"] if status == 200 else None
            assert text in allowed, f"{name} is {text and text[:9]!r}"
            self.allowed[name] = {text}

    @property
    def present(self) -> set[str]:
        return {name for name, texts in self.allowed.items() if texts != {None}}


@pytest.mark.parametrize("engine", [pytest.param("local", marks=pytest.mark.slow), "qdrant"])
def test_nothing_acknowledged_is_lost_or_comes_back(
    postgresql: PostgreSQLServer, engine: str, tiny_checkpoint: Path, tmp_path: Path, tier: Tier
) -> None:
    """Writes through two servers while a server, PostgreSQL or the engine is killed or paused."""
    moments, writes = random.Random(tier.seed), Writes()
    faults = ["database", "pause", "server"]
    if engine == "qdrant":
        faults = ["engine", "engine pause", *faults] if tier.sweep else ["engine", *faults[1:]]

    def hits(fault: str, server: Server) -> None:
        if fault == "server":
            server.process.kill()
        elif fault == "pause":
            server.process.send_signal(signal.SIGSTOP)
            try:
                for number in range(0, 40, 1 if tier.sweep else 4):  # also over what is on its way
                    text = f"later {number}. {MUSIC}" if number % 3 else None
                    writes.write(stays, f"a{number}", text)
            finally:
                server.process.send_signal(signal.SIGCONT)
        else:
            down, up = {
                "database": (postgresql.stop, postgresql.start),
                "engine": (process and process.kill, process and process.start),
                "engine pause": (process and process.pause, process and process.resume),
            }[fault]
            assert down
            assert up
            down()
            time.sleep(moments.uniform(0.0, 0.5))
            up()

    with searched_by(engine, tmp_path) as process, ExitStack() as running:
        given = settings(postgresql, process)
        start = partial(serving, tmp_path, checkpoint=tiny_checkpoint, **given)
        stays = running.enter_context(start(tmp_path / "b"))
        for _ in range(6 if tier.sweep else 1):
            with start(tmp_path / "a") as hit, ThreadPoolExecutor() as threads:
                for fault in faults:
                    stop = threading.Event()
                    calls = [
                        threads.submit(writes.write_on, server, prefix, stop)
                        for server, prefix in ((hit, "a"), (stays, "b"))
                    ]
                    time.sleep(moments.uniform(0.1, 1.0))
                    try:
                        hits(fault, hit)
                    finally:
                        stop.set()
                    for call in calls:
                        call.result()
                    writes.check(stays)
        wait_until(lambda: set(found(stays, RIVER, top_k=100)) == writes.present)
        running.close()
        with serving(tmp_path, tmp_path / "a", tiny_checkpoint, **given) as again:
            assert set(found(again, RIVER, top_k=100)) == writes.present
        about = load_checkpoint(tiny_checkpoint)
        vectors = {"fingerprint": about.fingerprint, "dimension": about.dimension}
        with closing(open_data_directory(tmp_path / "d", **vectors, **given)) as data:
            if isinstance(data.engine, QdrantEngine):
                assert holds_the_store(data.engine)


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
