"""Signing webhooks as Standard Webhooks says (https://www.standardwebhooks.com)."""

import base64
import hmac
import re
import secrets
from hashlib import sha256

PREFIX = "whsec_"
_BYTES = 32
_GROUP = "[A-Za-z0-9+/]"
SECRET_FORM = (  # 24 to 64 bytes
    rf"^{PREFIX}({_GROUP}{{4}}){{8,20}}"
    rf"({_GROUP}{{4}}({_GROUP}{{2}}==)?|{_GROUP}{{2}}==|{_GROUP}{{3}}=)?$"
)


def make_secret() -> str:
    """Return a new random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Check a secret that a client chose.

    Raises:
        ValueError: it is not `whsec_` and the Base64 of 24 to 64 bytes.
    """
    if not re.fullmatch(SECRET_FORM, secret):
        raise ValueError(f"must be {PREFIX} and the Base64 of 24 to 64 bytes")


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
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
