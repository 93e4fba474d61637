"""A real server that holds documents, and a proxy before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from longmatch import Client, Document

from tests.kit.fault_proxy import FaultProxy, fault_proxy
from tests.kit.process_fixtures import Server, serving

TEXTS = {
    "ants": "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home.",
    "bees": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "bees/2": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "a/b c/ü?#%": "Rivers carve valleys over thousands of years. Ice does the same, but faster.",
    "..": "The tribunal held that the assessment was void. The appeal was allowed with costs.",
}
DOCUMENTS = [
    Document(name, text, f"About {name}", {"letters": len(name)}) for name, text in TEXTS.items()
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Server]:
    """Return a server that holds DOCUMENTS; leave nothing else in it."""
    folder = tmp_path_factory.mktemp("client")
    with serving(folder, folder / "data", tiny_checkpoint, threads=1) as running:
        with Client(running.url) as client:
            client.index(DOCUMENTS)
        yield running


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.url) as running:
        yield running
