"""The service as a process: signals, TLS and the server."""

import signal
import ssl
from contextlib import suppress
from typing import Any

import uvicorn

from service.app import check_exposure, create_app
from service.errors import SettingsError
from service.http_protocol import SendLimits, limited_protocol
from service.settings import Settings
from service.startup import close_engine, open_engine
from service.telemetry import configured_logs, require_exporter
from service.threads import limit_numpy_threads, resume_garbage_collection


def tls_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options of TLS; none without a certificate.

    Raises:
        SettingsError: a file cannot be read, the key is encrypted or not that of the certificate,
            or there is no certificate for it.
    """
    certificate, authority = settings.tls_certificate, settings.tls_client_authority
    if certificate is None:
        for name in ("tls_key", "tls_client_authority"):
            if getattr(settings, name) is not None:
                raise SettingsError(f"{name} is given without tls_certificate")
        return {}
    key, secret = settings.tls_key, ""  # no question for a password at a terminal
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, secret)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        files = " and ".join(str(path) for path in (certificate, key) if path is not None)
        raise SettingsError(f"LONGMATCH_TLS_CERTIFICATE: {files}: {error}") from error
    try:
        if authority is not None:
            context.load_verify_locations(authority)
    except OSError as error:
        raise SettingsError(f"LONGMATCH_TLS_CLIENT_AUTHORITY: {authority}: {error}") from error
    return {
        "ssl_certfile": certificate,
        "ssl_keyfile": key,
        "ssl_keyfile_password": secret,
        "ssl_ca_certs": None if authority is None else str(authority),
        "ssl_cert_reqs": ssl.CERT_NONE if authority is None else ssl.CERT_REQUIRED,
    }


def serve_http(host: str, port: int, settings: Settings) -> None:
    """Open the engine, then serve until SIGTERM or SIGINT; active requests are finished.

    The engine is opened before the server, so that an error of the checkpoint or the data is
    reported in one line, and the port accepts connections only when requests will be fast. Port 0
    chooses a free one.
    """
    check_exposure(settings, host)
    tls = tls_options(settings)
    require_exporter()
    with configured_logs(settings.log_level, settings.log_format):
        limit_numpy_threads()
        engine = open_engine(settings)
        limits = SendLimits(on_slow=engine.metrics.slow_clients.inc)
        # uvicorn finishes active requests and then raises the signal again, which would end the
        # process before the engine is closed.
        signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            app = create_app(settings, engine, bound_to=host)
            resume_garbage_collection()
            with suppress(KeyboardInterrupt):
                uvicorn.run(
                    app,
                    host=host,
                    port=port,
                    http=limited_protocol(limits),
                    ws="none",
                    proxy_headers=False,  # `trusted_proxies` says whose to believe
                    log_config=None,  # `configured_logs` does it
                    access_log=False,  # the gate logs requests with their ids
                    timeout_graceful_shutdown=round(settings.drain_seconds),
                    **tls,
                )
        finally:
            close_engine(engine)
