"""The cache of block vectors."""

from typing import Any

import numpy as np
import pytest

from service.workers.block_cache import KEY_BYTES, LruBlockCache

WIDTH = 8


def key(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")


def vector(number: int) -> Any:
    drawn = np.random.default_rng(number).standard_normal(WIDTH).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


@pytest.fixture
def cache() -> LruBlockCache:
    return LruBlockCache(1_000_000, WIDTH)


def test_what_was_put_is_there_and_nothing_else(cache: LruBlockCache) -> None:
    assert cache.get([]) == cache.get([key(1)]) == {}
    cache.put({key(number): vector(number) for number in range(600)})
    found = cache.get([key(number) for number in range(0, 1200, 3)])
    assert set(found) == {key(number) for number in range(0, 600, 3)}
    for number in range(0, 600, 3):
        assert found[key(number)].tobytes() == vector(number).tobytes()


def test_a_later_vector_replaces_the_earlier(cache: LruBlockCache) -> None:
    cache.put({key(1): vector(1)})
    cache.put({key(1): vector(2)})
    assert cache.get([key(1)])[key(1)].tobytes() == vector(2).tobytes()


def test_what_comes_back_is_the_callers_own(cache: LruBlockCache) -> None:
    mine = vector(1)
    cache.put({key(1): mine})
    mine[:] = 0
    cache.get([key(1)])[key(1)][:] = 0
    assert cache.get([key(1)])[key(1)].tobytes() == vector(1).tobytes()


def test_the_least_recently_used_goes_first_and_the_limit_holds() -> None:
    cache = LruBlockCache(10 * (4 * WIDTH + KEY_BYTES + 250), WIDTH)
    assert cache.capacity == 10
    for number in range(10):
        cache.put({key(number): vector(number)})
    cache.get([key(0)])
    cache.put({key(number): vector(number) for number in range(10, 13)})
    assert len(cache) == 10
    assert set(cache.get([key(number) for number in range(13)])) == {
        key(number) for number in (0, *range(4, 13))
    }
    for number in range(13):
        for found in cache.get([key(number)]).values():
            assert found.tobytes() == vector(number).tobytes()


def test_a_cache_without_room_keeps_nothing() -> None:
    cache = LruBlockCache(0, WIDTH)
    cache.put({key(1): vector(1)})
    assert cache.get([key(1)]) == {}
