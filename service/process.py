"""Running the service as a process."""

import asyncio
import ctypes
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.app import create_app
from service.settings import Settings
from service.startup import close_engine, open_engine
from service.threads import set_switch_interval

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_THRESHOLD_BYTES = 4 * 2**20


def cap_malloc_threshold() -> bool:
    """Make glibc give every block of 4 MiB or more back to the system when it is freed.

    By itself glibc raises that bound to the largest block ever freed, up to 32 MiB. The buffers of
    books then come from heaps that the small objects of other threads keep from shrinking, and the
    process grows for as long as a larger book comes (measured: benchmarks/server/load.py).

    Returns:
        Whether there was a glibc to tell.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES))


HEAD_SECONDS = 10.0


class TimedH11Protocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for ever for the head of a request.

    A connection on which no head has arrived after `HEAD_SECONDS`, or whose client goes on sending
    a body that was refused, is closed: a socket and its buffers are memory, too.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Take what came; it may be a head, or only a part of one."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        refused = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not refused:
            self._stop_watching()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        idle = self.conn.their_state is h11.IDLE
        if idle or self.conn.our_state is h11.DONE:
            self.transport.abort()


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
    set_switch_interval()
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
