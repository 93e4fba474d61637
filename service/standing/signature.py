"""Signing webhooks as Standard Webhooks says (https://www.standardwebhooks.com)."""

import base64
import hmac
import secrets
from hashlib import sha256

PREFIX = "whsec_"
_BYTES = 32
_FEWEST, _MOST = 24, 64


def make_secret() -> str:
    """Return a new random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Check a secret that a client chose.

    Raises:
        ValueError: it is not `whsec_` and the Base64 of 24 to 64 bytes.
    """
    try:
        size = len(_key(secret))
    except ValueError:
        size = 0
    if not _FEWEST <= size <= _MOST:
        raise ValueError(f"must be {PREFIX} and the Base64 of {_FEWEST} to {_MOST} bytes")


def signed_headers(secret: str, message_id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers of a message: its id, its time, and the signature of both and the body.

    Args:
        secret: that the receiver knows, too.
        message_id: the same when a message is sent again.
        body: of the message.
        now: seconds since the epoch.
    """
    sent = str(int(now))
    content = b".".join((message_id.encode(), sent.encode(), body))
    signature = base64.b64encode(hmac.digest(_key(secret), content, sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": sent,
        "webhook-signature": f"v1,{signature}",
    }


def _key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        raise ValueError("a secret has a prefix")
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
