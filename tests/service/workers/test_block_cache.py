"""The cache of block vectors."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from encoder.arrays import Float32
from service.metrics import Metrics
from service.workers.queue import EncodeTask
from service.workers.scheduler import KEY_BYTES, EncodeCache
from tests.kit.service_fixtures import document_of

WIDTH = 8
Make = Callable[[int], EncodeCache]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a maker of caches for so many vectors."""
    made: list[EncodeCache] = []

    def make(capacity: int) -> EncodeCache:
        made.append(EncodeCache(capacity * (4 * WIDTH + KEY_BYTES + 250), WIDTH, Metrics()))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


def vector(number: int) -> Float32:
    return np.random.default_rng(number).standard_normal(WIDTH).astype(np.float32)


def put(cache: EncodeCache, numbers: Sequence[int], seed: int = 0, owner: str = "mine") -> None:
    task = EncodeTask(document_of(*([number] for number in numbers)), WIDTH)
    task.vectors[:] = [vector(number + seed) for number in numbers]
    cache.put(task, owner)


def found(
    cache: EncodeCache, numbers: Sequence[int], seed: int = 0, owner: str = "mine"
) -> set[int]:
    """Return which numbers are there, each with the bits that were put."""
    task = EncodeTask(document_of(*([number] for number in numbers)), WIDTH)
    asyncio.run(cache.fill([task], owner))
    known = {row: number for row, number in enumerate(numbers) if row not in task.rows}
    for row, number in known.items():
        assert task.vectors[row].tobytes() == vector(number + seed).tobytes()
    return set(known.values())


def test_what_was_put_is_there_and_nothing_else(make: Make) -> None:
    cache = make(1_000)
    assert found(cache, []) == found(cache, [1]) == set()
    put(cache, range(600))
    assert found(cache, range(0, 1200, 3)) == set(range(0, 600, 3))
    assert found(cache, range(600), owner="theirs") == set()
    put(cache, [1], seed=1)
    assert found(cache, [1], seed=1) == {1}


def test_the_least_recently_used_goes_first_and_the_limit_holds(make: Make) -> None:
    cache = make(10)
    assert cache.capacity == 10
    put(cache, range(10))
    assert found(cache, [0]) == {0}
    put(cache, range(10, 13))
    assert found(cache, range(13)) == {0, *range(4, 13)}


def test_a_cache_without_room_keeps_nothing(make: Make) -> None:
    cache = make(0)
    put(cache, [1])
    assert found(cache, [1]) == set()
