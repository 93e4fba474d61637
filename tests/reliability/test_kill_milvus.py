"""`kill -9` of a process that writes to Milvus Lite: the next opening repairs what it left.

Now and then a Milvus Lite cannot read its own files after that; the index is built again then.
"""

import inspect
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from index.directory.data_directory import DataDirectory, open_data_directory
from index.vectors.live_index import LiveIndex
from index.vectors.milvus.connection import MilvusConnection, parse_milvus_url
from tests.tools.tiers import Tier

NAMES = [f"d{number}" for number in range(12)]


def operation(number: int) -> tuple[str, str]:
    """What the worker does in its step `number`: put or delete, and which document."""
    choice = random.Random(number)
    return choice.choice(["put", "put", "delete"]), f"d{choice.randrange(12)}"


def worker(about: str) -> str:
    """Return a program that writes for as long as it lives; `about` says where, as a line."""
    return _WORKER.replace("ABOUT", about)


_WORKER = (
    """
import random, sys
from pathlib import Path
import numpy as np
from encoder.blocks import Receipt
from index.directory.data_directory import open_data_directory
from index.document import Document
from index.postgres.address import Database, parse_postgresql_url
from index.store.records import EncodedDocument
from index.vectors.milvus.connection import parse_milvus_url

"""
    + inspect.getsource(operation)
    + """
about = {"fingerprint": "a" * 64, "dimension": 16, ABOUT}
directory = open_data_directory(Path(sys.argv[1]), **about)
for number in range(int(sys.argv[2]), 10**9):
    kind, name = operation(number)
    if kind == "put":
        vector = np.random.default_rng(number).normal(size=16).astype(np.float32)
        vector /= np.linalg.norm(vector)
        document = Document(name, f"text {number} " * 200)
        change = directory.store.put([EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1))])
    else:
        change = directory.store.delete([name])
    print(number, flush=True)
    directory.index.apply(change)
    if number % 5 == 0:
        directory.index.publish()
        directory.store.lexical.publish()
    if number % 17 == 0:
        directory.index.rebuild()
"""
)


WORKER_OF_MILVUS = worker('"milvus": parse_milvus_url(sys.argv[3], words=True)')


def state_after(steps: int) -> dict[str, str]:
    """The text of each document after the first `steps` operations."""
    texts: dict[str, str] = {}
    for number in range(steps):
        kind, name = operation(number)
        texts.pop(name, None)
        if kind == "put":
            texts[name] = f"text {number} " * 200
    return texts


def run_and_kill(path: Path, first: int, url: str, chance: random.Random) -> int:
    """Let a worker go on from step `first`, kill it, return the last step it acknowledged."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER_OF_MILVUS, str(path), str(first), url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    with worker.stdout as output:
        lines = [output.readline() for _ in range(chance.randrange(1, 30))]
        time.sleep(chance.uniform(0, 0.05))
        worker.kill()
        lines += output.readlines()  # acknowledged before the kill, not read yet
    assert worker.wait() == -signal.SIGKILL
    return int(lines[-1])


def words_found(directory: DataDirectory) -> dict[str, str]:
    """The number that each document is found by, among those that any operation wrote."""
    words, found = directory.store.lexical, {}
    stored = directory.store.find(NAMES)
    ids = directory.store.get(directory.store.changes_since(0).added.tolist())
    assert {one.id for one in ids.values()} == set(stored)
    for one in stored.values():
        number = one.document.text.split()[1]
        query = words.read(f"text {number}")
        hits = words.search(query, 100).vector_ids.tolist()
        found |= {ids[hit].id: number for hit in hits[:1]}
    return found


@pytest.fixture
def kills(tier: Tier) -> int:
    return 30 if tier.sweep else 3


def test_nothing_acknowledged_is_lost_and_nothing_deleted_returns(
    tmp_path: Path,
    kills: int,
    tier: Tier,
    assert_equals_store: Callable[[LiveIndex, object], None],
) -> None:
    path, url = tmp_path / "data", f"milvus://{tmp_path}/lite.db"
    milvus = parse_milvus_url(url, words=True)

    def opened() -> closing[DataDirectory]:
        about = {"fingerprint": "a" * 64, "dimension": 16}
        return closing(open_data_directory(path, **about, milvus=milvus))

    steps = 0
    chance = random.Random(tier.seed)
    for _ in range(kills):
        last = run_and_kill(path, steps, url, chance)
        with opened() as directory:
            found = {name: one.document.text for name, one in directory.store.find(NAMES).items()}
            assert_equals_store(directory.index, directory.store)
            assert words_found(directory) == {name: text.split()[1] for name, text in found.items()}
            with closing(MilvusConnection(milvus)) as connection:
                assert len(connection.call("list_collections")) == 2  # of vectors and of words
        # The step after the last acknowledged one was committed or it was not.
        assert found in (state_after(last + 1), state_after(last + 2))
        steps = last + 1 if found == state_after(last + 1) else last + 2
    assert steps > kills
