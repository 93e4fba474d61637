"""The cache in front of the encoder: sentence blocks that were encoded before are looked up."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from encoder.arrays import Float32
from encoder.golden import read_golden_batch
from encoder.onnx_encoder import GoldenRun, OnnxEncoder
from service.metrics import Metrics
from service.threads import lower_priority, run_in
from service.workers.block_cache import KEY_BYTES, BlockCache

Blocks = Sequence[Sequence[int]]

_SPACE_BYTES = 20
_THREADS = 2
_MAX_PENDING_WRITES = 16  # more are dropped: a slow cache must not fill the memory

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorSpaceProbe:
    """One timed run of the golden batch.

    Attributes:
        space: a digest that two encoders share only if they compute the same bits. It covers the
            fingerprint of the checkpoint, the precision, and the block vectors as this machine
            computes them: int8 kernels differ between processors.
        tokens_per_second: of one thread.
    """

    space: bytes
    tokens_per_second: float


def probe_vector_space(encoder: OnnxEncoder, golden: GoldenRun) -> VectorSpaceProbe:
    """Return what an encoder's run of the golden batch says; on a GPU that is repeated, packed."""
    vectors, rate = golden.block_vectors, golden.tokens_per_second
    if encoder.batch_tokens:  # as requests are
        batch = read_golden_batch(encoder.checkpoint)
        started = time.perf_counter()
        vectors = encoder.encode_blocks(batch.blocks)
        rate = sum(map(len, batch.blocks)) / (time.perf_counter() - started)
    digest = blake2b(encoder.checkpoint.fingerprint.encode(), digest_size=_SPACE_BYTES)
    digest.update(encoder.precision.encode())
    digest.update(vectors.tobytes())
    return VectorSpaceProbe(digest.digest(), rate)


class EncodeCache:
    """Looks up and stores the block vectors of documents, off the event loop.

    Attributes:
        written: block vectors that were written to the cache so far.
    """

    def __init__(self, cache: BlockCache, space: bytes, metrics: Metrics) -> None:
        """Wrap a cache.

        Args:
            cache: for vectors of one width.
            space: the vector space of the encoder, by `probe_vector_space`; part of every key.
            metrics: where to count.
        """
        self._cache = cache
        self._space = space
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(_THREADS, "block-cache", lower_priority)
        self.written = 0
        self._writes = threading.Semaphore(_MAX_PENDING_WRITES)

    async def get(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32]
    ) -> list[frozenset[int]]:
        """Fill in the block vectors that are cached.

        Args:
            documents: the sentence blocks of each.
            vectors: Float32[S, H] for each; its cached rows are filled in.

        Returns:
            For each document the rows that were filled in.
        """
        return await run_in(self._threads, self._get, documents, vectors)

    def put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        """Store the vectors of these rows in the background; never waits, never fails."""
        if not rows or not self._writes.acquire(blocking=False):
            return
        try:
            self._submit(blocks, vectors, rows)
        except Exception as error:  # no thread can be started, or it closes: the answer is there
            self._writes.release()
            _LOG.warning("block vectors were not cached: %s", type(error).__name__)

    def close(self) -> None:
        """Finish what is running and drop what is waiting."""
        self._threads.shutdown(cancel_futures=True)

    def _get(self, documents: Sequence[Blocks], vectors: Sequence[Float32]) -> list[frozenset[int]]:
        keys = [[self._key(block) for block in blocks] for blocks in documents]
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

    def _submit(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        self._threads.submit(self._put, blocks, vectors, rows)

    def _put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int]) -> None:
        try:
            self._cache.put({self._key(blocks[row]): vectors[row] for row in rows})
            self.written += len(rows)
        finally:
            self._writes.release()

    def _key(self, block: Sequence[int]) -> bytes:
        tokens = np.asarray(block, dtype="<i4").tobytes()
        return blake2b(tokens, digest_size=KEY_BYTES, key=self._space).digest()
