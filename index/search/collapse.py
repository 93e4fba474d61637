"""Of each family of copies and versions, only the best hit.

Copies and versions are found like any other documents. What was found is then hidden, with all of
its families, and the search is repeated for the rest, until there are enough families or no more
documents: at most as many rounds as hits, however large a family is.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from encoder.arrays import Int64
from index.id_set import IdSet
from index.near_duplicates.families import Families
from index.search.records import Hit
from index.store.document_store import DocumentStore
from index.store.filters import Filter, matches

MAX_COLLAPSED = 10  # ids that a hit lists of the others of its family
_MEMBERS_A_READ = 2 * MAX_COLLAPSED


def collapse_families(
    families: Families,
    found: Sequence[Hit],
    find_others: Callable[[Int64], Sequence[Hit]],
    top_k: int,
) -> list[Hit]:
    """Return the best hit of each of the `top_k` best families; a document may be one alone.

    Args:
        families: of the store that was searched.
        found: the `top_k` best hits, or all where there are fewer.
        find_others: returns the same of the documents without these vector ids Int64[N].
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
        found = find_others(families.hidden_by([hit.id for hit in best.values()]))


def list_collapsed(
    store: DocumentStore,
    hit: Hit,
    queries: AbstractSet[int],
    among: IdSet | None,
    where: Filter | None,
) -> tuple[str, ...]:
    """Return the ids of the documents that are collapsed behind a hit, the first of them.

    Args:
        store: that was searched.
        hit: with its family.
        queries: vector ids that are left out.
        among: the documents that were searched; None for all.
        where: a filter that they pass.
    """
    if hit.family is None:
        return ()
    others = store.families.vector_ids([hit.family])
    if among is not None:
        others = others[among.contains(others)]
    ids: list[str] = []
    for start in range(0, len(others), _MEMBERS_A_READ):
        some = set(others[start : start + _MEMBERS_A_READ].tolist()) - queries
        ids += [
            member.id
            for _, member in sorted(store.get(list(some)).items())
            if member.id != hit.id and (where is None or matches(where, member.metadata))
        ]
        if len(ids) >= MAX_COLLAPSED:
            break
    return tuple(ids[:MAX_COLLAPSED])
