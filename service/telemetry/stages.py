"""The stages of a request: each is measured, and is a span of the trace of its request.

Traces are those of OpenTelemetry. FastAPI begins one for each request and exports it where the
extra `otel` is installed and OTEL_EXPORTER_OTLP_ENDPOINT is set; without them nothing is recorded.
"""

import os
import time

from opentelemetry import trace

from index.optional_packages import require_extra
from service.metrics import Metrics, Stage

# How FastAPI reports: metrics and logs are our own, and its logs of errors would have messages.
TELEMETRY = {"auto_configure": True, "metrics": False, "logs": False}
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


def require_exporter() -> None:
    """Check that traces can be exported if the environment asks for it.

    Raises:
        MissingExtraError: the extra `otel` is not installed.
    """
    asked = [name for name in _ENDPOINTS if os.environ.get(name)]
    if asked:
        require_extra("otel", f"exporting traces ({asked[0]})")
