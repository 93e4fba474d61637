"""/livez /readyz /metrics /version, the page at /docs and what errors mean."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from service import engine as engine_module
from service.app import create_app
from service.engine import Engine
from service.errors import PROBLEM_TYPES
from service.metrics import Metrics
from service.workers.scheduler import EncodeScheduler
from tests.kit.problems import problem
from tests.kit.service_fixtures import with_parts


def with_scheduler(engine: Engine, encoder: Any) -> Engine:
    scheduler = EncodeScheduler(encoder, max_queue_tokens=4096, metrics=Metrics())
    return with_parts(engine, scheduler=scheduler)


def metric(client: Any, line: str) -> float:
    text = client.get("/metrics").text
    (value,) = re.findall(rf"^{re.escape(line)} (.+)$", text, re.MULTILINE)
    return float(value)


def test_a_service_that_can_work_says_so(filled: Any) -> None:
    assert filled.get("/livez").json() == {"status": "alive"}
    ready = filled.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    assert ready.json()["documents"] == 4
    assert metric(filled, "longmatch_ready") == 1


def test_a_dead_worker_makes_it_not_ready_but_leaves_it_alive(
    client: Any, engine: Engine, stepped_encoder: Any, make_document: Callable[..., Any]
) -> None:
    encoder = stepped_encoder()
    broken = with_scheduler(engine, encoder)

    async def kill() -> None:
        document = make_document([encoder.kills])
        with broken.scheduler.reserve(1) as reservation:
            await asyncio.gather(
                broken.scheduler.encode([document], reservation), return_exceptions=True
            )

    asyncio.run(asyncio.wait_for(kill(), 120))
    client = type(client)(create_app(engine.settings, broken))
    assert client.get("/livez").status_code == 200
    assert metric(client, "longmatch_ready") == 0
    for response in (
        client.get("/readyz"),
        client.post("/match", json={"text": "a"}),
        client.get("/documents/a"),
    ):
        problem(response, 503, "not-ready")


def test_readiness_notices_that_no_place_is_free(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(max_active_requests=2)
    admission = client.app.state.engine.admission
    with admission.admit():
        assert client.get("/readyz").json()["status"] == "ready"
        with admission.admit():
            ready = client.get("/readyz")
            assert ready.status_code == 200
            assert ready.json()["degraded"] == ["active_requests"]
            monkeypatch.setattr(engine_module, "STUCK_SECONDS", 0.0)
            assert client.get("/readyz").status_code == 503
            assert metric(client, "longmatch_ready") == 0
            monkeypatch.undo()
        assert client.get("/readyz").json()["degraded"] == []


def test_requests_are_counted_by_template_and_never_by_path(filled: Any) -> None:
    for name in ("bees", "ants", "nobody"):
        filled.get(f"/documents/{name}")
    for path in ("/wp-admin", "/.env", "/document"):
        filled.get(path)
    filled.request("BREW", "/coffee")
    text = filled.get("/metrics").text
    assert (
        metric(
            filled, 'longmatch_requests_total{code="200",method="GET",route="/documents/{id:path}"}'
        )
        == 2
    )
    assert (
        metric(
            filled, 'longmatch_requests_total{code="404",method="GET",route="/documents/{id:path}"}'
        )
        == 1
    )
    assert (
        metric(filled, 'longmatch_requests_total{code="404",method="GET",route="unmatched"}') == 3
    )
    assert 'method="other"' in text
    for trace in ("bees", "wp-admin", "BREW", "coffee"):
        assert trace not in text


def test_what_a_route_does_not_take_is_timed_as_its_own(make_client: Any) -> None:
    client = make_client(max_body_bytes=1000)
    for refused, code in (
        (client.request("PUT", "/match"), 405),
        (client.post("/match", content=b"x", headers={"content-type": "text/plain"}), 415),
        (client.post("/match", json={"text": "a" * 1000}), 413),
    ):
        assert refused.status_code == code
    assert metric(client, 'longmatch_request_duration_seconds_count{route="/match"}') == 3
    assert (
        'longmatch_request_duration_seconds_count{route="unmatched"}'
        not in client.get("/metrics").text
    )


def test_what_was_done_is_measured(filled: Any) -> None:
    filled.post("/match", json={"text": "Insects live in colonies."})
    for stage, times in {"tokenize": 5, "queue": 5, "encode": 5, "store": 1, "search": 1}.items():
        line = f'longmatch_stage_duration_seconds_count{{stage="{stage}"}}'
        assert metric(filled, line) == times
    assert metric(filled, "longmatch_document_tokens_count") == 5
    assert metric(filled, 'longmatch_index_documents{collection="default"}') == 4
    assert metric(filled, 'longmatch_request_duration_seconds_count{route="/match"}') == 1
    filled.delete("/documents/bees")
    assert metric(filled, 'longmatch_index_documents{collection="default"}') == 3


def test_version_says_what_runs_and_what_it_accepts(client: Any, engine: Engine) -> None:
    answer = client.get("/version").json()
    assert answer["checkpoint"]["name"] == "tiny"
    assert answer["checkpoint"]["fingerprint"] == engine.encoder.checkpoint.fingerprint
    assert answer["precision"] == "fp32"
    assert answer["provider"] == "CPUExecutionProvider"
    assert answer["limits"]["max_top_k"] == 1000
    assert answer["limits"]["max_queue_tokens"] == 4096


@pytest.mark.parametrize("name", PROBLEM_TYPES)
def test_every_kind_of_error_is_described_at_its_own_address(library: Any, name: str) -> None:
    kind = PROBLEM_TYPES[name]
    assert kind.type == f"/problems/{name}"
    assert library.get(kind.type).json() == asdict(kind)


def test_an_unknown_kind_of_error_is_not_found(library: Any) -> None:
    response = library.get("/problems/none")
    problem(response, 404, "no-such-route")


def test_the_documentation_needs_nothing_from_elsewhere(library: Any) -> None:
    page = library.get("/docs").text
    assert "//" not in re.sub(r"<!--.*?-->", "", page).replace("// ", "")
    references = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(references) == 3
    for reference in references:
        assert library.get(f"/{reference}").status_code == 200
    assert library.get("/openapi.json").json()["openapi"] == "3.1.0"
    assert "SwaggerUIBundle" in library.get("/docs/static/swagger-ui-bundle.js").text
    assert '"validatorUrl": null' in page


@pytest.mark.parametrize(
    "path",
    [
        "/docs/static/none.js",
        "/docs/static/../../app.py",
        "/docs/x",
        "/static/none.js",
        "/static/../report.py",
        "/static/%2e%2e/report.py",
        "/static",
    ],
)
def test_no_other_file_is_given_out(library: Any, path: str) -> None:
    response = library.get(path)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
