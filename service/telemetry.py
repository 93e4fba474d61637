"""What a running service reports on its requests: logs, and the stages of traces.

A log has a line for each event, text or JSON, with the ids of its request, never with its text.
Each stage of a request is measured, and is a span of the trace of its request. Traces are those of
OpenTelemetry. FastAPI begins one for each request and exports it where the extra `otel` is
installed and OTEL_EXPORTER_OTLP_ENDPOINT is set; without them nothing is recorded.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from opentelemetry import trace

from index.optional_dependencies import require_extra
from service.metrics import Metrics, Stage
from service.settings import LogFormat, LogLevel

# Of the request that this context works for: its id, the id of its key, its collection.
_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids", default=MappingProxyType({}))
# Whether the times of its stages, which others' work changes, are kept from its client.
hides_stages: ContextVar[bool] = ContextVar("hides_stages", default=False)

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# What a record may have in addition to its message, by `extra`.
_FIELDS = ("route", "method", "code", "milliseconds")


def name_in_logs(**ids: str) -> None:
    """Add ids of the request that this context works for to the lines of its logs."""
    _IDS.set({**_IDS.get(), **ids})


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text, with the ids of its request at the end."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  a name of `logging`
        """Return the line, before the traceback of an error."""
        ids = " ".join(f"{name}={value}" for name, value in _IDS.get().items())
        return super().formatMessage(record) + (f" [{ids}]" if ids else "")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with the ids of its request and of its trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        content |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        content |= _IDS.get()
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            content["trace_id"] = trace.format_trace_id(span.trace_id)
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False, default=str)


@contextmanager
def configured_logs(level: LogLevel, form: LogFormat) -> Iterator[None]:
    """Write all logs of this process, from a level on, to standard error while the block runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_TEXT))
    root = logging.getLogger()
    before = root.level
    logging.getLogger("httpx").setLevel(logging.WARNING)  # of the engine: a line a request
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_TRACER = trace.get_tracer("longmatch")


def observe_stage(metrics: Metrics, stage: Stage, seconds: float) -> None:
    """Count the time of a stage that ends now, and add its span to the trace of the request."""
    metrics.stage_duration.labels(stage).observe(seconds)
    add_span(stage, seconds)


def add_span(stage: Stage, seconds: float) -> None:
    """Add the span of a stage that ends now, where the request of this context is traced."""
    if not trace.get_current_span().is_recording():
        return
    ended = time.time_ns()
    _TRACER.start_span(stage, start_time=ended - round(seconds * 1e9)).end(ended)


def name_span(method: str, template: str) -> None:
    """Name the span of a request by its route, where it is traced."""
    span = trace.get_current_span()
    if span.is_recording():
        span.update_name(f"{method} {template}")
        span.set_attribute("http.route", template)


def require_exporter() -> None:
    """Check that traces can be exported if the environment asks for it."""
    endpoints = [name for name in _ENDPOINTS if os.environ.get(name)]
    if endpoints:
        require_extra("otel", f"exporting traces ({endpoints[0]})")
