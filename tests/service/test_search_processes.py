"""Search processes: the same answers as threads, whatever is written or killed meanwhile."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import service.searchers
from index.progress import SilentProgress
from service.engine import Engine
from service.searchers import SearchProcesses
from tests.kit.paragraphs import text_of
from tests.kit.waiting import wait_until

MODES = ("semantic", "lexical", "hybrid")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "filter": {"filter": {"field": "number", "range": {"lt": 20}}},
    "exclude": {"exclude": ["d1", "d7", "nothing"]}, "collapse": {"collapse": True},
    "bounds": {"min_score": 0.2}, "unaligned": {"align": False}, "wide": {"top_k": 40},
}  # fmt: skip
QUERIES: dict[str, dict[str, Any]] = {
    "id": {"id": "d3"},
    "text": {"text": f"Title 4, {text_of([0, 3, 77])} own4w1 own9w2", "title": "Title 3"},
    "examples": {"like": [{"id": "d3"}, {"text": text_of([1, 4])}], "unlike": [{"id": "d9"}]},
}
NUMBER = 48
SECONDS = 120


def document(number: int) -> dict[str, Any]:
    """Return one of the documents: every sixth is a copy of the one before."""
    content = number - 1 if number % 6 == 5 else number
    own = " ".join(f"own{(content + word) % 17}w{word}" for word in range(40 + content))
    metadata = {"number": number}
    text = f"{text_of([content % 3, content])} {own}"
    return {"id": f"d{number}", "text": text, "title": f"Title {number}", "metadata": metadata}


def put(client: Any, *documents: dict[str, Any]) -> None:
    assert client.post("/index", json={"documents": list(documents)}).status_code == 200


def engine_of(client: Any) -> Engine:
    engine = client.app.state.engine
    assert isinstance(engine, Engine)
    return engine


def processes_of(client: Any) -> SearchProcesses:
    return engine_of(client).search_processes


def pid_of(client: Any) -> int:
    (only,) = processes_of(client)._processes
    assert only._process is not None
    return only._process.pid


def counted(client: Any, name: str) -> float:
    return engine_of(client).metrics.registry.get_sample_value(f"longmatch_{name}") or 0.0


def by_process(client: Any, body: dict[str, Any]) -> Any:
    """Return what a search process answers, and no thread."""
    wait_until(lambda: processes_of(client).ready() == 1)
    left = counted(client, "search_process_left_total")
    response = client.post("/match", json=body)
    assert response.status_code == 200, response.text
    assert counted(client, "search_process_left_total") == left
    return response.json()


def by_thread(client: Any, body: dict[str, Any], status: int = 200) -> Any:
    """Return what the same server answers without its processes."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr(processes_of(client), "_processes", [])
        response = client.post("/match", json=body)
    assert response.status_code == status, response.text
    return response.json()


def check_same(client: Any, body: dict[str, Any]) -> Any:
    """Check that a process answers as a thread does; return the answer."""
    ours, theirs = by_process(client, body), by_thread(client, body)
    assert ours.pop("timings").keys() == theirs.pop("timings").keys()
    assert ours == theirs
    return ours


def check_all(client: Any) -> None:
    """Check queries of each kind in each mode."""
    for query in QUERIES.values():
        for mode in MODES:
            assert check_same(client, {**query, "mode": mode})["matches"]


@pytest.fixture(scope="module")
def served(make_shared_client: Callable[..., Any]) -> Any:
    """Return a client of a service that has a search process and holds documents."""
    client = make_shared_client(max_queue_tokens=100_000, search_processes=1)
    put(client, *(document(number) for number in range(NUMBER)))
    return client


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("mode", MODES)
def test_the_answer_is_that_of_a_thread(served: Any, mode: str, query: dict[str, Any]) -> None:
    for options in OPTIONS.values():
        check_same(served, {**query, "mode": mode, **options})


def test_explanations_several_queries_and_a_missing_document(served: Any) -> None:
    explained = {"explain": True, "top_k": 3}
    check_same(served, {**QUERIES["id"], **explained})
    queries = [{"id": "d3"}, {"text": text_of([2, 5])}, {"id": "d4"}]
    ours = served.post("/match", json={"queries": queries, **explained})
    assert ours.status_code == 200
    assert len(ours.json()["results"]) == 3
    missing = served.post("/match", json={"id": "nothing"})
    assert missing.status_code == 404
    assert missing.json()["errors"] == by_thread(served, {"id": "nothing"}, 404)["errors"]
    check_same(served, QUERIES["id"])


def test_every_acknowledged_write_is_seen(served: Any) -> None:
    put(served, {**document(3), "id": "new", "title": "Brand New", "metadata": {"number": 1000}})
    answer = check_same(served, QUERIES["id"])
    assert answer["matches"][0]["id"] == "new"
    naming = {"text": "It is said of Brand New that it came.", "mode": "lexical"}
    assert [hit["id"] for hit in check_same(served, naming)["matches"]] == ["new"]
    some = {"field": "number", "range": {"gte": 1000}}
    assert len(check_same(served, {**QUERIES["id"], "filter": some})["matches"]) == 1
    put(served, {**document(3), "id": "new", "title": "Newer", "metadata": {"number": 5}})
    assert not check_same(served, {**QUERIES["id"], "filter": some})["matches"]
    assert check_same(served, QUERIES["id"])["matches"][0]["title"] == "Newer"
    check_all(served)
    assert served.delete("/documents/new").status_code in (200, 204)
    found = check_same(served, {**QUERIES["id"], "top_k": 48})["matches"]
    assert "new" not in [item["id"] for item in found]
    check_all(served)


def test_a_new_generation_and_space_are_seen(served: Any) -> None:
    data = engine_of(served).default.data
    data.index.publish()
    data.store.lexical.publish()
    check_all(served)
    generation = data.index.manifest.generation
    data.index.rebuild()
    put(served, document(100))
    assert check_same(served, QUERIES["id"])["generation"] > generation
    data.store.alignment.refresh(SilentProgress(), fit=True)
    check_all(served)
    assert served.delete("/documents/d100").status_code in (200, 204)
    check_all(served)


def test_a_measurement_is_taken_over(make_client: Callable[..., Any]) -> None:
    client = make_client(max_queue_tokens=100_000, search_processes=1)
    default = engine_of(client).default

    def found(first: int, documents: int) -> list[Any]:
        for start in range(first, documents, 50):
            put(client, *map(document, range(start, min(start + 50, documents))))
        default.maintenance.work()
        return [
            (item["false_positive_rate"], item["score"])
            for item in check_same(client, QUERIES["id"])["matches"]
        ]

    few = found(0, 99)
    assert {rate for rate, _ in few} == {None}
    enough = found(99, 100)
    assert all(0 < rate <= 1 for rate, _ in enough)
    assert [score for _, score in enough] != [score for _, score in few]


def test_collections_come_and_go(served: Any) -> None:
    for number in (1, 2):  # the second has the same name, and other documents
        assert served.request("PUT", "/collections/other").status_code in (200, 201)
        path = "/collections/other"
        documents = [{"id": f"{number}-{item}", "text": text_of([item])} for item in range(3)]
        response = served.post(f"{path}/index", json={"documents": documents})
        assert response.status_code == 200, response.text
        left = counted(served, "search_process_left_total")
        found = served.post(f"{path}/match", json={"id": f"{number}-0"}).json()["matches"]
        assert {item["id"] for item in found} == {f"{number}-1", f"{number}-2"}
        assert counted(served, "search_process_left_total") == left
        assert served.delete(path).status_code in (200, 204)
    check_same(served, QUERIES["id"])


def test_a_killed_process_loses_no_search(served: Any, caplog: Any) -> None:
    check_same(served, QUERIES["id"])
    ends, left = counted(served, "search_process_ends_total"), "search_process_left_total"
    pid = pid_of(served)
    expected, before = by_thread(served, QUERIES["id"])["matches"], counted(served, left)
    os.kill(pid, signal.SIGSTOP)  # so that it is killed with the search under way
    timer = threading.Timer(0.3, os.kill, [pid, signal.SIGKILL])
    timer.start()
    response = served.post("/match", json=QUERIES["id"])
    timer.join()
    assert response.json()["matches"] == expected
    assert counted(served, left) == before + 1
    assert served.get("/readyz").status_code == 200
    wait_until(lambda: counted(served, "search_process_ends_total") == ends + 1)
    check_all(served)
    assert pid_of(served) != pid
    assert "was ended by signal 9" in caplog.text
    assert text_of([3]) not in caplog.text


@pytest.mark.slow
def test_a_process_that_hangs_is_replaced(
    served: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    check_same(served, QUERIES["id"])
    monkeypatch.setattr(service.searchers, "SEARCH_SECONDS", 0.5)
    pid = pid_of(served)
    os.kill(pid, signal.SIGSTOP)
    response = served.post("/match", json=QUERIES["id"])
    assert response.json()["matches"] == by_thread(served, QUERIES["id"])["matches"]
    assert "has not answered for" in caplog.text
    monkeypatch.undo()
    check_all(served)
    assert pid_of(served) != pid


def check_written(client: Any, number: int) -> None:
    name = f"new{number}"
    put(client, {**document(number), "id": name, "metadata": {"number": 5_000 + number}})
    mine = {"field": "number", "equal": 5_000 + number}
    query = {"id": f"d{number}", "filter": mine, "mode": MODES[number % 3]}
    found = client.post("/match", json=query).json()["matches"]
    assert [item["id"] for item in found] == [name]
    if number % 2:
        assert client.delete(f"/documents/{name}").status_code == 204
        assert not client.post("/match", json=query).json()["matches"]


@pytest.mark.slow
def test_writes_are_seen_while_many_search(make_client: Callable[..., Any]) -> None:
    client = make_client(max_queue_tokens=1_000_000, search_processes=2)
    for start in range(0, 1_200, 200):  # of so many, frequencies are not counted at every write
        put(client, *(document(number) for number in range(start, start + 200)))
    wait_until(lambda: processes_of(client).ready() == 2)
    naming = {"text": "It is called Quite Unheard Of.", "mode": "lexical"}
    for _ in range(2):
        assert not client.post("/match", json=naming).json()["matches"]
    put(client, {**document(0), "title": "Quite Unheard Of"})
    for _ in range(2):
        (only,) = client.post("/match", json=naming).json()["matches"]
        assert only["id"] == "d0"
    ended, statuses = threading.Event(), set[int]()

    def search(document_id: str) -> None:
        while not ended.is_set():
            statuses.add(client.post("/match", json={"id": document_id}).status_code)

    with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        stack.callback(ended.set)
        pool.map(search, ("d0", "d1", "d2"))
        for number in range(60):
            check_written(client, number)
            if number % 20 == 0:
                engine_of(client).default.data.index.publish()
                engine_of(client).default.data.store.lexical.publish()
    assert statuses == {200}
    assert counted(client, "search_process_ends_total") == 0
    for mode in MODES:  # but for rounding: segments of words differ, so copies may change places
        body = {"id": "d3", "mode": mode, "align": False}
        scores = [hit["score"] for hit in by_thread(client, body)["matches"]]
        for _ in range(4):
            found = [hit["score"] for hit in client.post("/match", json=body).json()["matches"]]
            assert found == pytest.approx(scores, abs=1e-6)


@pytest.mark.slow
def test_a_directory_that_cannot_be_read_is_searched_by_threads(
    make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(service.searchers, "UNABLE_SECONDS", 600)
    client = make_client(max_queue_tokens=100_000, search_processes=1)
    put(client, *(document(number) for number in range(6)))
    check_same(client, QUERIES["id"])
    index = engine_of(client).default.data.index
    snapshot, aside = index._path, index._path.with_name("aside")
    index.rebuild()
    snapshot.rename(aside)
    left = counted(client, "search_process_left_total")
    for _ in range(3):
        assert client.post("/match", json=QUERIES["id"]).status_code == 200
    assert counted(client, "search_process_left_total") == left + 3
    assert caplog.text.count("threads search instead") == 1
    aside.rename(snapshot)
    processes_of(client)._left.clear()  # as after that time
    check_same(client, QUERIES["id"])
    assert counted(client, "search_process_ends_total") == 0
