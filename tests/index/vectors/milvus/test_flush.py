"""Searches beside a flush."""

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError
from typing import Any

import numpy as np
import pytest

from index.vectors.milvus.engine import MilvusEngine
from index.vectors.milvus.milvus_index import MilvusIndex
from index.vectors.vector_index import SearchResult
from tests.tools.index_fixtures import unit_vectors


def test_a_milvus_lite_is_not_searched_while_it_flushes(
    milvus_engine: MilvusEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vectors are neither in its memory nor in its files for a moment; a server has no such."""
    vectors = unit_vectors(20, seed=1)
    index = milvus_engine.backend.train(vectors[:0], 1)
    assert isinstance(index, MilvusIndex)
    index.change(np.arange(20), vectors)
    call = milvus_engine.connection.call
    waited: list[bool] = []
    searches: list[Future[SearchResult]] = []

    def flush_beside_a_search(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "flush":
            searches.append(threads.submit(index.search, vectors, 1))
            try:
                searches[0].result(timeout=0.3)
            except NotDoneError:
                waited.append(True)
        return call(name, *arguments, **named)

    monkeypatch.setattr(milvus_engine.connection, "call", flush_beside_a_search)
    with ThreadPoolExecutor(1) as threads:
        index.flush()
    assert searches[0].result().ids[:, 0].tolist() == list(range(20))
    assert bool(waited) == milvus_engine.connection.is_lite
