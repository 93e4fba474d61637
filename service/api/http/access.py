"""Access: under which names the service is reached, who may do what, and with which collection.

Where the data directory has no file of keys, nobody needs one. Probes need none in any case: an
orchestrator has none, and they say nothing of the documents.

By DNS rebinding, a page makes a browser send requests to an address of its choice, under the name
of its own site. The name is in the Host header, so requests under unknown names are refused.

The paths of one collection are those of the default one behind a prefix. As below a mount, the
prefix becomes the `root_path`: routes, and what counts and limits requests by them, see the rest.
"""

import ipaddress
import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import keys
from service.api.http.request import COLLECTION_PARTS, COLLECTIONS, first_segment, split_path
from service.engine import DEFAULT, Engine
from service.errors import (
    CollectionNotFoundError,
    HostNotAllowedError,
    KeyBoundError,
    KeyRequiredError,
    ScopeMissingError,
)
from service.keys import ApiKey, KeyRing
from service.limits import client_name
from service.settings import Settings
from service.telemetry import hides_stages, name_in_logs

_LOG = logging.getLogger(__name__)

AUDIT_FILE = "audit.jsonl"
_AUDIT_BYTES = 16 * 1024 * 1024
_AUDIT_FILES = 10

_PROBES = frozenset({"livez", "readyz"})
_DESCRIPTIONS = frozenset({"", "static", "docs", "openapi.json", "problems"})
_OF_ALL = "metrics"  # says something of every collection
_SEARCHES = frozenset({"match", "compare", "text"})  # POST, and change nothing
_EMBEDDINGS = "/v1/embeddings"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_OTHERS = frozenset({"jobs", "feedback"})  # tell what others sent: reading them takes write, too


def needed_scope(method: str, path: str, settings: Settings) -> keys.Scope | None:
    """Return the scope that a request needs where keys are in use; None if it needs no key."""
    _, path = split_path(path)
    first = first_segment(path)
    if first in _PROBES or (first == "metrics" and settings.open_information):
        return None
    if first in _DESCRIPTIONS and settings.open_information:
        return None
    if first == COLLECTIONS and method == "DELETE":
        return "admin"
    if (
        first in _SEARCHES
        or path == _EMBEDDINGS
        or (method in _READING and first not in _OF_OTHERS)
    ):
        return "read"
    return "write"


def key_of(scope: Scope) -> ApiKey | None:
    """Return the key of a request that passed `KeyMiddleware`; None if it needed none."""
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


class KeyMiddleware:
    """Refuses requests without a valid key of the scope that they need, and logs changes."""

    def __init__(self, app: ASGIApp, ring: KeyRing, settings: Settings) -> None:
        self._app = app
        self._ring = ring
        self._settings = settings
        self._audit = AuditLog(settings.data / AUDIT_FILE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        needed = needed_scope(scope["method"], scope["path"], self._settings)
        if needed is not None and self._ring.required:
            key = scope["state"]["key"] = self._authenticate(scope, needed)
            hides_stages.set(key.collection is not None)
            name_in_logs(key=key.id)
        if needed in ("write", "admin") and scope["method"] not in _READING:
            send = self._audit.following(scope, send)
        await self._app(scope, receive, send)

    def _authenticate(self, scope: Scope, needed: keys.Scope) -> ApiKey:
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        key = self._ring.find(token.strip()) if kind.lower() == "bearer" else None
        if key is None:
            raise KeyRequiredError
        if not key.allows(needed):
            raise ScopeMissingError(needed)
        if key.collection is not None and first_segment(scope["path"]) == _OF_ALL:
            raise KeyBoundError
        return key


class _AuditHandler(logging.handlers.RotatingFileHandler):
    """A file of its owner alone, whose failure is logged in a line, and fails no request."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="ascii", opener=_open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  a name of `logging`
        """Log that an entry was not written, and why."""
        error = sys.exc_info()[1]
        _LOG.error("%s: an entry was not written: %s", self.baseFilename, error)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


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
        every name without a dot, which no site on the internet has, and `bound_to` itself.

        Args:
            bound_to: the address or name that the service listens on.
            names: other names; `*.example.com` stands for all names below example.com, `*` for all.
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


class HostMiddleware:
    """Refuses requests under a name that is not the service's."""

    def __init__(self, app: ASGIApp, allowed: AllowedHosts) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and Headers(scope=scope).get("host", "") not in self._allowed:
            raise HostNotAllowedError
        await self._app(scope, receive, send)


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


class CollectionMiddleware:
    """Finds the collection of a request, and keeps it open until the response has ended.

    Refuses what names a collection that does not exist, cannot be used, or is not that of the API
    key, before a byte of the body is read.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named, path = split_path(scope["path"])
        bound = bound_to(scope)
        if named is not None:
            if bound not in (None, named):
                raise CollectionNotFoundError(named)
            # In place: the middleware around this one reads the route from the same scope.
            scope["root_path"] = scope.get("root_path", "") + scope["path"].removesuffix(path)
        name = scope["state"]["collection"] = named or bound or DEFAULT
        engine: Engine | None = scope["app"].state.engine
        if engine is None or first_segment(path) not in COLLECTION_PARTS:
            await self._app(scope, receive, send)
            return
        with engine.collections.use(name) as used:
            scope["state"]["used"] = used
            name_in_logs(collection=name)
            await self._app(scope, receive, send)


def bound_to(scope: Scope) -> str | None:
    """Return the one collection that the API key of a request may see; None if it sees all."""
    key = key_of(scope)
    return None if key is None else key.collection
