"""Caches of block vectors by the content of their blocks: the port, and the in-process cache."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from encoder.arrays import Float32

KEY_BYTES = 20
_ENTRY_OVERHEAD = 250  # bytes of Python objects for a key and its row number, measured


class BlockCache(Protocol):
    """Keeps block vectors Float32[H] by key; it may drop any of them at any time.

    What it returns has the same bits as what was put. It never fails: a vector that cannot be read
    is missing, one that cannot be written is dropped.
    """

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Float32]:
        """Return the vectors that are there."""

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """Store vectors."""


class LruBlockCache:
    """Keeps the most recently used block vectors in the memory of this process; thread-safe.

    The vectors are rows of one array: memory stays at the limit and never fragments. The array is
    written to at once, so that a lack of memory shows at the start and not at some later time.
    """

    def __init__(self, max_bytes: int, dimension: int) -> None:
        """Create an empty cache.

        Args:
            max_bytes: that it may use; less than one vector takes keeps none.
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
