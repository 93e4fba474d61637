"""The cache of block vectors in Redis: it outlives the process, and servers share it."""

import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from encoder.arrays import Float32
from service.limits.redis_client import RedisClient

_PREFIX = b"longmatch:block:"
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
        """See `BlockCache`."""
        found: dict[bytes, Float32] = {}
        for start in range(0, len(keys), _CALL_KEYS):
            some = keys[start : start + _CALL_KEYS]
            values = self._redis.call(partial(_read, keys=some))
            if values is None:
                break
            for key, value in zip(some, values, strict=True):
                vector = self._vector(value)
                if vector is not None:
                    found[key] = vector
        return found

    def put(self, vectors: Mapping[bytes, Float32]) -> None:
        """See `BlockCache`."""
        items = list(vectors.items())
        for start in range(0, len(items), _CALL_KEYS):
            some = items[start : start + _CALL_KEYS]
            if self._redis.call(partial(_write, items=some)) is None:
                break

    def _vector(self, value: bytes | None) -> Float32 | None:
        if value is None or len(value) != 4 * self._dimension + _CHECKSUM_BYTES:
            return None
        content, checksum = value[:-_CHECKSUM_BYTES], value[-_CHECKSUM_BYTES:]
        if _checksum(content) != checksum:
            return None
        vector = np.frombuffer(content, dtype="<f4").astype(np.float32)
        return vector if bool(np.all(np.abs(vector) <= _LARGEST)) else None  # None for NaN, too


def _read(client: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    values: list[bytes | None] = client.mget([_PREFIX + key for key in keys])
    return values


def _write(client: Any, items: Sequence[tuple[bytes, Float32]]) -> bool:
    pipeline = client.pipeline(transaction=False)
    for key, vector in items:
        content = vector.astype("<f4").tobytes()
        pipeline.set(_PREFIX + key, content + _checksum(content), ex=_LIFE_SECONDS)
    pipeline.execute()
    return True


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")
