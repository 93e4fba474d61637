"""Block vectors are cached: an edited document encodes only what changed, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine import Engine
from tests.kit.service_fixtures import counted
from tests.kit.waiting import wait_until

SENTENCES = [f"Ant number {number} carries leaf {number * 7} home." for number in range(60)]


def put(client: Any, document_id: str, text: str) -> Any:
    documents = [{"id": document_id, "text": text}]
    response = client.post("/index", json={"documents": documents})
    assert response.status_code == 200, response.text
    return response.json()


def stored(engine: Engine, document_id: str) -> tuple[bytes, bytes]:
    """Return the bytes of the document vector and of the block vectors."""
    found = engine.default.data.store.find([document_id])[document_id].vector_id
    _, (vector,) = engine.default.data.store.vectors([found])
    blocks = engine.default.data.store.block_vectors([found])[found]
    return vector.tobytes(), np.asarray(blocks.vectors).tobytes()


def wait_until_cached(engine: Engine, blocks: int) -> None:
    """Wait until so many block vectors were cached, which happens after the response."""
    cache = engine.encode_cache
    assert cache is not None
    wait_until(lambda: cache.written >= blocks)


@pytest.fixture(params=["lru", "redis"])
def caching(request: pytest.FixtureRequest, make_client: Any) -> Any:
    if request.param == "lru":
        return make_client()
    return make_client(redis_url=request.getfixturevalue("redis_server").url)


def test_only_changed_blocks_are_encoded_with_the_same_bits(caching: Any) -> None:
    engine: Engine = caching.app.state.engine
    put(caching, "a", " ".join(SENTENCES))
    whole = counted(engine, "longmatch_encoded_blocks_total")
    assert whole >= 50
    wait_until_cached(engine, int(whole))
    put(caching, "copy", " ".join(SENTENCES))
    assert counted(engine, "longmatch_encoded_blocks_total") == whole  # not one was computed
    assert stored(engine, "a") == stored(engine, "copy")
    before = counted(engine, "longmatch_block_cache_hits_total")
    put(caching, "b", " ".join([*SENTENCES[:30], "Bees dance.", *SENTENCES[31:]]))
    assert 1 <= counted(engine, "longmatch_encoded_blocks_total") - whole <= 5
    assert counted(engine, "longmatch_block_cache_hits_total") - before >= whole - 5


def test_without_a_cache_everything_is_encoded(make_client: Any) -> None:
    client = make_client(block_cache_bytes=0)
    engine: Engine = client.app.state.engine
    assert engine.encode_cache is None
    put(client, "a", SENTENCES[0])
    blocks = counted(engine, "longmatch_encoded_blocks_total")
    put(client, "b", SENTENCES[0])
    assert counted(engine, "longmatch_encoded_blocks_total") == 2 * blocks


def test_without_a_free_thread_vectors_are_not_cached(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = client.app.state.engine
    cache = engine.encode_cache
    assert cache is not None

    submit = cache._threads.submit

    def no_thread(call: Any, *arguments: Any) -> Any:
        if call == cache._put:
            raise RuntimeError("can't start new thread")
        return submit(call, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(cache._threads, "submit", no_thread)
        for number in range(40):  # more than may wait: each gives back its slot
            put(client, str(number), f"{number}. {SENTENCES[0]}")
    assert cache.written == 0
    put(client, "last", SENTENCES[1])
    wait_until_cached(engine, 1)


def test_another_precision_has_vectors_of_its_own(
    make_client: Any, redis_server: Any, tmp_path: Path
) -> None:
    for precision in ("fp32", "int8"):
        client = make_client(
            redis_url=redis_server.url, precision=precision, data=tmp_path / precision
        )
        engine: Engine = client.app.state.engine
        put(client, "a", SENTENCES[0])
        assert counted(engine, "longmatch_block_cache_hits_total") == 0
        wait_until_cached(engine, int(counted(engine, "longmatch_encoded_blocks_total")))


def test_a_server_finds_what_another_computed(
    make_client: Any, redis_server: Any, tmp_path: Path
) -> None:
    first, other = (
        make_client(redis_url=redis_server.url, data=tmp_path / name) for name in ("a", "b")
    )
    engine, there = first.app.state.engine, other.app.state.engine
    put(first, "a", " ".join(SENTENCES))
    wait_until_cached(engine, int(counted(engine, "longmatch_encoded_blocks_total")))
    put(other, "a", " ".join(SENTENCES))
    assert counted(there, "longmatch_encoded_blocks_total") == 0
    assert stored(engine, "a") == stored(there, "a")
