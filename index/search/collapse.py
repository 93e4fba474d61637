"""Searching with families collapsed, for who searches without a service: one document of each."""

import numpy as np

from index.directory.data_directory import DataDirectory
from index.id_set import IdSet, without
from index.search.fusion import LinearFusion
from index.search.search import Asked, Found, Mode, search


def search_distinct(
    data: DataDirectory,
    asked: Asked,
    k: int,
    mode: Mode,
    rule: LinearFusion,
    *,
    among: IdSet | None = None,
) -> tuple[tuple[Found, ...], Mode]:
    """Find the best document of each of the k best families, where a document may be one alone.

    What is found is hidden with its families, and the search is repeated for the rest.

    Raises:
        StoreError: the store cannot be read.
        ValueError: the vector has a wrong shape or is not finite.
    """
    families = data.store.families
    everything = data.store.select(None) if among is None else among
    found, scored_as = search(data, asked, k, mode, rule, among=among)
    kept: dict[int | str, Found] = {}
    while True:
        numbers = families.of(one.vector_id for one in found)
        for one in found:
            kept.setdefault(numbers.get(one.vector_id, f"alone {one.vector_id}"), one)
        if len(kept) >= k or len(found) < k:
            return tuple(kept.values())[:k], scored_as
        own = np.array([one.vector_id for one in kept.values()], dtype=np.int64)
        hidden = families.vector_ids(one for one in kept if isinstance(one, int))
        rest = without(everything, np.union1d(own, hidden))
        found, _ = search(data, asked, k, mode, rule, among=rest)
