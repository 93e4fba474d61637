"""Collections that are created, removed, opened again, damaged, and too many."""

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from index.directory.collections import COLLECTIONS_DIRECTORY, collection_path
from index.directory.data_directory import STORE_FILE
from index.errors import StoreError
from service.app import create_app
from service.engine import Engine, unready_because
from service.errors import SettingsError
from service.settings import Settings
from service.startup import open_engine
from service.uploads.files import UPLOADS_DIRECTORY
from tests.kit.problems import problem
from tests.kit.service_fixtures import Client

MakeSettings = Callable[..., Settings]
LINES = {"content-type": "application/x-ndjson"}
PAPERS = "/collections/papers"


class Servers:
    """Servers of one data directory, one after the other."""

    def __init__(self, make_settings: MakeSettings) -> None:
        self._make_settings = make_settings
        self.engine: Engine | None = None

    def start(self, **changed: Any) -> Client:
        self.stop()
        self.engine = open_engine(self._make_settings(**changed))
        return Client(create_app(self.engine.settings, self.engine))

    def stop(self) -> None:
        if self.engine is not None:
            self.engine.opened.close()
            self.engine = None


@pytest.fixture
def servers(make_settings: MakeSettings) -> Iterator[Servers]:
    made = Servers(make_settings)
    yield made
    made.stop()


@pytest.fixture
def data(make_settings: MakeSettings) -> Path:
    return make_settings().data


def put(client: Client, prefix: str, name: str) -> None:
    body = {"documents": [{"id": name, "text": f"A text on {name}."}]}
    assert client.post(f"{prefix}/index", json=body).status_code == 200


def own_threads() -> Counter[str]:
    """Count the threads that work for one collection, by their names without numbers."""
    shared = ("encode", "reader", "exporter", "block-cache", "collections")
    shared += ("asyncio", "MainThread", "execnet")  # of Python and the tests
    running = [thread.name.partition("_")[0] for thread in threading.enumerate()]
    return Counter(name for name in running if not name.startswith(shared))


def names(client: Client) -> list[str]:
    return [collection["name"] for collection in client.get("/collections").json()["collections"]]


def test_a_collection_is_created_once_and_outlives_a_restart(servers: Servers) -> None:
    client = servers.start()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.request("PUT", PAPERS).status_code, range(4)))
    assert sorted(answers) == [200, 200, 200, 201]
    put(client, PAPERS, "a")
    assert client.request("PUT", PAPERS).json()["documents"] == 1
    assert client.request("PUT", "/collections/default").status_code == 200
    client = servers.start()
    assert names(client) == ["default", "papers"]
    assert client.get(f"{PAPERS}/documents/a").status_code == 200
    assert client.get("/documents/a").status_code == 404


def test_use_during_changes_is_answered_or_refused(servers: Servers) -> None:
    client = servers.start()
    ended = threading.Event()
    statuses: Counter[int] = Counter()

    def use(number: int) -> None:
        body = {"documents": [{"id": f"d{number}", "text": "Ants dig deep."}]}
        while not ended.is_set():
            for path, sent in (("index", body), ("match", {"text": "Ants dig."})):
                statuses[client.post(f"{PAPERS}/{path}", json=sent).status_code] += 1

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, number) for number in range(3)]
        try:
            for _ in range(4):
                assert client.request("PUT", PAPERS).status_code == 201
                while not client.get(PAPERS).json()["documents"]:
                    time.sleep(0.01)
                assert client.delete(PAPERS).status_code == 204
        finally:
            ended.set()
        for user in users:
            user.result(30)
    assert set(statuses) == {200, 404}


def test_other_names_are_refused(client: Client, data: Path) -> None:
    for name in ("Papers", "-papers", "a.b", "a" * 64, "ü"):
        answer = client.request("PUT", f"/collections/{name}")
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["parameter"] == "collection"
    assert not (data / COLLECTIONS_DIRECTORY).exists()


def test_a_removed_collection_is_gone_with_all_that_it_held(servers: Servers, data: Path) -> None:
    client = servers.start()
    before = own_threads()
    client.request("PUT", PAPERS)
    put(client, PAPERS, "a")
    lines = b"".join(b'{"id": "%d", "text": "Line %d."}\n' % (n, n) for n in range(2_000))
    assert client.post(f"{PAPERS}/index", content=lines, headers=LINES).status_code == 202
    assert client.delete(PAPERS).status_code == 204
    assert own_threads() == before
    assert list((data / COLLECTIONS_DIRECTORY).iterdir()) == []
    assert client.delete(PAPERS).status_code == client.get(PAPERS).status_code == 404
    assert client.delete("/collections/default").status_code == 422
    assert client.get(f"{PAPERS}/documents").status_code == 404
    assert 'collection="papers"' not in client.get("/metrics").text
    assert client.request("PUT", PAPERS).status_code == 201
    assert client.get(f"{PAPERS}/documents").json()["documents"] == []
    assert client.get(f"{PAPERS}/jobs").json()["jobs"] == []


def test_a_removal_waits_for_those_who_use_the_collection(servers: Servers) -> None:
    client = servers.start()
    client.request("PUT", PAPERS)
    put(client, PAPERS, "a")
    assert servers.engine is not None
    collections = servers.engine.collections
    statuses: list[int] = []
    with collections.use("papers") as used:
        removal = threading.Thread(
            target=lambda: statuses.append(client.delete(PAPERS).status_code)
        )
        removal.start()
        while "papers" in names(client):
            time.sleep(0.01)
        assert client.get(f"{PAPERS}/documents").status_code == 404
        assert len(used.data.store) == 1
        assert statuses == []
    removal.join(120)
    assert statuses == [204]
    with pytest.raises(StoreError, match="closed"):
        len(used.data.store)


def test_a_collection_that_cannot_be_removed_is_named(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = servers.start()
    client.request("PUT", PAPERS)
    put(client, PAPERS, "a")
    with monkeypatch.context() as patched:
        broken = Mock(side_effect=OSError(30, "Read-only file system"))
        patched.setattr("index.directory.collections.replace_durably", broken)
        assert client.delete(PAPERS).status_code == 503  # the disk failed
    assert client.get(PAPERS).json()["state"] == "unavailable"
    assert client.get(f"{PAPERS}/documents").status_code == 503
    assert client.request("PUT", PAPERS).json()["state"] == "open"
    assert client.get(f"{PAPERS}/documents/a").status_code == 200


def test_there_are_no_more_than_the_settings_allow(servers: Servers) -> None:
    client = servers.start(max_collections=1)
    assert client.request("PUT", PAPERS).status_code == 201
    refused = client.request("PUT", "/collections/laws")
    problem(refused, 409, "too-many-collections")
    assert names(client) == ["default", "papers"]
    assert client.request("PUT", PAPERS).status_code == 200
    with pytest.raises(SettingsError, match=r"max_collections is 0, and .* has 1"):
        servers.start(max_collections=0)
    assert names(servers.start(max_collections=1)) == ["default", "papers"]


@pytest.mark.parametrize("name", ["papers", "default"])
def test_a_damaged_collection_leaves_the_others_serving(
    servers: Servers, data: Path, name: str
) -> None:
    client = servers.start()
    client.request("PUT", PAPERS)
    for item in ("papers", "default"):
        put(client, f"/collections/{item}", "a")
    servers.stop()
    with (collection_path(data, name) / STORE_FILE).open("r+b") as file:
        file.write(b"x" * 4096)
    client = servers.start()
    other = {"papers": "default", "default": "papers"}[name]
    assert client.get(f"/collections/{other}/documents/a").status_code == 200
    refused = client.post(f"/collections/{name}/match", json={"text": "a"})
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/not-ready")
    assert STORE_FILE in refused.json()["detail"]
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert ready.json()["degraded"] == [f"collection {name}"]
    metrics = client.get("/metrics").text
    assert f'longmatch_collection_ready{{collection="{name}"}} 0.0' in metrics
    assert f'longmatch_collection_ready{{collection="{other}"}} 1.0' in metrics
    listed = client.get("/collections").json()["collections"]
    states = {collection["name"]: collection["state"] for collection in listed}
    assert states == {name: "unavailable", other: "open"}
    assert client.request("PUT", f"/collections/{name}").status_code == 503
    if name == "papers":
        assert client.delete(PAPERS).status_code == 204
        assert client.get("/readyz").json()["status"] == "ready"
    else:
        servers.stop()
        (data / COLLECTIONS_DIRECTORY / "papers").rename(data / "elsewhere")
        with pytest.raises(StoreError):  # it is the only one
            servers.start()


def test_one_whose_uploads_cannot_be_read_leaves_no_thread(servers: Servers, data: Path) -> None:
    client = servers.start()
    before = own_threads()
    client.request("PUT", PAPERS)
    servers.stop()
    uploads = collection_path(data, "papers") / UPLOADS_DIRECTORY
    uploads.rmdir()
    uploads.write_text("no folder")
    client = servers.start()
    assert "uploads" in client.get(PAPERS).json()["detail"]
    now = own_threads()
    for name in ("jobs", "rounds of maintenance", "measurements of recall"):
        assert now[name] == before[name] > 0


def test_a_collection_filled_by_a_command_is_opened_when_free(
    servers: Servers, data: Path, make_settings: MakeSettings
) -> None:
    servers.start().request("PUT", PAPERS)
    servers.stop()
    alone = open_engine(make_settings(data=collection_path(data, "papers")))
    client = servers.start()
    other = open_engine(make_settings(data=collection_path(data, "laws")))
    for engine in (alone, other):
        put(Client(create_app(engine.settings, engine)), "", "a")
    assert client.get(f"{PAPERS}/documents").status_code == 503
    assert client.request("PUT", PAPERS).status_code == 503
    for name, engine in (("papers", alone), ("laws", other)):
        engine.opened.close()
        assert client.request("PUT", f"/collections/{name}").status_code == 200
        assert client.get(f"/collections/{name}/documents/a").status_code == 200


def test_remains_of_a_kill_are_removed(servers: Servers, data: Path) -> None:
    servers.start().request("PUT", PAPERS)
    servers.stop()
    folder = data / COLLECTIONS_DIRECTORY
    for name in (".laws.new", ".old.removed", "Not a name", "default", "empty"):
        (folder / name).mkdir()
    client = servers.start()
    assert names(client) == ["default", "empty", "papers"]
    assert "no data directory" in client.get("/collections/empty").json()["detail"]
    assert {path.name for path in folder.iterdir()} == {"Not a name", "default", "empty", "papers"}


def test_closing_leaves_no_thread_and_no_open_store(make_settings: MakeSettings) -> None:
    before = set(threading.enumerate())
    engine = open_engine(make_settings())
    client = Client(create_app(engine.settings, engine))
    for name in ("a", "b"):
        client.request("PUT", f"/collections/{name}")
        put(client, f"/collections/{name}", "x")
    engine.opened.close()
    assert unready_because(engine)
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if not name.startswith("asyncio")}
    assert client.request("PUT", "/collections/c").status_code == 503
    for name in ("a", "b"):
        store = collection_path(engine.settings.data, name) / STORE_FILE
        with closing(sqlite3.connect(store)) as connection:
            assert connection.execute("SELECT count(*) FROM documents").fetchone() == (1,)


def test_a_failure_to_create_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patched:
        patched.setattr("index.directory.collections.sync_tree", full)
        assert client.request("PUT", PAPERS).status_code == 507
    assert names(client) == ["default"]
    assert client.request("PUT", PAPERS).status_code == 201
