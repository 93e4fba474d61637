"""Block vectors by the content of their blocks: the port, and the cache within this process."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

KEY_BYTES = 20
_ENTRY_OVERHEAD = 250  # bytes of Python's for a key and its place, measured


class BlockCache(Protocol):
    """Keeps block vectors [H] by key, for as long as it likes; may forget any at any moment.

    What it gives back has the same bits as what was put. It never fails: what cannot be read is
    not there, what cannot be written is forgotten.
    """

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Float32]:
        """Return the vectors that are there."""

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """Keep vectors."""


class LruBlockCache:
    """Keeps the block vectors that were used last, in memory of this process; for any thread.

    The vectors lie in one array, so that the memory is what the limit says and never fragments. It
    is written to at once: what there is no memory for is known at the start, not one night.
    """

    def __init__(self, max_bytes: int, dimension: int) -> None:
        """Make an empty cache.

        Args:
            max_bytes: that it may take; not enough for one vector keeps none.
            dimension: H, of a block vector.
        """
        self.capacity = max_bytes // (4 * dimension + KEY_BYTES + _ENTRY_OVERHEAD)
        self._vectors = np.empty((self.capacity, dimension), dtype=np.float32)
        self._vectors.fill(0.0)
        self._rows: OrderedDict[bytes, int] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Float32]:
        """See `BlockCache`."""
        found: dict[bytes, Float32] = {}
        with self._lock:
            for key in keys:
                row = self._rows.get(key)
                if row is not None:
                    self._rows.move_to_end(key)
                    found[key] = self._vectors[row].copy()
        return found

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """See `BlockCache`."""
        if not self.capacity:
            return
        with self._lock:
            for key, vector in vectors.items():
                self._vectors[self._row_for(key)] = vector

    def _row_for(self, key: bytes) -> int:
        row = self._rows.pop(key, None)
        if row is None:
            full = len(self._rows) == self.capacity
            row = self._rows.popitem(last=False)[1] if full else len(self._rows)
        self._rows[key] = row
        return row
