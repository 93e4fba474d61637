"""What was encoded before is not encoded again: block vectors by the tokens of the block.

An edited document has most of its sentence blocks in common with what it was, so that only the
changed ones are encoded.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import numpy as np

from service.block_cache import KEY_BYTES, BlockCache, Float32
from service.metrics import Metrics
from service.threads import give_way, run_in

Blocks = Sequence[Sequence[int]]

_LOG = logging.getLogger(__name__)

_THREADS = 2
_MAX_WAITING_WRITES = 16  # more are forgotten: a slow cache must not fill the memory


class BlockMemory:
    """A cache of block vectors, asked off the event loop.

    Attributes:
        written: block vectors that were given to the cache so far.
    """

    def __init__(self, cache: BlockCache, space: bytes, metrics: Metrics) -> None:
        """Use a cache.

        Args:
            cache: for vectors of one width.
            space: whose vectors, by `service.golden_run`.
            metrics: where to count.
        """
        self._cache = cache
        self._space = space
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(_THREADS, "block-cache", give_way)
        self.written = 0
        self._writes = threading.Semaphore(_MAX_WAITING_WRITES)

    async def recall(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32]
    ) -> list[frozenset[int]]:
        """Fill in what is known.

        Args:
            documents: the sentence blocks of each.
            vectors: Float32[S, H] for each; its known rows are written.

        Returns:
            For each document the rows that are known.
        """
        return await run_in(self._threads, self._recall, documents, vectors)

    def remember(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        """Keep the vectors of these rows, some time soon, or never."""
        if not rows or not self._writes.acquire(blocking=False):
            return
        try:
            self._remember_soon(blocks, vectors, rows)
        except Exception as error:  # no thread to be had, or it closes: the answer is there
            self._writes.release()
            _LOG.warning("block vectors were not remembered: %s", type(error).__name__)

    def close(self) -> None:
        """Let what is asked end, and ask no more."""
        self._threads.shutdown(cancel_futures=True)

    def _recall(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32]
    ) -> list[frozenset[int]]:
        keys = [[self._key(block) for block in blocks] for blocks in documents]
        wanted = list(dict.fromkeys(key for of_one in keys for key in of_one))
        found = self._cache.get(wanted)
        known = []
        for of_one, rows in zip(keys, vectors, strict=True):
            here = frozenset(row for row, key in enumerate(of_one) if key in found)
            for row in here:
                rows[row] = found[of_one[row]]
            known.append(here)
        hits = sum(len(here) for here in known)
        self._metrics.block_cache_hits.inc(hits)
        self._metrics.block_cache_misses.inc(sum(len(of_one) for of_one in keys) - hits)
        return known

    def _remember_soon(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        self._threads.submit(self._remember, blocks, vectors, rows)

    def _remember(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        try:
            self._cache.put({self._key(blocks[row]): vectors[row] for row in rows})
            self.written += len(rows)
        finally:
            self._writes.release()

    def _key(self, block: Sequence[int]) -> bytes:
        tokens = np.asarray(block, dtype="<i4").tobytes()
        return blake2b(tokens, digest_size=KEY_BYTES, key=self._space).digest()
