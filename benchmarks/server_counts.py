"""What the server itself says of refusals and remembered blocks, from two scrapes of /metrics."""

from collections.abc import Mapping
from typing import Any

_BOUNDS = (0.005, 0.01, 0.025, 0.05)  # seconds; buckets of the histogram


def counted_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """Return the refusals at the door, how long they took, and the share of remembered blocks.

    Who is refused at the door never comes to a route, and is counted as "unmatched": from the
    head of the request, as the server has read it, to the last byte of the answer. Slow uploads
    that are given up are counted there, too, but after many seconds, in no bucket that is read.

    Args:
        before: samples of the first scrape, by name with labels.
        after: of the second one.
    """

    def since(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    duration = "longmatch_request_duration_seconds"
    refused = since('longmatch_requests_total{code="503",method="POST",route="unmatched"}')
    within = {
        str(round(1000 * bound)): since(f'{duration}_bucket{{le="{bound}",route="unmatched"}}')
        for bound in _BOUNDS
    }
    hits, misses = (since(f"longmatch_block_cache_{one}_total") for one in ("hits", "misses"))
    return {
        "refused_at_the_door": round(refused),
        "share_within_milliseconds": {
            bound: round(count / max(1.0, refused), 5) for bound, count in within.items()
        },
        "blocks_remembered_share": round(hits / max(1.0, hits + misses), 4),
    }
