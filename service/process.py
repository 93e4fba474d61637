"""Running the service as a process: signals, memory, the HTTP protocol."""

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
from service.threads import limit_numpy_threads, set_switch_interval

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_THRESHOLD_BYTES = 4 * 2**20
HEAD_SECONDS = 10.0


def cap_malloc_threshold() -> bool:
    """Make glibc return every freed block of 4 MiB or more to the operating system.

    By default glibc raises that threshold to the largest block ever freed, up to 32 MiB. The
    buffers of books then come from heaps that the small objects of other threads keep from
    shrinking, and the process grows whenever a larger book arrives (measured:
    benchmarks/server/load.py).

    Returns:
        Whether the C library is glibc and accepted it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES))


class TimedH11Protocol(H11Protocol):
    """uvicorn's protocol with a time limit on the head of a request, which uvicorn lacks.

    It closes a connection on which no head has arrived after `HEAD_SECONDS`, or whose client keeps
    sending a body that was rejected: a socket and its buffers take memory.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first head."""
        super().connection_made(transport)
        self._check_head()

    def data_received(self, data: bytes) -> None:
        """Handle received data, which may complete a head or not."""
        super().data_received(data)
        self._check_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _check_head(self) -> None:
        rejected = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not rejected:
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._abort_idle)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort_idle(self) -> None:
        self._head_timer = None
        idle = self.conn.their_state is h11.IDLE
        if idle or self.conn.our_state is h11.DONE:
            self.transport.abort()


def serve_http(host: str, port: int, given: Mapping[str, Any]) -> None:
    """Open the engine, then serve until SIGTERM or SIGINT; active requests are finished.

    The engine is opened before the server, so that an error of the checkpoint or the data is
    reported in one line, and the port accepts connections only when requests will be fast.

    Args:
        host: address to listen on.
        port: to listen on; 0 chooses a free one.
        given: settings that the caller sets; the others come from the environment.

    Raises:
        ValidationError: a setting is invalid.
        ServiceError, EncoderError, IndexingError: see `open_engine`.
    """
    settings = Settings(**given)
    set_switch_interval()
    limit_numpy_threads()
    engine = open_engine(settings)
    # uvicorn finishes active requests and then raises the signal again, which would end the process
    # before the engine is closed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.run(
                create_app(settings, engine, bound_to=host),
                host=host,
                port=port,
                http=TimedH11Protocol,
                ws="none",
                proxy_headers=False,  # `trusted_proxies` says whose to believe
                log_level=settings.log_level,
                timeout_graceful_shutdown=round(settings.drain_seconds),
            )
    finally:
        close_engine(engine)
