"""A real Milvus for tests: Milvus Lite in this process, or the server of LONGMATCH_TEST_MILVUS."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from index.vectors.milvus.connection import MilvusAddress, parse_milvus_url
from index.vectors.milvus.engine import MilvusEngine, open_milvus

MILVUS_SERVER = os.environ.get("LONGMATCH_TEST_MILVUS")  # its URL, where there is one


@pytest.fixture(scope="session")
def milvus_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a Milvus that all tests of this process share."""
    return MILVUS_SERVER or f"milvus://{tmp_path_factory.mktemp('milvus')}/lite.db"


@pytest.fixture(scope="session")
def milvus_address(milvus_url: str) -> Iterator[MilvusAddress]:
    """Its address. It is kept open: opening it for each test takes half a second."""
    address = parse_milvus_url(milvus_url)
    holder = open_milvus(address, Path("nowhere"), read_only=True)
    yield address
    holder.close()


@pytest.fixture
def milvus_engine(milvus_address: MilvusAddress, tmp_path: Path) -> Iterator[MilvusEngine]:
    """What keeps the vectors of one data directory, dropped after the test."""
    engine = open_milvus(milvus_address, tmp_path, read_only=False)
    yield engine
    engine.drop_others([])
    engine.close()


OpenMilvus = Callable[[Path], MilvusEngine]
