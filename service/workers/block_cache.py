"""The cache of block vectors by the tokens of their blocks.

It may drop any of them at any time. What it returns has the same bits as what was put.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b

import numpy as np

from encoder.arrays import Float32
from service.metrics import Metrics
from service.threads import lower_priority, run_in

KEY_BYTES = 20
_ENTRY_OVERHEAD = 250  # bytes of Python objects for a key and its row number, measured
Blocks = Sequence[Sequence[int]]


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
        """Return the vectors that are there, Float32[H] by key."""
        found: dict[bytes, Float32] = {}
        with self._lock:
            for key in keys:
                row = self._rows.get(key)
                if row is not None:
                    self._rows.move_to_end(key)
                    found[key] = self._vectors[row].copy()
        return found

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """Store vectors."""
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


class EncodeCache:
    """Looks up and stores the block vectors of documents, off the event loop.

    Attributes:
        written: block vectors that were written to the cache so far.
    """

    def __init__(self, max_bytes: int, dimension: int, metrics: Metrics) -> None:
        """Create an empty cache: see `LruBlockCache`."""
        self._cache = LruBlockCache(max_bytes, dimension)
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "block-cache", lower_priority)
        self.written = 0

    async def get(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32], owner: str
    ) -> list[frozenset[int]]:
        """Fill in the block vectors that are cached.

        Args:
            documents: the sentence blocks of each.
            vectors: Float32[S, H] for each; its cached rows are filled in.
            owner: whose entries are read: those of others would tell, by the time that is saved,
                what others have sent.

        Returns:
            For each document the rows that were filled in.
        """
        return await run_in(self._thread, self._get, documents, vectors, owner)

    def put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int], owner: str) -> None:
        """Store the vectors of an owner in the background; never waits, never fails."""
        if rows:
            with suppress(RuntimeError):  # it closes
                self._thread.submit(self._put, blocks, vectors, rows, owner)

    def close(self) -> None:
        """Finish what is running and drop what is waiting."""
        self._thread.shutdown(cancel_futures=True)

    def _get(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32], owner: str
    ) -> list[frozenset[int]]:
        keys = [_keys(blocks, owner) for blocks in documents]
        found = self._cache.get(list(dict.fromkeys(key for of_one in keys for key in of_one)))
        known = []
        for of_one, rows in zip(keys, vectors, strict=True):
            hits = frozenset(row for row, key in enumerate(of_one) if key in found)
            for row in hits:
                rows[row] = found[of_one[row]]
            known.append(hits)
        count = sum(len(hits) for hits in known)
        self._metrics.block_cache_hits.inc(count)
        self._metrics.block_cache_misses.inc(sum(len(of_one) for of_one in keys) - count)
        return known

    def _put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int], owner: str) -> None:
        keys = _keys([blocks[row] for row in rows], owner)
        self._cache.put({key: vectors[row] for key, row in zip(keys, rows, strict=True)})
        self.written += len(rows)


def _keys(blocks: Blocks, owner: str) -> list[bytes]:
    tokens = (np.asarray(block, dtype="<i4").tobytes() for block in blocks)
    space = blake2b(owner.encode(), digest_size=KEY_BYTES).digest()
    return [blake2b(part, digest_size=KEY_BYTES, key=space).digest() for part in tokens]
