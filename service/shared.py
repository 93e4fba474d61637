"""What servers can share, in Redis, and what each has for itself without one."""

from dataclasses import dataclass

from encoder.onnx_encoder import OnnxEncoder
from service.block_cache import BlockCache, LruBlockCache
from service.block_memory import BlockMemory
from service.metrics import Metrics
from service.rate_limit import LocalRateLimiter, RateLimiter, RedisRateLimiter
from service.redis_cache import RedisBlockCache
from service.redis_link import RedisLink
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Shared:
    """Counters and block vectors, in Redis or in this process.

    Attributes:
        redis: if one was given.
        limiter: if a rate was given.
        memory: of block vectors, if it may take any room.
    """

    redis: RedisLink | None
    limiter: RateLimiter | None
    memory: BlockMemory | None

    def close(self) -> None:
        """End what it began."""
        if self.memory is not None:
            self.memory.close()
        if self.redis is not None:
            self.redis.close()

    @property
    def degraded(self) -> list[str]:
        """Name what does not work; the service does without it."""
        return ["redis"] if self.redis is not None and not self.redis.available else []


def open_shared(settings: Settings, encoder: OnnxEncoder, space: bytes, metrics: Metrics) -> Shared:
    """Open what the settings ask for; a Redis that is not there is waited for in the background.

    Args:
        settings: with or without a Redis, a rate, room for block vectors.
        encoder: whose block vectors are kept.
        space: which other encoders compute the same, by `golden_run`.
        metrics: where to count.

    Raises:
        SettingsError: the address of Redis is none.
    """
    redis = None if settings.redis_url is None else RedisLink(settings.redis_url, metrics)
    metrics.redis_up.set(int(redis is None or redis.available))
    width = encoder.checkpoint.block_dimension
    cache: BlockCache | None = None
    if redis is not None:
        cache = RedisBlockCache(redis, width)
    elif settings.block_cache_bytes:
        cache = LruBlockCache(settings.block_cache_bytes, width)
    memory = None if cache is None else BlockMemory(cache, space, metrics)
    return Shared(redis, _limiter(settings.rate_limit_tokens_per_minute, redis), memory)


def _limiter(tokens_per_minute: int | None, redis: RedisLink | None) -> RateLimiter | None:
    if tokens_per_minute is None:
        return None
    if redis is None:
        return LocalRateLimiter(tokens_per_minute)
    return RedisRateLimiter(redis, tokens_per_minute)
