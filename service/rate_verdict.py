"""What becomes of a request whose client's tokens are counted."""

import math
from dataclasses import dataclass

WINDOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request.

    Attributes:
        admitted: whether its tokens were spent.
        limit: tokens a minute.
        remaining: tokens that the client may ask for now.
        reset_seconds: whole seconds until its bucket is full.
        retry_after: whole seconds until the same request is admitted; 0 for one that was.
    """

    admitted: bool
    limit: int
    remaining: int
    reset_seconds: int
    retry_after: int


def verdict(limit: int, tokens: int, admitted: bool, owed: float) -> Verdict:
    """Return the verdict on a request.

    Args:
        limit: tokens a minute.
        tokens: that were asked for.
        admitted: whether they were spent.
        owed: seconds until the bucket is full.
    """
    token = WINDOW_SECONDS / limit
    wait = owed + min(tokens, limit) * token - WINDOW_SECONDS
    return Verdict(
        admitted=admitted,
        limit=limit,
        remaining=max(0, math.floor((WINDOW_SECONDS - owed) / token)),
        reset_seconds=math.ceil(owed),
        retry_after=0 if admitted else max(1, math.ceil(wait)),
    )
