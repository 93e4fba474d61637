"""Which stored documents were found to be damaged while they were read.

One damaged document makes no other one unreadable: who reads many leaves it out, who asks for it
gets an error that names it. It is remembered, for the operator, until it is removed or replaced.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from index.errors import DOCTOR, DamagedDocumentError

IdsOf = Callable[[Sequence[int]], Mapping[int, str]]
_log = logging.getLogger(__name__)


class DamageLog:
    """The damaged documents of an open store. Safe to use from many threads."""

    def __init__(self, ids_of: IdsOf, path: Path) -> None:
        """Log damage of the store at `path`; `SQLiteDocumentStore.damage` is one.

        Args:
            ids_of: returns the ids of the documents of these vector ids; unknown ones are absent.
            path: of the store.
        """
        self._ids_of = ids_of
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[int, set[str]] = {}

    def __len__(self) -> int:
        """Return how many documents are known to be damaged."""
        return len(self._known)

    def __contains__(self, vector_id: int) -> bool:
        """Return whether the document of a vector id is known to be damaged."""
        return vector_id in self._known

    def parts(self) -> set[tuple[int, str]]:
        """Return what is known: vector ids, each with a part that is damaged."""
        with self._lock:
            return {(one, part) for one, parts in self._known.items() for part in parts}

    def without(
        self, rows: Sequence[tuple[Any, ...]], damaged: Iterable[int], part: str, *, skip: bool
    ) -> Sequence[tuple[Any, ...]]:
        """Return rows that begin with a vector id without those of damaged documents.

        Args:
            rows: that were read.
            damaged: vector ids of those that are damaged.
            part: what of these documents it is, for the log.
            skip: leave them out, instead of raising.

        Raises:
            DamagedDocumentError: there is one, and it is not to be skipped.
        """
        found = set(damaged)
        if not found:
            return rows
        first = self.note(found, part)
        if not skip:
            raise first
        return [row for row in rows if row[0] not in found]

    def note(self, vector_ids: Iterable[int], part: str) -> DamagedDocumentError:
        """Remember that documents are damaged, log the new ones, and return the error of one."""
        found = sorted(vector_ids)
        names = self._names(found)
        with self._lock:
            new = [one for one in found if part not in self._known.get(one, ())]
            for one in new:
                self._known.setdefault(one, set()).add(part)
        for one in new:
            _log.error(
                "%s: document %r is damaged in its %s: %s --repair",
                *(self._path, names[one], part, DOCTOR),
            )
        return DamagedDocumentError(self._path, names[found[0]], part)

    def forget(self, vector_ids: Iterable[int]) -> None:
        """Forget documents that were removed."""
        with self._lock:
            for one in vector_ids:
                self._known.pop(int(one), None)

    def _names(self, vector_ids: Sequence[int]) -> dict[int, str]:
        names = self._ids_of(vector_ids)
        return {one: names.get(one, f"of vector id {one}") for one in vector_ids}
