"""API keys: who may read, write and administer; and `keys.json` in the data directory.

    lm_4f9d02c1_Jr0n...       prefix, id, secret

The secret is 256 random bits, so a fast hash protects it as well as a slow one. The id is not
secret: it finds the key, and is what logs and lists show. The file has hashes, not secrets.

A server reads the file again when it changes, so a key that is made or revoked by the command line
counts from the next request. A data directory without the file needs no keys; with it, also with an
empty one, every request needs one.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from encoder.atomic_files import replace_durably
from index.directory.collections import NAME_PATTERN
from service.errors import KeyFileError

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
MAX_NAME = 64  # characters

_SECRET_BYTES = 32
_TOKEN = re.compile(r"lm_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept.

    Attributes:
        id: 8 hexadecimal digits.
        name: whose it is.
        scopes: what it may do; `admin` includes the others, `write` does not include `read`.
        sha256: of its secret, in hex.
        created: when it was made.
        expires: from when it is invalid; None for never.
        collection: the only one that it sees; None if it sees all.
    """

    id: str
    name: str
    scopes: frozenset[Scope]
    sha256: str
    created: AwareDatetime
    expires: AwareDatetime | None = None
    collection: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None

    def allows(self, scope: Scope) -> bool:
        """Return whether it may do what takes this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def expired(self, now: datetime) -> bool:
        """Return whether it is invalid at this moment."""
        return self.expires is not None and self.expires <= now


def make_key(
    name: str, scopes: frozenset[Scope], expires: datetime | None, collection: str | None = None
) -> tuple[ApiKey, str]:
    """Make a key, for all collections or this one; return it and its token, which is not kept.

    Raises:
        ValueError: no name, one that is too long or cannot be printed, or no scope.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {MAX_NAME} printable characters")
    if not scopes:
        raise ValueError(f"a key needs one or more of {', '.join(SCOPES)}")
    key_id, secret = secrets.token_hex(4), secrets.token_urlsafe(_SECRET_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    key = ApiKey(key_id, name, scopes, _hash(secret), now, expires, collection)
    return key, f"lm_{key_id}_{secret}"


def split_token(token: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None for what cannot be one."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], found[2])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class _KeyFile(BaseModel):
    """What is in the file."""

    format: Literal[1] = 1
    keys: list[ApiKey]


MAX_KEYS = 10_000
_LOCK_SECONDS = 10.0

_State = tuple[int, int, int]  # inode, size, nanoseconds of the last change
_log = logging.getLogger(__name__)


def read_keys(path: Path) -> dict[str, ApiKey] | None:
    """Return the keys of a file by id; None if there is no file.

    Raises:
        KeyFileError: it cannot be read, or is not a file of keys.
    """
    try:
        found = _KeyFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise KeyFileError(f"{path}: is no file of keys: {place} {first['msg']}") from None
    return {key.id: key for key in found.keys}


def change_keys(path: Path, change: Callable[[dict[str, ApiKey]], None]) -> None:
    """Change the keys of a file, which is made if it is missing. Other processes wait.

    `change` changes the keys by id in place; what it raises leaves the file as it is.

    Raises:
        KeyFileError: it cannot be read or written, or has too many keys.
    """
    try:
        with FileLock(path.with_name(path.name + ".lock"), timeout=_LOCK_SECONDS):
            keys = read_keys(path) or {}
            change(keys)
            if len(keys) > MAX_KEYS:
                raise KeyFileError(f"{path}: has {MAX_KEYS} keys, which is the limit: revoke some")
            _write(path, keys.values())
    except Timeout as error:
        raise KeyFileError(f"{path}: another process is changing it") from error
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be written: {error}") from error


class KeyRing:
    """The keys that a server accepts. Safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        """Read the file."""
        self._path = path
        self._lock = threading.Lock()
        self._state = _state(path)
        self._keys = read_keys(path)

    @property
    def required(self) -> bool:
        """Whether requests need a key. Once they do, they do until the server ends."""
        self._refresh()
        return self._keys is not None

    def find(self, token: str) -> ApiKey | None:
        """Return the valid key of a token; None for a wrong, revoked or expired one."""
        self._refresh()
        key_id, secret = split_token(token) or ("", "")
        key = (self._keys or {}).get(key_id)
        # In a time that does not depend on the secret.
        if key is None or not hmac.compare_digest(_hash(secret), key.sha256):
            return None
        return None if key.expired(datetime.now(UTC)) else key

    def _refresh(self) -> None:
        """Read the file again if it changed; where that fails, the keys stay as they are."""
        state = _state(self._path)
        if state == self._state:
            return
        with self._lock:
            if state == self._state:
                return
            self._state = state
            try:
                keys = read_keys(self._path)
            except KeyFileError as error:
                _log.error("the API keys stay as they were: %s", error)
                return
            if keys is None and self._keys is not None:
                _log.error("%s was removed: no API key is valid now", self._path)
                keys = {}
            self._keys = keys


def open_private(path: str, flags: int) -> int:
    """Open a file, as an `opener` of `open`, which its owner alone can read if it is made."""
    return os.open(path, flags, 0o600)


def _write(path: Path, keys: Iterable[ApiKey]) -> None:
    ordered = sorted(keys, key=lambda key: (key.created, key.id))
    finished = path.with_name(path.name + ".partial")
    finished.unlink(missing_ok=True)
    # Private: names of users are in it, and hashes.
    with open(finished, "w", encoding="utf-8", opener=open_private) as file:
        file.write(_KeyFile(keys=ordered).model_dump_json(indent=2) + "\n")
    replace_durably(finished, path)


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
