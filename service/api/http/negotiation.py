"""Content negotiation (RFC 9110, section 12.5.1)."""

from collections.abc import Sequence

from starlette.datastructures import Headers

from service.errors import NotAcceptableError

JSON, NDJSON = "application/json", "application/x-ndjson"


def media_type(headers: Headers) -> str:
    """Return the media type of a body, in lower case and without parameters; "" if not given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def choose_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers; of equals, the first offered.

    Args:
        accept: the Accept header; None or "" accepts anything.
        offered: media types without parameters.

    Raises:
        NotAcceptableError: the client accepts none of them.
    """
    ranges = [_range(part) for part in (accept or "*/*").split(",") if part.strip()]
    qualities = {kind: _quality(kind, ranges) for kind in offered}
    best = max(offered, key=lambda kind: qualities[kind])
    if qualities[best] <= 0:
        raise NotAcceptableError(offered)
    return best


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            quality = _number(value)
    return kind, quality


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _quality(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the weight that the most specific range gives to a media type."""
    general = f"{kind.partition('/')[0]}/*"
    for media_range in (kind, general, "*/*"):
        weights = [quality for name, quality in ranges if name == media_range]
        if weights:
            return max(weights)
    return 0.0
