"""The state of a collection: the same in a file of SQLite and in a PostgreSQL, both real."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text, update

from index.errors import DatabaseFailedError, StorageFullError, StoreError
from index.postgresql.connections import drop_collection, schema_name
from index.search.records import Hit
from service import errors
from service import state as tables
from service.app import create_app
from service.feedback.store import FeedbackStore, JudgedQuery
from service.standing.store import Interest, Scan, StandingStore, new_webhook
from service.startup import open_engine
from service.state import IdempotencyStore, State, StoredResponse, existing_state, open_state
from service.uploads.store import Batch, JobStore, LineError, Upload
from tests.kit.postgresql import PostgreSQLServer, run_postgresql
from tests.kit.service_fixtures import Client
from tests.kit.waiting import wait_until

LONG = JudgedQuery(text="A long question about rivers. " * 1_000, title="Rivers")
BOUNDS = {"min_score": 0.0, "min_probability": None, "max_false_positive_rate": None}
INTEREST = Interest(document="a", title="\0", mode="semantic", filter=None, **BOUNDS)
Reopen = Callable[[], State]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQLServer]:
    with run_postgresql() as running:
        yield running


@pytest.fixture
def database(server: PostgreSQLServer) -> Iterator[str]:
    yield server.url
    for name in ("default", "papers"):
        drop_collection(server.url, name)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Return a function that opens the state, as a start of the service does."""
    used = request.getfixturevalue("database") if request.param == "PostgreSQL" else None
    opened: list[State] = []

    def reopened() -> State:
        opened.append(open_state(tmp_path, used))
        return opened[-1]

    yield reopened
    for state in opened:
        state.close()


@pytest.fixture
def state(reopen: Reopen) -> State:
    return reopen()


@pytest.fixture
def store(state: State) -> FeedbackStore:
    return FeedbackStore(state)


def queries(state: State) -> list[int]:
    """Return the sizes of the queries that are stored."""
    with state.reading() as connection:
        return list(connection.scalars(select(tables.judged.c.size).order_by(tables.judged.c.size)))


def test_a_text_is_stored_once_and_goes_with_its_last_verdict(
    state: State, store: FeedbackStore
) -> None:
    given = [store.put(LONG, f"d{number}", 1) for number in range(20)]
    assert len(queries(state)) == 1
    assert queries(state)[0] < 1_000  # compressed
    assert list(store.all()) == sorted(given, key=lambda item: item.id)
    for name in given:
        assert len(queries(state)) == 1
        store.remove(name.id)
    assert queries(state) == []
    with pytest.raises(errors.FeedbackNotFoundError):
        store.remove(given[0].id)


def test_different_queries_are_different(store: FeedbackStore) -> None:
    texts = [("a", ""), ("a", "b"), ("ab", ""), ("b", "a"), ("1 a", ""), ("", "1 a"), ("\0", "")]
    different = [JudgedQuery(text=text, title=title) for text, title in texts]
    different += [JudgedQuery(document_id="a"), JudgedQuery(text="")]
    given = [store.put(query, "d", 1) for query in different]
    assert len({verdict.id for verdict in given}) == len(different)
    assert {found.query for found in store.all()} == set(different)


def test_the_parts_of_an_export_are_bounded_and_whole(store: FeedbackStore) -> None:
    for number in range(12):
        store.put(JudgedQuery(text=f"{number}" * 100), "d", number % 4)
    parts, after = [], ""
    while part := store.whole(after, 250):
        assert 1 <= len(part) <= 3
        parts += part
        after = part[-1].id
    assert parts == list(store.all())
    assert [entry.id for entry in store.listed("", 5)] == [item.id for item in parts[:5]]
    assert {entry.query.text for entry in store.listed("", 50)} == {None}
    assert store.grades() == {0: 3, 1: 3, 2: 3, 3: 3}
    assert store.relevant_queries() == 9


def test_documents_are_forgotten_with_all_that_names_them(
    state: State, store: FeedbackStore
) -> None:
    store.put(JudgedQuery(document_id="a"), "b", 1)
    store.put(JudgedQuery(document_id="b"), "c", 1)
    kept = store.put(JudgedQuery(document_id="c"), "d", 1)
    store.put(LONG, "b", 1)
    assert sorted(store.documents()) == ["a", "b", "c", "d"]
    store.forget(["b", "nobody", "\0"])
    assert list(store.all()) == [kept]
    assert len(queries(state)) == 1


def test_the_limits_hold_for_writers_at_once(state: State) -> None:
    store = FeedbackStore(state, max_verdicts=25)

    def is_refused(number: int) -> bool:
        try:
            store.put(JudgedQuery(text=str(number)), "d", 1)
        except errors.FeedbackFullError:
            return True
        return False

    with ThreadPoolExecutor(6) as pool:
        refused = sum(pool.map(is_refused, range(60)))
    assert len(list(store.all())) == 25
    assert refused == 35


def test_what_is_too_large_leaves_nothing(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.feedback.store.MAX_QUERY_BYTES", 10)
    with pytest.raises(errors.FeedbackFullError, match="10 bytes of texts"):
        FeedbackStore(state).put(LONG, "d", 1)
    assert queries(state) == []
    monkeypatch.setattr("service.standing.store.MAX_BYTES", 100)
    store = StandingStore(state, max_queries=2)
    store.check_room(100)
    with pytest.raises(errors.TooManyStandingQueriesError, match="the limit is 100 bytes of texts"):
        store.check_room(101)


def test_a_write_is_whole_or_undone(state: State, store: FeedbackStore) -> None:
    kept = store.put(LONG, "d", 3)

    def fail() -> None:
        with state.writing() as connection:
            connection.execute(update(tables.judged).values(size=0))
            connection.execute(text("SELECT no_column FROM nowhere"))

    with pytest.raises(StoreError):
        fail()
    assert queries(state) != [0]
    assert list(store.all()) == [kept]


def test_jobs_keep_their_order_and_progress(reopen: Reopen) -> None:
    jobs = JobStore(reopen())
    for name in ("first", "second"):
        jobs.insert(Upload(id=name, size=2**33, accepted=7, digest=b"\0digest"), "key:a")
    first, second = jobs.unfinished()
    begun = jobs.begin(first)
    assert begun is not None
    assert (begun.state, begun.size, begun.digest) == ("running", 2**33, b"\0digest")
    wrong = [LineError(line, "#/text", "has \0") for line in range(150, 0, -1)]
    assert jobs.advance(first, Batch(10, 3, 2, 1, 0, 1, wrong))
    assert jobs.advance(first, Batch(20, 6, 2, 0, 1, 0, wrong[:1]))
    jobs.pause(first, "waits")
    jobs = JobStore(reopen())
    found = jobs.find("first")
    assert (found.state, found.detail, found.position, found.line) == ("waiting", "waits", 20, 6)
    assert (found.indexed, found.unchanged, found.truncated, found.failed) == (4, 1, 1, 1)
    assert found.errors == wrong[:-101:-1]
    assert jobs.end("second", "cancelled").has_ended
    assert jobs.begin(second) is None
    with pytest.raises(errors.JobEndedError, match="cancelled already"):
        jobs.end("second", "done")
    with pytest.raises(errors.JobNotFoundError):
        jobs.find("\0")
    assert [job.id for job in jobs.newest(5, None)] == ["second", "first"]
    assert [job.id for job in jobs.newest(5, "second")] == ["first"]


def test_of_too_many_keys_the_oldest_are_forgotten(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.state.MAX_KEYS", 2)
    store = IdempotencyStore(reopen())
    for key in "abc":
        store.put(key, b"request", StoredResponse(201, b"{}", "/a"))
    store = IdempotencyStore(reopen())
    found = {key: store.find(key, b"request") for key in "abc"}
    kept = StoredResponse(201, b"{}", "/a")
    assert found == {"a": None, "b": kept, "c": kept}


def test_only_the_last_events_of_a_query_are_kept(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their numbers go on after the next opening, also where none is left."""
    monkeypatch.setattr("service.standing.store.MAX_EVENTS", 2)
    store = StandingStore(reopen(), max_queries=2)
    first, second = (store.add(INTEREST, None, None, 0) for _ in range(2))
    assert store.find(first.id) == first
    for number in range(3):
        found = (Hit(str(number), 0.5, "\0", {}, 0.5, 0.5, false_positive_rate=0.1),)
        scans = [
            Scan(store.find(query.id), number + 1, found, "semantic") for query in (first, second)
        ]
        assert store.advance(scans) == 2
        assert store.advance(scans) == 0  # they are at another place now
    for query in (first, second):
        kept = store.events_after(0, 10, query.id)
        assert [event.document for event in kept] == ["1", "2"]
        assert (kept[-1].title, kept[-1].score, kept[-1].scored_as) == ("\0", 0.5, "semantic")
        assert (kept[-1].probability, kept[-1].false_positive_rate) == (None, 0.1)
    last = kept[-1].number
    store.remove(first.id)
    store.remove(second.id)
    assert store.events_after(0, 10) == []
    store = StandingStore(reopen(), max_queries=2)
    third = store.add(INTEREST, None, None, 0)
    assert third.number > second.number
    store.advance([Scan(third, 1, found, "semantic")])
    assert store.events_after(0, 10)[0].number > last
    with pytest.raises(errors.StandingQueryNotFoundError):
        store.remove(first.id)


def test_a_delivery_counts_for_its_own_webhook_alone(state: State) -> None:
    store = StandingStore(state, max_queries=3)
    webhook = new_webhook("https://a.example/", "whsec_a")
    made = [store.add(INTEREST, None, webhook, 0) for _ in range(2)]
    found = [Hit(str(number), 0.5, "", {}, 0.5, 0.5, probability=0.5) for number in range(2)]
    store.advance([Scan(query, 1, found, "semantic") for query in made])
    late, query = (store.find(query.id) for query in made)
    retried = {"attempts": 1, "retry_at": 60.0, "failure": "no answer"}
    assert store.record(late, webhook.model_copy(update=retried))
    assert [item.id for item in store.undelivered()] == [query.id, late.id]  # those due first
    first, last = (event.number for event in store.events_after(0, 10, query.id))
    assert store.record(query, webhook.model_copy(update={"delivered": last}))
    assert store.record(query, webhook.model_copy(update={"delivered": first}))
    assert store.find(query.id).webhook == webhook.model_copy(update={"delivered": last})
    assert [item.id for item in store.undelivered()] == [late.id]
    failed = {"attempts": 2, "retry_at": 60.0, "failed": True, "failure": "gone"}
    store.record(late, webhook.model_copy(update=failed))
    assert store.undelivered() == []
    assert store.count() == {"all": 2, "waiting": 0, "failed": 1, "paused": 0}
    store.resume(late.id)
    assert store.find(late.id).webhook == webhook.model_copy(update={"failure": "gone"})
    with state.writing() as connection:
        connection.execute(update(tables.progress).values(space="former"))
    assert not store.follow("space", 0)
    assert store.find(query.id).scanned == 0


def test_a_file_is_read_by_commands_and_by_no_other_user(tmp_path: Path) -> None:
    with existing_state(tmp_path) as missing:
        assert missing is None
    with closing(open_state(tmp_path)) as state:
        given = FeedbackStore(state).put(LONG, "d", 3)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("state*")} == {0o600}
    with existing_state(tmp_path) as found:
        assert found is not None
        assert list(FeedbackStore(found).all()) == [given]
        with pytest.raises(StoreError, match="for reading only"):
            FeedbackStore(found).remove(given.id)


def test_a_database_that_cannot_be_used_is_refused(database: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseFailedError, match=r"/postgres .*: PostgreSQL cannot be reached"):
        open_state(tmp_path, database.replace("longmatch@", "nobody:secret@"))
    with pytest.raises(StoreError, match="is not postgresql://USER@HOST/DATABASE"):
        open_state(tmp_path, "postgresql://host?port")
    open_state(tmp_path, database).close()
    with psycopg.connect(database) as connection:
        name = schema_name("default")
        connection.execute(f"COMMENT ON TABLE {name}.progress IS '0 default'".encode())
    with pytest.raises(StoreError, match="has format 0; this version of Longmatch reads 4"):
        open_state(tmp_path, database)


def test_a_database_that_is_full_says_so(database: str, tmp_path: Path) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
    with closing(open_state(tmp_path, database)) as state:
        with pytest.raises(StorageFullError), state.writing() as connection:
            connection.execute(text(full))
        assert isinstance(state.failure, StorageFullError)
        FeedbackStore(state).put(LONG, "d", 1)
        assert state.failure is None


def test_a_service_with_its_state_in_postgresql(
    make_settings: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Collections, feedback and standing queries; a database that stops; what is left of each."""
    with run_postgresql() as server:
        monkeypatch.setenv("LONGMATCH_DATABASE", server.url)
        settings = make_settings(database=server.url)
        engine = open_engine(settings)
        client = Client(create_app(engine.settings, engine))
        verdict = {"query": {"id": "bees"}, "match": "tax", "grade": 1}
        interest = {"text": "Bees live in hives.", "min_score": -1}
        for prefix in ("", "/collections/papers"):
            client.request("PUT", "/collections/papers")
            documents = [{"id": name, "text": f"{name} in hives."} for name in ("bees", "tax")]
            headers = {"Idempotency-Key": "k"}
            first, second = (
                client.post(f"{prefix}/standing-queries", json=interest, headers=headers)
                for _ in range(2)
            )
            assert first.content == second.content
            path = second.headers["location"]
            assert path == f"{prefix}/standing-queries/{first.json()['id']}"
            assert client.post(f"{prefix}/index", json={"documents": documents}).is_success
            assert client.post(f"{prefix}/feedback", json=verdict).is_success
            wait_until(lambda path=path: len(client.get(f"{path}/events").json()["events"]) == 2)
        server.stop()
        failed = client.post("/feedback", json=verdict)
        assert (failed.status_code, failed.json()["type"]) == (503, "/problems/storage-failed")
        assert "PostgreSQL cannot be reached" in failed.json()["detail"]
        unread = client.post("/match", json={"id": "bees"})
        assert (unread.status_code, unread.json()["type"]) == (503, "/problems/storage-failed")
        assert client.get("/readyz").json()["degraded"] == ["storage"]
        wait_until(lambda: "jobs are paused: " in caplog.text)
        server.start()
        assert client.post("/feedback", json=verdict).is_success
        lines = {"Content-Type": "application/x-ndjson"}
        sent = client.post("/index", content=b'{"id": "a", "text": "Ants."}', headers=lines)
        wait_until(lambda: client.get(sent.headers["location"]).json()["state"] == "done")
        engine.opened.close()
        engine = open_engine(settings)
        client = Client(create_app(engine.settings, engine))
        assert len(client.get("/standing-queries").json()["queries"]) == 1
        assert client.delete("/documents/tax").status_code == 204
        assert client.get("/feedback").json()["feedback"] == []
        papers = settings.data / "collections" / "papers"
        with existing_state(papers) as state:
            assert state is not None
            assert sorted(FeedbackStore(state).documents()) == ["bees", "tax"]
        assert client.delete("/collections/papers").status_code == 204
        with existing_state(papers) as state:
            assert state is None
        client.request("PUT", "/collections/papers")
        assert client.get("/collections/papers/standing-queries").json()["queries"] == []
        engine.opened.close()
