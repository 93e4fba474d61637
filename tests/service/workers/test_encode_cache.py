"""Block vectors are cached: an edited document encodes only what changed, bit for bit."""

from typing import Any

import numpy as np

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
    cache = engine.scheduler.cache
    assert cache is not None
    wait_until(lambda: cache.written >= blocks)


def test_only_changed_blocks_are_encoded_with_the_same_bits(client: Any) -> None:
    engine: Engine = client.app.state.engine
    put(client, "a", " ".join(SENTENCES))
    whole = counted(engine, "longmatch_encoded_blocks_total")
    assert whole >= 50
    wait_until_cached(engine, int(whole))
    put(client, "copy", " ".join(SENTENCES))
    assert counted(engine, "longmatch_encoded_blocks_total") == whole  # not one was computed
    assert stored(engine, "a") == stored(engine, "copy")
    before = counted(engine, "longmatch_block_cache_hits_total")
    put(client, "b", " ".join([*SENTENCES[:30], "Bees dance.", *SENTENCES[31:]]))
    assert 1 <= counted(engine, "longmatch_encoded_blocks_total") - whole <= 5
    assert counted(engine, "longmatch_block_cache_hits_total") - before >= whole - 5


def test_without_a_cache_everything_is_encoded(make_client: Any) -> None:
    client = make_client(block_cache_bytes=0)
    engine: Engine = client.app.state.engine
    assert engine.scheduler.cache is None
    put(client, "a", SENTENCES[0])
    blocks = counted(engine, "longmatch_encoded_blocks_total")
    put(client, "b", SENTENCES[0])
    assert counted(engine, "longmatch_encoded_blocks_total") == 2 * blocks
