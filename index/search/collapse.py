"""Collapsing of families: of copies and versions of one text only the best is returned.

A search finds copies and versions like any other documents. What it found, with all of its
families, is then hidden, and the search is repeated for the rest, until there are enough families
or no more documents. A round hides every family that it found as a whole, so there are at most as
many rounds as hits, however large a family is.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from encoder.arrays import Int64
from index.id_set import IdSet
from index.near_duplicates.families import Families
from index.search.records import Hit
from index.store.document_store import SQLiteDocumentStore

MAX_COLLAPSED = 10  # ids that a hit lists of the others of its family


def collapse_families(
    families: Families,
    found: Sequence[Hit],
    find_besides: Callable[[Int64], Sequence[Hit]],
    top_k: int,
) -> list[Hit]:
    """Return the best hit of each of the `top_k` best families; a document may be one alone.

    Args:
        families: of the store that was searched.
        found: the `top_k` best hits, or all where there are fewer.
        find_besides: returns the same of the documents besides these vector ids Int64[N].
        top_k: how many to return, at most.
    """
    best: dict[int | str, Hit] = {}
    while True:
        numbers = families.of_ids([hit.id for hit in found])
        for hit in found:
            family = numbers.get(hit.id)
            best.setdefault(hit.id if family is None else family, replace(hit, family=family))
        if len(best) >= top_k or len(found) < top_k:
            return list(best.values())[:top_k]
        found = find_besides(families.hidden_by([hit.id for hit in best.values()]))


def list_collapsed(
    store: SQLiteDocumentStore, hit: Hit, queries: AbstractSet[int], among: IdSet | None
) -> tuple[str, ...]:
    """Return the ids of the documents that are collapsed behind a hit, the first of them.

    Args:
        store: that was searched.
        hit: one that `collapse_families` returned.
        queries: vector ids of the queries that are stored, which are not listed.
        among: list no other documents.
    """
    if hit.family is None:
        return ()
    others = store.families.vector_ids([hit.family])
    if among is not None:
        others = others[among.contains(others)]
    # More than are listed: the hit and the queries may be among them.
    most = MAX_COLLAPSED + 1 + len(queries)
    some = [one for one in others[:most].tolist() if one not in queries]
    ids = [summary.id for _, summary in sorted(store.get(some, skip_damaged=True).items())]
    return tuple(one for one in ids if one != hit.id)[:MAX_COLLAPSED]
