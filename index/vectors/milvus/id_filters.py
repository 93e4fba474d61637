"""Sets of vector ids as filters of Milvus, which parses them: none may be too long."""

from collections.abc import Callable, Iterator

import numpy as np

from encoder.arrays import Int64
from index.id_set import IdSet

ID_FIELD = "id"
IDS_A_REQUEST = 10_000  # in a filter
MOST_FOUND = 16_384  # by one query of Milvus


def id_filters(among: IdSet | None, k: int, all_ids: Callable[[], Int64]) -> Iterator[str]:
    """Yield filters that together are a selection, without an id in two of them.

    Each names `IDS_A_REQUEST` ids at most, and selects `MOST_FOUND` at most if k is larger.

    Args:
        among: the selection; None for all.
        k: how many are to be found.
        all_ids: returns those that exist, ascending; called only if k is so large.
    """
    if among is None:
        if k <= MOST_FOUND:
            yield ""
            return
        among = IdSet(int(max(all_ids(), default=-1)) + 1, inverted=True)
    first, step = 0, IDS_A_REQUEST
    bounds = among.ids
    if k > MOST_FOUND and among.inverted:
        bounds, step = all_ids(), min(step, MOST_FOUND)
    ends = [*bounds[step::step].tolist(), among.end]
    for end in ends:
        listed = among.ids[slice(*np.searchsorted(among.ids, [first, end]))].tolist()
        limits = f"{ID_FIELD} >= {first} and {ID_FIELD} < {end}"
        if not among.inverted:
            if listed:
                yield f"{ID_FIELD} in {listed}"
        else:
            yield f"{limits} and {ID_FIELD} not in {listed}" if listed else limits
        first = end
