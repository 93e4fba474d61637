"""Running the service as a process: signals, memory, the server."""

import ctypes
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import uvicorn

from service.api.app import check_exposure, create_app
from service.http_protocol import SendLimits, limited_protocol
from service.settings import Settings
from service.startup import close_engine, open_engine
from service.telemetry.logs import configured_logs
from service.telemetry.stages import require_exporter
from service.threads import limit_numpy_threads, set_switch_interval

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_THRESHOLD_BYTES = 4 * 2**20


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
        SettingsError, KeyFileError: see `check_exposure`.
        ServiceError, EncoderError, IndexingError: see `open_engine`.
    """
    settings = Settings(**given)
    check_exposure(settings, host)
    require_exporter()
    with configured_logs(settings.log_level, settings.log_format):
        set_switch_interval()
        limit_numpy_threads()
        engine = open_engine(settings)
        limits = SendLimits(
            seconds=settings.download_seconds,
            bytes_per_second=settings.download_bytes_per_second,
            unsent_bytes=settings.max_unsent_bytes,
            on_slow=engine.metrics.slow_clients.inc,
            on_stop=engine.listeners.close,
        )
        # uvicorn finishes active requests and then raises the signal again, which would end the
        # process before the engine is closed.
        signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            with suppress(KeyboardInterrupt):
                uvicorn.run(
                    create_app(settings, engine, bound_to=host),
                    host=host,
                    port=port,
                    http=limited_protocol(limits),
                    ws="none",
                    proxy_headers=False,  # `trusted_proxies` says whose to believe
                    log_config=None,  # `configured_logs` does it
                    access_log=False,  # `RequestMiddleware` logs requests with their ids
                    timeout_graceful_shutdown=round(settings.drain_seconds),
                )
        finally:
            close_engine(engine)
