"""Logs: a line for each event, text or JSON, with the id of its request, never with its text."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from opentelemetry import trace

from service.settings import LogFormat, LogLevel

# Of the request that this context works for.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# What a record may have beside its message, by `extra`.
_FIELDS = ("route", "method", "code", "milliseconds")


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
        if (of_request := request_id.get()) is not None:
            content["request_id"] = of_request
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            content["trace_id"] = trace.format_trace_id(span.trace_id)
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False, default=str)


@contextmanager
def configured_logs(level: LogLevel, form: LogFormat) -> Iterator[None]:
    """Write all logs of this process to standard error while the block runs.

    Args:
        level: the least severe one that is written.
        form: of the lines.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
