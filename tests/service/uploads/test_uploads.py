"""NDJSON uploads as a client sees them: accepted, indexed later, listed, cancelled."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.uploads.files import MAX_RATIO, MAX_UPLOADS, MAX_UPLOADS_OF_CLIENT
from tests.kit.problems import problem
from tests.kit.waiting import wait_until

LINES = {"content-type": "application/x-ndjson"}
GZIP = LINES | {"content-encoding": "gzip"}


def lines_of(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def upload(client: Any, body: bytes, headers: dict[str, str] = LINES) -> dict[str, Any]:
    """Send lines and return the job when it has ended."""
    response = client.post("/index", content=body, headers=headers)
    assert response.status_code == 202, response.text
    return ended(client, response.headers["location"])


def ended(client: Any, location: str) -> dict[str, Any]:
    wait_until(lambda: client.get(location).json()["state"] not in ("waiting", "running"))
    return client.get(location).json()


def uploads(client: Any) -> list[Path]:
    return list((client.app.state.engine.settings.data / "uploads").iterdir())


def test_lines_are_indexed_in_the_background_and_found(client: Any) -> None:
    body = lines_of(
        {"id": "a", "text": "word " * 3000},
        {"id": "b", "text": "Bees fly.", "title": "Bees", "metadata": {"legs": 6}, "wings": 4},
    )
    response = client.post("/index", content=body, headers=LINES)
    answer = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/jobs/{answer['id']}"
    assert (answer["accepted"], answer["size"]) == (2, len(body))
    job = ended(client, response.headers["location"])
    counts = {name: job[name] for name in ("accepted", "indexed", "failed", "truncated")}
    assert counts == {"accepted": 2, "indexed": 2, "failed": 0, "truncated": 1}
    assert (job["state"], job["progress"], job["errors"]) == ("done", 1.0, [])
    assert job["ended"] >= job["created"]
    (best,) = client.post("/match", json={"text": "Bees fly.", "top_k": 1}).json()["matches"]
    assert (best["id"], best["title"], best["metadata"]) == ("b", "Bees", {"legs": 6, "wings": 4})
    assert uploads(client) == []


def test_invalid_lines_are_named_and_the_others_stored(make_client: Any) -> None:
    client = make_client(max_body_bytes=400, max_text_characters=200)
    body = b"\xef\xbb\xbf" + b"\n".join(
        [
            b'{"id": "good", "text": "Ants dig."}',
            b"not JSON",
            b"",
            b'{"id": "no text"}',
            b'{"id": "blank", "text": " "}',
            b'{"id": "long", "text": "' + b"a" * 201 + b'"}',
            b'{"id": "very long", "text": "' + b"a" * 400 + b'"}\r',
            b'{"id": "\xff", "text": "Bees fly."}',
            b'{"id": "symbols", "text": "\\u200b"}',
            b'{"id": "deep", "text": "Ants dig.", "other": ' + b"[" * 150 + b"]" * 150 + b"}",
            b'{"id": "last", "text": "Bees fly."}',
        ]
    )
    job = upload(client, body)
    assert (job["accepted"], job["indexed"], job["failed"]) == (10, 2, 8)
    found = {error["line"]: (error["pointer"], error["detail"]) for error in job["errors"]}
    assert found.pop(9)[0] == "#/text"
    assert found == {
        2: ("#", "is not JSON: Expecting value at character 0"),
        4: ("#/text", "is missing"),
        5: ("#/text", "is empty"),
        6: ("#/text", "is longer than 200 characters"),
        7: ("#", "is longer than 400 bytes"),
        8: ("#", "is not UTF-8 at byte 8 of the line"),
        10: ("#/metadata", "is nested more than 64 levels deep"),
    }
    assert client.get("/documents/last").status_code == 200


def test_of_two_lines_with_one_id_the_later_one_stays(client: Any) -> None:
    job = upload(
        client,
        lines_of({"id": "a", "text": "Ants dig."}, {"id": "a", "text": "Bees fly."}),
    )
    assert (job["indexed"], job["unchanged"]) == (2, 0)
    assert client.get("/documents/a?text=true").json()["text"] == "Bees fly."
    again = upload(client, lines_of({"id": "a", "text": "Bees fly."}))
    assert (again["indexed"], again["unchanged"]) == (1, 1)


@pytest.mark.parametrize(
    ("body", "headers", "limit", "kind"),
    [
        (b" " * 100_001, LINES, 100_000, "body-too-large"),
        (gzip.compress(b" " * 20_000_000), GZIP, 100_000, "body-too-large"),
        (gzip.compress(b"{}\n" * 3_000_000), GZIP, 10_000_000, "compression-ratio"),
    ],
    ids=["plain", "compressed", "a bomb"],
)
def test_an_upload_over_its_limit_is_refused_and_leaves_nothing(
    make_client: Callable[..., Any], body: bytes, headers: dict[str, str], limit: int, kind: str
) -> None:
    client = make_client(max_upload_bytes=limit)
    response = client.post("/index", content=body, headers=headers)
    expected = MAX_RATIO if kind == "compression-ratio" else limit
    assert problem(response, 413, kind)["limit"] == expected
    assert uploads(client) == []
    assert client.get("/jobs").json() == {"jobs": []}


MALFORMED, EMPTY = (400, "malformed-body"), (422, "invalid-input")
BLANK = b"\n \r\n\t\n"


@pytest.mark.parametrize(
    ("body", "headers", "refusal"),
    [
        *((body, GZIP, MALFORMED) for body in (b"{}\n", b"\x1f\x8b\x08\x00x")),
        (gzip.compress(b'{"id": "a", "text": "b"}\n' * 50, mtime=0)[:-9], GZIP, MALFORMED),
        *((body, LINES, EMPTY) for body in (b"", BLANK)),
        *((body, GZIP, EMPTY) for body in (b"", gzip.compress(BLANK, mtime=0))),
        (b"{}", LINES | {"content-encoding": "br"}, (415, "unsupported-media-type")),
    ],
)
def test_a_body_that_is_no_lines_is_refused(
    client: Any, body: bytes, headers: dict[str, str], refusal: tuple[int, str]
) -> None:
    content = problem(client.post("/index", content=body, headers=headers), *refusal)
    assert refusal != EMPTY or content["errors"] == [{"pointer": "#", "detail": "has no line"}]
    assert uploads(client) == []


def from_address(client: Any, address: str, body: bytes) -> httpx.Response:
    """Send an upload as the client of an address does."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(client.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.post("/index", content=body, headers=LINES)

    return asyncio.run(send())


def test_no_more_uploads_are_taken_than_allowed(
    make_client: Callable[..., Any], hold_writer: Callable[[Any], threading.Event]
) -> None:
    client = make_client()
    hold_writer(client)
    body = lines_of({"id": "a", "text": "Ants dig."})
    taken = [from_address(client, f"10.0.0.{number}", body) for number in range(MAX_UPLOADS)]
    assert {response.status_code for response in taken} == {202}
    content = problem(client.post("/index", content=body, headers=LINES), 503, "overloaded")
    assert content["retry_after"] == 10
    assert client.post(f"{taken[0].headers['location']}/cancel").status_code == 200
    assert client.post("/index", content=body, headers=LINES).status_code == 202


def test_one_client_does_not_take_all_places(
    make_client: Callable[..., Any], hold_writer: Callable[[Any], threading.Event]
) -> None:
    client = make_client()
    gate = hold_writer(client)
    body = lines_of({"id": "a", "text": "Ants dig."})
    first = [from_address(client, "10.0.0.1", body) for _ in range(17)]
    assert [item.status_code for item in first] == [202] * MAX_UPLOADS_OF_CLIENT + [503]
    assert first[-1].headers["retry-after"] == "10"
    assert from_address(client, "10.0.0.2", body).status_code == 202
    metrics = client.get("/metrics").text
    assert 'longmatch_admission_rejected_total{reason="client_jobs"} 1.0' in metrics
    gate.set()
    wait_until(lambda: all(job["ended"] for job in client.get("/jobs").json()["jobs"]))
    assert from_address(client, "10.0.0.1", body).status_code == 202


def test_writes_leave_the_reserve_of_the_disk_to_a_delete(
    make_client: Callable[..., Any],
) -> None:
    client = make_client(disk_reserve_bytes=2**60)
    body = lines_of({"id": "a", "text": "Ants dig."})
    response = client.post("/index", content=body, headers=LINES)
    content = problem(response, 507, "storage-full")
    assert "writes leave 1152921504606846976" in content["detail"]
    assert response.headers["retry-after"] == "60"
    assert uploads(client) == []
    stored = {"documents": [{"id": "a", "text": "Ants dig."}]}
    query = {"text": "Ants dig.", "min_score": 0}
    for path, write in (("/index", stored), ("/standing-queries", query), ("/feedback", {})):
        problem(client.post(path, json=write), 507, "storage-full")
    assert client.post("/match", json={"text": "Ants dig."}).status_code == 200
    assert client.delete("/documents/a").status_code == 404


def test_a_job_is_cancelled_once_and_its_batch_counted(
    client: Any, hold_writer: Callable[[Any], threading.Event]
) -> None:
    gate = hold_writer(client)
    body = lines_of(*({"id": str(number), "text": "Ants dig."} for number in range(100)))
    location = client.post("/index", content=body, headers=LINES).headers["location"]
    wait_until(lambda: client.get(location).json()["state"] == "running")
    answer = client.post(f"{location}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert answer.json().keys() == client.get(location).json().keys()
    content = problem(client.post(f"{location}/cancel"), 409, "job-ended")
    assert "is cancelled already" in content["detail"]
    assert uploads(client) == []
    gate.set()
    upload(client, lines_of({"id": "a", "text": "Ants dig."}))  # runs when the other has left off
    job = client.get(location).json()
    assert job["state"] == "cancelled"
    assert job["indexed"] in (0, 64)
    assert len(client.app.state.engine.default.data.index) == job["indexed"] + 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_job_that_there_never_was(empty: Any, method: str) -> None:
    path = "/jobs/nothing" + ("/cancel" if method == "POST" else "")
    problem(empty.request(method, path), 404, "job-not-found")
    problem(empty.get("/jobs?before=nothing"), 404, "job-not-found")
    problem(empty.get("/jobs?limit=101"), 422, "invalid-input")


def test_jobs_and_lines_are_counted(client: Any) -> None:
    job = upload(client, lines_of({"id": "a", "text": "Ants."}, {}))
    (listed,) = client.get("/jobs?limit=2").json()["jobs"]
    assert listed == {name: value for name, value in job.items() if name != "errors"}
    value = client.app.state.engine.metrics.registry.get_sample_value
    of = {"collection": "default"}
    for name, labels, expected in (
        ("job_documents_total", {"outcome": "indexed"}, 1),
        ("job_documents_total", {"outcome": "failed"}, 1),
        *(("jobs_ended_total", {"state": state}, 0) for state in ("failed", "cancelled")),
        ("jobs_ended_total", {"state": "done"}, 1),
        ("jobs_unfinished", {}, 0),
    ):
        assert value(f"longmatch_{name}", {**of, **labels}) == expected
