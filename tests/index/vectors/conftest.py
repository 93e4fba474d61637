"""A live index over each engine: what `LiveIndex` promises must not depend on the engine.

FAISS in the default precision only: they differ in indexes of many lists, see test_precision.py.
"""

from collections.abc import Callable
from functools import partial

import pytest

from index.vectors.backends import DEFAULT_PRECISION, EXACT, FAISS_BACKENDS, Backend
from index.vectors.live_index import LiveIndex, open_live_index
from index.vectors.milvus.engine import MilvusEngine

MILVUS = "milvus"
ENGINES = {"faiss-int8": FAISS_BACKENDS[DEFAULT_PRECISION], "exact": EXACT}


@pytest.fixture(params=[*ENGINES, MILVUS])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == MILVUS:
        engine: MilvusEngine = request.getfixturevalue("milvus_engine")
        return engine.backend
    return ENGINES[request.param]


@pytest.fixture
def open_live(backend: Backend) -> Callable[..., LiveIndex]:
    return partial(open_live_index, backend=backend)
