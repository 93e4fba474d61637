"""Who asks, under which name of the service, and the log of what they change.

By DNS rebinding, a page makes a browser send requests to an address of its choice, under the name
of its own site. The name is in the Host header, so requests under unknown names are refused.
"""

import ipaddress
import json
import logging
import logging.handlers
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from starlette.types import Message, Scope, Send

from service.keys import ApiKey, open_private
from service.limits import client_name

_LOG = logging.getLogger(__name__)

AUDIT_FILE = "audit.jsonl"
_AUDIT_BYTES = 16 * 1024 * 1024
_AUDIT_FILES = 10


def key_of(scope: Scope) -> ApiKey | None:
    """Return the key of a request that passed the gate; None if it needed none."""
    key: ApiKey | None = scope["state"].get("key")
    return key


def client_of(scope: Scope) -> str:
    """Return whose a request is: its key's, or that of its address without one."""
    key = key_of(scope)
    return client_name((scope.get("client") or ("", 0))[0]) if key is None else f"key:{key.id}"


def own_name(scope: Scope, given: str | None) -> str | None:
    """Return a name that a client chose, such as an Idempotency-Key, as one of its API key's."""
    key = key_of(scope)
    # No name that a client may give has a space.
    return given if given is None or key is None else f"{key.id} {given}"


class _AuditHandler(logging.handlers.RotatingFileHandler):
    """A file of its owner alone, whose failure is logged in a line, and fails no request."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="ascii", opener=open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  a name of `logging`
        """Log that an entry was not written, and why."""
        error = sys.exc_info()[1]
        _LOG.error("%s: an entry was not written: %s", self.baseFilename, error)


class AuditLog:
    """Who changed what: a JSON line for each request that may change documents, without texts."""

    def __init__(self, path: Path) -> None:
        """Write to a file, which is started again at a size; some former ones are kept."""
        self._handler = _AuditHandler(
            path, maxBytes=_AUDIT_BYTES, backupCount=_AUDIT_FILES, delay=True
        )

    def following(self, scope: Scope, send: Send) -> Send:
        """Wrap the `send` of a request, so that its response is logged when it starts."""

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._write(_entry(scope, message["status"]))
            await send(message)

        return send_logged

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry)  # ASCII alone: nothing in a path or an id steers a terminal
        # `handle` locks, and reports a full disk without failing the request.
        self._handler.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))
        with suppress(OSError):  # to close writes what was not written, as far as there is room
            self._handler.close()  # until the next change


def _entry(scope: Scope, status: int) -> dict[str, Any]:
    key = key_of(scope)
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": scope["state"]["request_id"],
        "key": None if key is None else key.id,
        "name": None if key is None else key.name,
        "client": (scope.get("client") or ("", 0))[0],
        "collection": scope["state"].get("collection"),
        "method": scope["method"],
        "path": scope["path"],
        "ids": scope["state"].get("changed_ids", []),
        "status": status,
    }


ANY = "*"
LOOPBACK = "127.0.0.1"
_LOCAL = "localhost"


class AllowedHosts:
    """The names and addresses under which a service that listens on one address is known."""

    def __init__(self, bound_to: str, names: Iterable[str] = ()) -> None:
        """Allow what is safe by itself, and names.

        On a loopback address: loopback addresses and `localhost`. On any other: every address and
        every name without a dot, which no site on the internet has, and `bound_to` itself. Of the
        names, `*.example.com` stands for all names below example.com, `*` for all.
        """
        self._local_only = is_loopback(bound_to)
        given = {name.lower() for name in names}
        self._any = ANY in given
        self._names = {_LOCAL, bound_to.lower(), *given}
        self._parents = tuple(name[1:] for name in given if name.startswith("*."))

    def __contains__(self, header: str) -> bool:
        """Return whether requests with this Host header are answered; without one, they are."""
        host = host_of(header)
        if self._any or not header or host in self._names or host.endswith(self._parents):
            return True
        if self._local_only:
            return is_loopback(host)
        return _address(host) is not None or (bool(host) and "." not in host)


def host_of(header: str) -> str:
    """Return the name or address in a Host header, in lower case, without port and brackets."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of the machine itself."""
    address = _address(host)
    return host.lower() == _LOCAL if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def bound_to(scope: Scope) -> str | None:
    """Return the one collection that the API key of a request may see; None if it sees all."""
    key = key_of(scope)
    return None if key is None else key.collection
