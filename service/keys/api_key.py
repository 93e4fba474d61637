"""An API key: a name, what it may do, and the SHA-256 of its secret.

    lm_4f9d02c1_Jr0n...       prefix, id, secret

The secret is 256 random bits, so a fast hash protects it as well as a slow one. The id is not
secret: it finds the key, and is what logs and lists show.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

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
        created: ISO 8601 in UTC.
        expires: ISO 8601 in UTC, from when it is invalid; None for never.
        collection: the only one that it sees; None if it sees all.
    """

    id: str
    name: str
    scopes: frozenset[Scope]
    sha256: str
    created: str
    expires: str | None = None
    collection: str | None = None

    def allows(self, scope: Scope) -> bool:
        """Return whether it may do what takes this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def expired(self, now: datetime) -> bool:
        """Return whether it is invalid at this moment."""
        return self.expires is not None and datetime.fromisoformat(self.expires) <= now


def make_key(
    name: str,
    scopes: frozenset[Scope],
    expires: datetime | None,
    collection: str | None = None,
) -> tuple[ApiKey, str]:
    """Make a key, which sees all collections or this one.

    Returns:
        The key, and its token, which is not kept anywhere.

    Raises:
        ValueError: no name, one that is too long or cannot be printed, or no scope.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {MAX_NAME} printable characters")
    if not scopes:
        raise ValueError(f"a key needs one or more of {', '.join(SCOPES)}")
    key_id, secret = secrets.token_hex(4), secrets.token_urlsafe(_SECRET_BYTES)
    key = ApiKey(
        key_id,
        name,
        scopes,
        _hash(secret),
        _format(datetime.now(UTC)),
        None if expires is None else _format(expires),
        collection,
    )
    return key, f"lm_{key_id}_{secret}"


def split_token(token: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None for what cannot be one."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], found[2])


def has_secret(key: ApiKey, secret: str) -> bool:
    """Compare a secret with that of a key, in a time that does not depend on either."""
    return hmac.compare_digest(_hash(secret), key.sha256)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _format(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
