"""Selections that were made lately: the same filter comes with many queries."""

import threading
from collections import OrderedDict

from index.selection import Selection

IDS_KEPT = 2_000_000  # of all selections together, 8 bytes each


class SelectionCache:
    """Selections by what was asked for, all of one state. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = 0
        self._ids = 0
        self._kept: OrderedDict[str, Selection] = OrderedDict()

    def changed(self) -> None:
        """Forget all; to be called after each change is durable and before it is acknowledged."""
        with self._lock:
            self._state += 1
            self._ids = 0
            self._kept.clear()

    def find(self, asked: str) -> tuple[int, Selection | None]:
        """Return the present state, to be given to `keep`, and what was kept, if it was."""
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
            return self._state, self._kept.get(asked)

    def keep(self, asked: str, state: int, made: Selection) -> None:
        """Keep a selection, unless the state has changed since it was asked for.

        Those that were asked for least lately make room for it.
        """
        size = len(made.ids)
        with self._lock:
            if state != self._state or asked in self._kept or size >= IDS_KEPT:
                return
            self._kept[asked] = made
            self._ids += size + 1
            while self._ids > IDS_KEPT:
                _, dropped = self._kept.popitem(last=False)
                self._ids -= len(dropped.ids) + 1
