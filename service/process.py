"""The service as a process: signals, TLS and the server."""

import gc
import signal
import ssl
from contextlib import suppress

import uvicorn

from service.app import check_exposure, create_app
from service.errors import SettingsError
from service.http_protocol import limited_protocol
from service.settings import Settings
from service.startup import open_engine
from service.telemetry import configured_logs, require_exporter
from service.threads import limit_numpy_threads


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context of TLS; None without a certificate.

    Raises:
        SettingsError: a file cannot be read, the key is encrypted or not that of the certificate,
            or there is no certificate for it.
    """
    certificate, authority = settings.tls_certificate, settings.tls_client_authority
    if certificate is None:
        for name in ("tls_key", "tls_client_authority"):
            if getattr(settings, name) is not None:
                raise SettingsError(f"{name} is given without tls_certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With an empty password, so that none is asked for at a terminal.
        context.load_cert_chain(certificate, settings.tls_key, "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        files = " and ".join(str(path) for path in (certificate, settings.tls_key) if path)
        raise SettingsError(f"LONGMATCH_TLS_CERTIFICATE: {files}: {error}") from error
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(authority)
        except OSError as error:
            raise SettingsError(f"LONGMATCH_TLS_CLIENT_AUTHORITY: {authority}: {error}") from error
    return context


def serve_http(host: str, port: int, settings: Settings) -> None:
    """Open the engine, then serve until SIGTERM or SIGINT; active requests are finished.

    The engine is opened before the server, so that an error of the checkpoint or the data is
    reported in one line, and the port accepts connections only when requests will be fast. Port 0
    chooses a free one.
    """
    check_exposure(settings, host)
    tls = tls_context(settings)
    require_exporter()
    with configured_logs(settings.log_level, settings.log_format):
        limit_numpy_threads()
        engine = open_engine(settings)
        # uvicorn finishes active requests and then raises the signal again, which would end the
        # process before the engine is closed.
        signal.signal(signal.SIGTERM, lambda *_: None)
        with engine.opened:
            app = create_app(settings, engine, bound_to=host)
            # Imports alone make 200,000 objects, which collections during searches would examine.
            gc.freeze()
            gc.enable()
            with suppress(KeyboardInterrupt):
                uvicorn.run(
                    app,
                    host=host,
                    port=port,
                    http=limited_protocol(engine.metrics.slow_clients.inc),
                    ws="none",
                    proxy_headers=False,  # `trusted_proxies` says whose to believe
                    log_config=None,  # `configured_logs` does it
                    access_log=False,  # the gate logs requests with their ids
                    timeout_graceful_shutdown=round(settings.drain_seconds),
                    ssl_context_factory=None if tls is None else lambda *_: tls,
                )
