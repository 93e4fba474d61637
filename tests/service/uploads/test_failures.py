"""Jobs that meet failures: they wait, continue, or report the failure."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encoder.onnx_encoder import OnnxEncoder
from index.errors import StoreError
from index.store.document_store import DocumentStore
from service.app import create_app
from service.startup import open_engine
from tests.kit.waiting import wait_until

LINES = {"content-type": "application/x-ndjson"}


def upload(client: Any, *texts: str) -> str:
    """Send a document for each text; return where the job is."""
    body = "\n".join(json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts))
    response = client.post("/index", content=body, headers=LINES)
    assert response.status_code == 202
    return str(response.headers["location"])


def job_when(client: Any, location: str, condition: Callable[[Any], bool]) -> Any:
    seen: list[Any] = []

    def holds() -> bool:
        seen.append(client.get(location).json())
        return condition(seen[-1])

    wait_until(holds)
    return seen[-1]


def ended(client: Any, location: str) -> Any:
    return job_when(client, location, lambda job: job["ended"] is not None)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StoreError("store.sqlite3: database or disk is full"), "disk is full"),
        (ValueError("the text of a document"), "ValueError"),  # without its words
    ],
)
def test_a_failure_of_the_store_is_waited_for(
    client: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    said: str,
) -> None:
    monkeypatch.setattr("service.uploads.logic._RETRY_SECONDS", 0.05)
    with monkeypatch.context() as broken:

        def put(*_: object) -> None:
            raise failure

        broken.setattr(DocumentStore, "put", put)
        location = upload(client, "Ants dig.", "Bees fly.")
        job = job_when(client, location, lambda job: job["detail"] is not None)
        assert said in job["detail"]
        assert "the text" not in job["detail"] + caplog.text
        assert job["indexed"] == 0
    job = ended(client, location)
    assert (job["state"], job["indexed"], job["detail"]) == ("done", 2, None)


def test_a_document_that_cannot_be_encoded_fails_alone(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = OnnxEncoder.encode_blocks

    def encode(self: OnnxEncoder, blocks: Sequence[Sequence[int]]) -> Any:
        if any(len(block) > 6 for block in blocks):
            raise RuntimeError("out of memory")
        return whole(self, blocks)

    monkeypatch.setattr(OnnxEncoder, "encode_blocks", encode)
    job = ended(client, upload(client, "Ants dig.", "one two three four five six seven", "Bees."))
    assert (job["state"], job["indexed"], job["failed"]) == ("done", 2, 1)
    assert job["errors"] == [{"line": 2, "pointer": "#/text", "detail": "could not be encoded"}]


@pytest.mark.parametrize("damage", [Path.unlink, partial(Path.write_bytes, data=b"{}")])
def test_an_upload_that_was_damaged_on_the_disk_is_not_indexed(
    client: Any, hold_writer: Callable[[Any], Any], damage: Callable[[Path], object]
) -> None:
    gate = hold_writer(client)
    upload(client, "Ants dig.")
    location = upload(client, "Bees fly.")
    damage(client.app.state.engine.settings.data / "uploads" / f"{location[6:]}.ndjson")
    gate.set()
    job = ended(client, location)
    assert (job["state"], job["indexed"]) == ("failed", 0)
    assert "missing or damaged" in job["detail"]


def test_a_service_that_stops_goes_on_at_its_next_start(
    empty: Any, make_settings: Callable[..., Any]
) -> None:
    first = open_engine(make_settings(threads=1))
    client = type(empty)(create_app(first.settings, first))
    location = upload(client, *(f"Ants dig {n}." for n in range(300)))
    begun = job_when(client, location, lambda job: job["indexed"] > 0)
    first.opened.close()
    second = open_engine(make_settings())
    client = type(empty)(create_app(second.settings, second))
    job = ended(client, location)
    second.opened.close()
    assert begun["indexed"] < 300
    assert (job["state"], job["indexed"], job["unchanged"]) == ("done", 300, 0)


def test_jobs_that_ended_long_ago_are_forgotten(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.uploads.store.MAX_ENDED_JOBS", 2)
    locations = [upload(client, "") for _ in range(4)]
    ended(client, locations[-1])  # the last of them, since they run in their order
    locations.append(upload(client, "Ants."))
    assert [client.get(place).status_code for place in locations[1:3]] == [404, 200]
    assert ended(client, locations[-1])["indexed"] == 1
