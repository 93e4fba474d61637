"""The cache of block vectors by the tokens of their blocks.

It may drop any of them at any time. What it returns has the same bits as what was put.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
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


class EncodeCache:
    """Keeps the most recently used block vectors in the memory of this process.

    Its one thread does all the work, off the event loop. The vectors are rows of one array: memory
    stays at the limit and never fragments. The array is written to at once, so that a lack of
    memory shows at the start and not at some later time.

    Attributes:
        capacity: most vectors that it keeps.
        written: block vectors that were written to it so far.
    """

    def __init__(self, max_bytes: int, dimension: int, metrics: Metrics) -> None:
        """Create an empty cache.

        Args:
            max_bytes: that it may use; less than one vector takes keeps none.
            dimension: H, of a block vector.
            metrics: where to count.
        """
        self.capacity = max_bytes // (4 * dimension + KEY_BYTES + _ENTRY_OVERHEAD)
        self.written = 0
        self._vectors = np.empty((self.capacity, dimension), dtype=np.float32)
        self._vectors.fill(0.0)
        self._rows: OrderedDict[bytes, int] = OrderedDict()  # least recently used first
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "block-cache", lower_priority)

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
        known = [
            frozenset(self._fill(blocks, rows, owner))
            for blocks, rows in zip(documents, vectors, strict=True)
        ]
        count = sum(map(len, known))
        self._metrics.block_cache_hits.inc(count)
        self._metrics.block_cache_misses.inc(sum(map(len, documents)) - count)
        return known

    def _fill(self, blocks: Blocks, vectors: Float32, owner: str) -> Iterator[int]:
        """Fill in the vectors of a document that are cached; yield which."""
        for number, key in enumerate(_keys(blocks, owner)):
            if key in self._rows:
                self._rows.move_to_end(key)
                vectors[number] = self._vectors[self._rows[key]]
                yield number

    def _put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int], owner: str) -> None:
        keys = _keys([blocks[row] for row in rows], owner)
        for key, row in zip(keys, rows, strict=True) if self.capacity else ():
            self._vectors[self._row_for(key)] = vectors[row]
        self.written += len(rows)

    def _row_for(self, key: bytes) -> int:
        row = self._rows.pop(key, None)
        if row is None:
            full = len(self._rows) == self.capacity
            row = self._rows.popitem(last=False)[1] if full else len(self._rows)
        self._rows[key] = row
        return row


def _keys(blocks: Blocks, owner: str) -> list[bytes]:
    tokens = (np.asarray(block, dtype="<i4").tobytes() for block in blocks)
    space = blake2b(owner.encode(), digest_size=KEY_BYTES).digest()
    return [blake2b(part, digest_size=KEY_BYTES, key=space).digest() for part in tokens]
