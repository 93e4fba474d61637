"""Block vectors by the content of their blocks: the port, and the cache within this process."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

from encoder.arrays import Float32
from encoder.golden import read_golden_batch
from encoder.onnx_encoder import OnnxEncoder
from service.metrics import Metrics
from service.threads import lower_priority, run_in

SPACE_BYTES = 20


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """One run of the golden batch.

    Attributes:
        space: a digest that two encoders share only when they compute the same bits. It is over the
            fingerprint of the checkpoint, the precision and the block vectors as this machine
            computes them: int8 kernels differ between processors.
        tokens_per_second: of one thread.
    """

    space: bytes
    tokens_per_second: float


def golden_run(encoder: OnnxEncoder) -> GoldenRun:
    """Encode the golden batch of the checkpoint."""
    blocks = read_golden_batch(encoder.checkpoint).blocks
    started = time.perf_counter()
    vectors = encoder.encode_blocks(blocks)
    seconds = time.perf_counter() - started
    digest = blake2b(encoder.checkpoint.fingerprint.encode(), digest_size=SPACE_BYTES)
    digest.update(encoder.precision.encode())
    digest.update(vectors.tobytes())
    return GoldenRun(digest.digest(), sum(len(block) for block in blocks) / seconds)


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
            space: whose vectors, by `service.workers.block_cache`.
            metrics: where to count.
        """
        self._cache = cache
        self._space = space
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(_THREADS, "block-cache", lower_priority)
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
