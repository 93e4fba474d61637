"""A disk that is really full: nothing is lost, what is stored is served, and each part says why."""

import json
import shutil
import sqlite3
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Run
from tests.kit.small_disk import SmallDisk
from tests.kit.waiting import wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
MakeDisk = Callable[[int], SmallDisk]
VERDICT = {"query": {"text": RIVER}, "match": "second", "grade": 1}


def documents(*names: str) -> dict[str, Any]:
    return {"documents": [{"id": name, "text": f"{name}. {RIVER}"} for name in names]}


def send_lines(server: Any, lines: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"{server.url}/index", lines, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.fixture
def disk(small_disk: MakeDisk) -> SmallDisk:
    return small_disk(12)


def index_two(path: Path, longmatch: Run, folder: Path) -> Path:
    corpus = folder / "corpus.jsonl"
    lines = [json.dumps(document) + "\n" for document in documents("first", "second")["documents"]]
    corpus.write_text("".join(lines))
    assert longmatch("index", corpus, "--data", path).status == 0
    return path


@pytest.fixture
def data(disk: SmallDisk, longmatch: Run, tmp_path: Path) -> Path:
    """Index two documents on the small disk; no server has run there."""
    return index_two(disk.path / "data", longmatch, tmp_path)


def reads(server: Any) -> None:
    """Check that everything that reads is answered."""
    status, answer = server.request("POST", "/match", {"text": RIVER, "explain": {"matches": 2}})
    assert (status, {match["id"] for match in answer["matches"]}) == (200, {"first", "second"})
    status, answer = server.request("GET", "/documents")
    assert (status, [document["id"] for document in answer["documents"]]) == (
        200,
        ["first", "second"],
    )
    sides = {"left": {"id": "first"}, "right": {"text": RIVER}}
    assert server.request("POST", "/compare", sides)[0] == 200
    assert server.request("GET", "/jobs")[0] == 200
    assert server.request("GET", "/standing-queries/events")[0] == 200
    assert server.request("GET", "/feedback")[0] == 200


def refuses_writes(server: Any) -> None:
    for status, problem in (
        server.request("POST", "/index", documents("third")),
        server.request("DELETE", "/documents/first"),
        server.request("POST", "/standing-queries", {"text": RIVER, "min_score": 0}),
        server.request("POST", "/feedback", {**VERDICT, "match": "first"}),
        send_lines(server, json.dumps({"id": "fourth", "text": RIVER}).encode()),
    ):
        assert (status, problem["type"]) == (507, "/problems/storage-full"), problem
        assert "The disk of the service is full" in problem["detail"]
        assert "sqlite" not in json.dumps(problem)
    status, ready = server.request("GET", "/readyz")
    assert (status, ready["status"], ready["degraded"]) == (200, "degraded", ["storage"])


def accepts_writes(server: Any) -> None:
    status, answer = server.request("POST", "/index", documents("third"))
    assert status == 200, answer
    assert server.request("DELETE", "/documents/third")[0] == 204
    status, verdict = server.request("POST", "/feedback", VERDICT)
    assert status == 200, verdict
    assert server.request("GET", "/readyz")[1]["status"] == "ready"


@pytest.mark.parametrize(
    "begun",
    [
        "never served",
        pytest.param("served before", marks=pytest.mark.slow),
        pytest.param("killed", marks=pytest.mark.slow),
    ],
)
def test_a_server_starts_on_a_full_disk_and_reads(
    serve: Callable[..., Any], disk: SmallDisk, data: Path, tiny_checkpoint: Path, begun: str
) -> None:
    if begun != "never served":
        with serve(data, tiny_checkpoint, threads=1, disk_reserve_bytes=0) as server:
            accepts_writes(server)
            if begun == "served before":
                assert server.stop() == 0
    disk.fill()
    with serve(data, tiny_checkpoint, threads=1, disk_reserve_bytes=0) as server:
        reads(server)
        refuses_writes(server)
        reads(server)
        disk.free()
        status, answer = server.request("POST", "/index", documents("third"))
        assert status == 200, answer
        stored = server.request("GET", "/documents")[1]["documents"]
        assert [document["id"] for document in stored] == ["first", "second", "third"]
        assert server.request("DELETE", "/documents/third")[0] == 204
        standing = {"text": RIVER, "min_score": 0}
        assert server.request("POST", "/standing-queries", standing)[0] == 201
        assert send_lines(server, json.dumps({"id": "x", "text": RIVER}).encode())[0] == 202
        assert "disk is full" in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
        assert server.stop() == 0
    with serve(data, tiny_checkpoint, threads=1, disk_reserve_bytes=0) as server:
        assert len(server.request("GET", "/standing-queries")[1]["queries"]) == 1
        accepts_writes(server)


def test_writes_stop_where_deletes_have_room(
    serve: Callable[..., Any], small_disk: MakeDisk, tiny_checkpoint: Path
) -> None:
    disk, reserve = small_disk(16), 6 * 2**20
    options = {"threads": 1, "disk_reserve_bytes": reserve, "find_families": False}
    stored: list[str] = []
    with serve(disk.path / "data", tiny_checkpoint, **options) as server:
        for number in range(1000):
            document = {"id": f"{number:03}", "text": f"{number}. {RIVER}"}
            document["metadata"] = {"filler": "x" * 60_000}
            status, answer = server.request("POST", "/index", {"documents": [document]})
            if status != 200:
                break
            stored.append(document["id"])
        assert (status, answer["type"]) == (507, "/problems/storage-full")
        assert f"writes leave {reserve}" in answer["detail"]
        assert len(stored) > 20
        assert server.request("POST", "/match", {"text": RIVER})[0] == 200
        standing = {"text": RIVER * 1_000, "min_score": 0}  # as long as the document
        assert server.request("POST", "/standing-queries", standing)[0] == 507
        for name in stored[::2]:
            assert server.request("DELETE", f"/documents/{name}")[0] == 204
        listed = server.request("GET", "/documents?limit=1000")[1]["documents"]
        assert [document["id"] for document in listed] == stored[1::2]
        assert server.stop() == 0


def test_a_job_pauses_where_deletes_have_room(
    serve: Callable[..., Any], small_disk: MakeDisk, tiny_checkpoint: Path
) -> None:
    filler = {"filler": "x" * 60_000}
    lines = [
        json.dumps({"id": f"{number:03}", "text": f"{number}. {RIVER}", "metadata": filler})
        for number in range(90)
    ]
    options = {"threads": 1, "disk_reserve_bytes": 6 * 2**20, "find_families": False}
    with serve(small_disk(16).path / "data", tiny_checkpoint, **options) as server:
        status, job = send_lines(server, "\n".join(lines).encode())
        assert status == 202
        path = f"/jobs/{job['id']}"
        wait_until(lambda: "writes leave" in str(server.request("GET", path)[1]["detail"]))
        assert server.request("DELETE", "/documents/000")[0] == 204
        assert server.request("POST", f"{path}/cancel")[0] == 200
        stored = server.request("GET", "/documents?limit=1000")[1]["documents"]
        assert len(stored) == server.request("GET", path)[1]["indexed"] - 1 < 89
        assert server.stop() == 0


def test_the_doctor_examines_a_store_on_a_full_disk(
    disk: SmallDisk, data: Path, longmatch: Run, tmp_path: Path
) -> None:
    disk.fill()
    answer = longmatch("doctor", data)
    assert (answer.status, "no problems found" in answer.err) == (0, True), answer.err
    query = tmp_path / "query.txt"
    query.write_text(RIVER)
    answer = longmatch("match", query, "--data", data, "--json")
    assert {match["id"] for match in json.loads(answer.out)["matches"]} == {"first", "second"}


def test_the_doctor_repairs_nothing_on_a_full_disk_and_says_why(
    disk: SmallDisk, data: Path, longmatch: Run
) -> None:
    with closing(sqlite3.connect(data / "store.sqlite3")) as store, store:
        store.execute("DELETE FROM vectors")
    disk.fill()
    answer = longmatch("doctor", data, "--repair")
    assert answer.status == 2
    assert "the disk is full" in answer.err
    assert "restore a backup" not in answer.err
    disk.free()
    assert longmatch("doctor", data, "--repair").status == 0


FAILING = Path("/proc/self/mem")  # whose first byte cannot be read: EIO


@pytest.mark.parametrize(
    "name",
    [
        *("store.sqlite3", "calibration.json", "fusion.json", "state.sqlite3"),
        "lexical/words.sqlite3",
    ],
)
def test_the_doctor_takes_no_failing_disk_for_damage(
    longmatch: Run, tmp_path: Path, name: str
) -> None:
    data = index_two(tmp_path / "data", longmatch, tmp_path)
    path = data / name
    if path.exists():
        shutil.move(path, tmp_path / "kept")
    path.symlink_to(FAILING)
    for repair in ((), ("--repair",)):
        answer = longmatch("doctor", data, *repair)
        assert answer.status == 2, answer.err
        assert "Input/output error" in answer.err or "disk I/O error" in answer.err
        for word in ("damaged", "restore", "delete it", "rebuild"):
            assert word not in answer.err
        assert path.is_symlink()
