"""How a client hears of its rate: draft-ietf-httpapi-ratelimit-headers."""

from service.rate_verdict import WINDOW_SECONDS, Verdict


def rate_limit_headers(verdict: Verdict) -> dict[str, str]:
    """Return the headers that say what a client may ask for, in tokens, and until when."""
    return {
        "RateLimit-Policy": f'"tokens";q={verdict.limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"tokens";r={verdict.remaining};t={verdict.reset_seconds}',
    }
