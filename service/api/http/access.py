"""Access: which scope a request needs, and whether its API key has it.

Where the data directory has no file of keys, nobody needs one. Probes need none in any case: an
orchestrator has none, and they say nothing of the documents.
"""

import json
import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.paths import COLLECTIONS, first_segment, split_path
from service.errors import KeyBoundError, KeyRequiredError, ScopeMissingError
from service.keys import api_key
from service.keys.api_key import ApiKey
from service.keys.key_file import KeyRing
from service.limits.rate_limit import client_name
from service.settings import Settings

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


def needed_scope(method: str, path: str, settings: Settings) -> api_key.Scope | None:
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
            scope["state"]["key"] = self._authenticate(scope, needed)
        if needed in ("write", "admin") and scope["method"] not in _READING:
            send = self._audit.following(scope, send)
        await self._app(scope, receive, send)

    def _authenticate(self, scope: Scope, needed: api_key.Scope) -> ApiKey:
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
    """A file whose failure is logged in a line, and fails no request."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  a name of `logging`
        """Log that an entry was not written, and why."""
        error = sys.exc_info()[1]
        _LOG.error("%s: an entry was not written: %s", self.baseFilename, error)


class AuditLog:
    """Who changed what: a JSON line for each request that may change documents, without texts."""

    def __init__(self, path: Path) -> None:
        """Write to a file, which is begun anew at a size; some former ones are kept."""
        self._handler = _AuditHandler(
            path,
            maxBytes=_AUDIT_BYTES,
            backupCount=_AUDIT_FILES,
            encoding="utf-8",
            delay=True,
            errors="backslashreplace",
        )

    def following(self, scope: Scope, send: Send) -> Send:
        """Wrap the `send` of a request, so that its response is logged when it starts."""

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._write(_entry(scope, message["status"]))
            await send(message)

        return send_logged

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False)
        # `handle` locks, and reports a full disk without failing the request.
        self._handler.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))
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
