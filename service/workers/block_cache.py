"""The caches of block vectors by the content of their blocks, and their use before the encoder.

In Redis, vectors outlive the process, and servers share them. A cache may drop any of them at any
time. What it returns has the same bits as what was put. It never fails: a vector that cannot be
read is missing, one that cannot be written is dropped.
"""

import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.encoder import Encoder, WarmRun
from service.metrics import Metrics
from service.redis_client import RedisClient
from service.threads import lower_priority, run_in

KEY_BYTES = 20
_ENTRY_OVERHEAD = 250  # bytes of Python objects for a key and its row number, measured


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


_REDIS_PREFIX = b"longmatch:block:"
_LIFE_SECONDS = 7 * 24 * 3600
_CALL_KEYS = 256  # of one call: Redis serves other clients between calls
_CHECKSUM_BYTES = 4
_LARGEST = 1.001  # component of a vector of unit norm, with the error of float16 graphs


class RedisBlockCache:
    """Keeps block vectors in Redis for a week after they were computed.

    A value is the little-endian vector and its CRC-32. One of another length or checksum counts as
    missing, and so does one that no vector of unit norm can be: others may write to this Redis.
    """

    def __init__(self, redis: RedisClient, dimension: int) -> None:
        self._redis = redis
        self._dimension = dimension

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Float32]:
        """Return the vectors that are there, Float32[H] by key."""
        found: dict[bytes, Float32] = {}
        for start in range(0, len(keys), _CALL_KEYS):
            some = keys[start : start + _CALL_KEYS]
            values = self._redis.call(partial(_read_redis, keys=some))
            if values is None:
                break
            for key, value in zip(some, values, strict=True):
                vector = self._vector(value)
                if vector is not None:
                    found[key] = vector
        return found

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """Store vectors."""
        items = list(vectors.items())
        for start in range(0, len(items), _CALL_KEYS):
            some = items[start : start + _CALL_KEYS]
            if self._redis.call(partial(_write_redis, items=some)) is None:
                break

    def _vector(self, value: bytes | None) -> Float32 | None:
        if value is None or len(value) != 4 * self._dimension + _CHECKSUM_BYTES:
            return None
        content, checksum = value[:-_CHECKSUM_BYTES], value[-_CHECKSUM_BYTES:]
        if _checksum(content) != checksum:
            return None
        vector = np.frombuffer(content, dtype="<f4").astype(np.float32)
        return vector if bool(np.all(np.abs(vector) <= _LARGEST)) else None  # None for NaN, too


def _read_redis(client: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    values: list[bytes | None] = client.mget([_REDIS_PREFIX + key for key in keys])
    return values


def _write_redis(client: Any, items: Sequence[tuple[bytes, Float32]]) -> bool:
    pipeline = client.pipeline(transaction=False)
    for key, vector in items:
        content = vector.astype("<f4").tobytes()
        pipeline.set(_REDIS_PREFIX + key, content + _checksum(content), ex=_LIFE_SECONDS)
    pipeline.execute()
    return True


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


BlockCache = LruBlockCache | RedisBlockCache
Blocks = Sequence[Sequence[int]]

_SPACE_BYTES = 20
_THREADS = 2
_MAX_PENDING_WRITES = 16  # more are dropped: a slow cache must not fill the memory

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorSpaceProbe:
    """One timed run of known blocks.

    Attributes:
        space: a digest that two encoders share only if they compute the same bits. It covers the
            fingerprint of the checkpoint, the precision, and the block vectors as this machine
            computes them: int8 kernels differ between processors.
        tokens_per_second: of one thread.
    """

    space: bytes
    tokens_per_second: float


def probe_vector_space(encoder: Encoder, run: WarmRun) -> VectorSpaceProbe:
    """Return what the first run of an encoder says; where it packs, the run is repeated, packed."""
    vectors, rate = run.vectors, run.tokens_per_second
    if encoder.batch_tokens:  # as requests are
        started = time.perf_counter()
        vectors = encoder.encode_blocks(run.blocks)
        rate = sum(map(len, run.blocks)) / (time.perf_counter() - started)
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
        return await run_in(self._threads, self._get, documents, vectors, owner)

    def put(self, blocks: Blocks, vectors: Float32, rows: Sequence[int], owner: str) -> None:
        """Store the vectors of an owner in the background; never waits, never fails."""
        if not rows or not self._writes.acquire(blocking=False):
            return
        try:
            self._threads.submit(self._put, blocks, vectors, rows, owner)
        except Exception as error:  # no thread can be started, or it closes: the answer is there
            self._writes.release()
            _LOG.warning("block vectors were not cached: %s", type(error).__name__)

    def close(self) -> None:
        """Finish what is running and drop what is waiting."""
        self._threads.shutdown(cancel_futures=True)

    def _get(
        self, documents: Sequence[Blocks], vectors: Sequence[Float32], owner: str
    ) -> list[frozenset[int]]:
        keys = [self._keys(blocks, owner) for blocks in documents]
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
        try:
            keys = self._keys([blocks[row] for row in rows], owner)
            self._cache.put({key: vectors[row] for key, row in zip(keys, rows, strict=True)})
            self.written += len(rows)
        finally:
            self._writes.release()

    def _keys(self, blocks: Blocks, owner: str) -> list[bytes]:
        space = blake2b(owner.encode(), digest_size=_SPACE_BYTES, key=self._space).digest()
        tokens = (np.asarray(block, dtype="<i4").tobytes() for block in blocks)
        return [blake2b(part, digest_size=KEY_BYTES, key=space).digest() for part in tokens]
