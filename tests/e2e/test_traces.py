"""Traces and logs of a real server: a collector receives the stages of each request, no text."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.kit.command import Run
from tests.kit.waiting import wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
STAGES = {"tokenize", "queue", "encode", "search", "lexical", "fetch"}


class Collector(ThreadingHTTPServer):
    """Receives spans as a collector of OpenTelemetry does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[Span] = []
        self.received = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def of_trace(self) -> dict[str, Span]:
        return {span.name: span for span in self.spans if span.trace_id.hex() == TRACE_ID}


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def ancestors(span: Span, spans: list[Span]) -> list[bytes]:
    """Return the ids of what a span is in; FastAPI has spans of its own between."""
    by_id = {span.span_id: span for span in spans}
    found = []
    while (parent := by_id.get(span.parent_span_id)) is not None:
        found.append(parent.span_id)
        span = parent
    return found


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def match(url: str) -> str:
    """Send a match of a traced client; return its request id."""
    body = json.dumps({"text": RIVER}).encode()
    headers = {"Content-Type": "application/json", "traceparent": PARENT}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/match", body, headers)) as answer:
        return str(answer.headers["X-Request-ID"])


def test_stages_are_spans_of_the_request_and_logs_name_both(
    serve: Any, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with serve(tmp_path / "data", tiny_checkpoint, log_format="json") as server:
            server.request("POST", "/index", {"documents": [{"id": "river", "text": RIVER}]})
            request_id = match(server.url)
            whole = STAGES | {"POST /match"}
            wait_until(lambda: collector.of_trace().keys() >= whole)
            lines = server.log.read_text().splitlines()
    spans = collector.of_trace()
    of_request = spans["POST /match"]
    for stage in STAGES:
        assert of_request.span_id in ancestors(spans[stage], collector.spans)
        assert of_request.start_time_unix_nano <= spans[stage].start_time_unix_nano
        assert spans[stage].end_time_unix_nano <= of_request.end_time_unix_nano
    assert b"stones" not in collector.received
    logged = [json.loads(line) for line in lines]
    [line] = [line for line in logged if line.get("request_id") == request_id]
    assert (line["route"], line["method"], line["code"]) == ("/match", "POST", 200)
    assert line["trace_id"] == TRACE_ID
    assert "stones" not in "".join(lines)


def test_an_address_without_the_extra_is_refused_at_the_start(
    longmatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("index.optional_dependencies.find_spec", lambda name: None)
    answer = longmatch("serve", "--data", tmp_path / "data", "--port", 0)
    assert answer.status == 2
    assert "longmatch[otel]" in answer.err
