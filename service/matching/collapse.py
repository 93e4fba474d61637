"""Matching with families collapsed: one match of each family, the best.

A search gives copies and versions like any other documents. What it gave, and the families of that,
is then hidden, and it is repeated for the rest, until there are enough families or no more
documents. A round hides all of every family that it found, so that there are at most as many rounds
as matches, however large a family is; nothing is encoded again.
"""

from collections.abc import Sequence
from dataclasses import replace

from service.engine import Engine
from service.matching.retrieve import Match, Matches, Search, Sought, find
from service.metrics import Stage
from service.threads import run_in

MAX_COLLAPSED = 10  # ids that a match names of the others of its family


async def find_distinct(engine: Engine, sought: Sequence[Sought], search: Search) -> list[Matches]:
    """Find the documents that match each query, best first; of each family one, where asked for.

    Raises:
        StoreError: the store cannot be read.
    """
    found = await find(engine, sought, search)
    if not search.collapse:
        return found
    return [
        await _collapsed(engine, query, matches, search)
        for query, matches in zip(sought, found, strict=True)
    ]


async def _collapsed(engine: Engine, query: Sought, first: Matches, search: Search) -> Matches:
    kept: list[Match] = []
    seconds: dict[Stage, float] = dict(first.seconds)
    found = first
    while True:
        kept += await run_in(engine.readers, _one_of_each, engine, found.matches)
        if len(kept) >= search.top_k or len(found.matches) < search.top_k:
            break
        hidden = await run_in(engine.readers, _hidden, engine, kept)
        [found] = await find(engine, [query], replace(search, hidden=hidden))
        for stage, taken in found.seconds.items():
            if stage not in query.seconds:
                seconds[stage] = seconds.get(stage, 0.0) + taken
    named = await run_in(engine.readers, _named, engine, kept[: search.top_k], query, search)
    return replace(first, matches=named, seconds=seconds)


def _one_of_each(engine: Engine, matches: Sequence[Match]) -> list[Match]:
    """Return the first match of each family, and those that are in none."""
    numbers = engine.data.store.families.of_ids([one.id for one in matches])
    best: dict[int | str, Match] = {}
    for one in matches:
        number = numbers.get(one.id)
        best.setdefault(one.id if number is None else number, replace(one, family=number))
    return list(best.values())


def _hidden(engine: Engine, kept: Sequence[Match]) -> tuple[int, ...]:
    hidden = engine.data.store.families.hidden_by([one.id for one in kept])
    return tuple(hidden.tolist())


def _named(
    engine: Engine, kept: Sequence[Match], query: Sought, search: Search
) -> tuple[Match, ...]:
    """Name the documents behind each match: those that the filter would have let through."""
    store = engine.data.store
    among = None
    if search.where is not None or search.exclude:
        among = store.select(search.where, search.exclude)
    given = []
    for one in kept:
        others = store.families.vector_ids(() if one.family is None else (one.family,))
        if among is not None:
            others = others[among.contains(others)]
        # Two more than are named: the match and the query may be among them.
        some = [other for other in others[: MAX_COLLAPSED + 2].tolist() if other != query.itself]
        names = [summary.id for _, summary in sorted(store.get(some).items())]
        names = [name for name in names if name != one.id][:MAX_COLLAPSED]
        given.append(replace(one, collapsed=tuple(names)))
    return tuple(given)
