"""A live index over each engine: what `LiveIndex` promises must not depend on the engine.

FAISS in the default precision only: they differ in indexes of many lists, see test_precision.py.
"""

from collections.abc import Callable
from functools import partial

import pytest

from index.vectors.backends import DEFAULT_PRECISION, EXACT, FAISS_BACKENDS, Backend
from index.vectors.live_index import LiveIndex, open_live_index


@pytest.fixture(params=[FAISS_BACKENDS[DEFAULT_PRECISION], EXACT], ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.fixture
def open_live(backend: Backend) -> Callable[..., LiveIndex]:
    return partial(open_live_index, backend=backend)
