"""Running the service as a process."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import uvicorn

from service.api.app import create_app
from service.engine import close_engine, open_engine
from service.http_protocol import TimedH11Protocol
from service.settings import Settings
from service.threads import switch_often


def serve_http(host: str, port: int, given: Mapping[str, Any]) -> None:
    """Open the engine, then serve until SIGTERM or SIGINT; requests in flight are finished.

    The engine is opened before the server, so that whatever is wrong with checkpoint or data is
    said in one line, and the port answers only when the first request will be fast.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        given: settings that the caller decides; the others come from the environment.

    Raises:
        ValidationError: a setting is wrong.
        ServiceError, EncoderError, IndexingError: see `open_engine`.
    """
    settings = Settings(**given)
    switch_often()
    engine = open_engine(settings)
    # uvicorn finishes what is in flight and then raises the signal once more, which would end the
    # process before the engine is closed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.run(
                create_app(settings, engine),
                host=host,
                port=port,
                http=TimedH11Protocol,
                log_level=settings.log_level,
                timeout_graceful_shutdown=round(settings.drain_seconds),
            )
    finally:
        close_engine(engine)
