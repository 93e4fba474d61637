"""`kill -9` of a process that writes to a PostgreSQL, and of the PostgreSQL, at random moments.

What was acknowledged is there afterwards, and what was deleted is not: in the database, in the copy
of the process that was killed, and in that of another process, which lives through it all.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from index.directory.data_directory import DataDirectory, open_data_directory
from index.errors import DatabaseUnavailableError
from index.postgres.address import Database, parse_postgresql_url
from index.vectors.live_index import LiveIndex
from tests.reliability.test_kill_milvus import NAMES, state_after, worker
from tests.tools.postgresql import PostgreSQLServer, run_postgresql
from tests.tools.tiers import Tier

SPACE = {"fingerprint": "a" * 64, "dimension": 16}
WORKER = worker('"database": Database(parse_postgresql_url(sys.argv[3]))')


@pytest.fixture
def database() -> Iterator[PostgreSQLServer]:
    with run_postgresql() as server:
        yield server


def run_and_kill(path: Path, first: int, server: PostgreSQLServer, chance: random.Random) -> int:
    """Let a worker go on from step `first`; kill it, the database or both at a random moment.

    Returns:
        The last step that it acknowledged.
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(first), server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    with writer.stdout as output:
        lines = [output.readline() for _ in range(chance.randrange(1, 30))]
        time.sleep(chance.uniform(0, 0.05))
        kill_database = chance.random() < 0.5
        if kill_database:
            server.kill()
        else:
            writer.send_signal(signal.SIGKILL)
        lines += output.readlines()  # acknowledged before the kill, not read yet
    assert writer.stderr is not None
    with writer.stderr as errors:
        said = errors.read()
    assert writer.wait() == (1 if kill_database else -signal.SIGKILL), said
    if kill_database:
        assert DatabaseUnavailableError.__name__ in said.splitlines()[-1]
        server.start()
    return int([line for line in lines if line][-1])


@pytest.fixture
def kills(tier: Tier) -> int:
    return 30 if tier.sweep else 2


def test_nothing_acknowledged_is_lost_and_nothing_deleted_returns(
    tmp_path: Path,
    kills: int,
    tier: Tier,
    database: PostgreSQLServer,
    assert_equals_store: Callable[[LiveIndex, object], None],
) -> None:
    address = Database(parse_postgresql_url(database.url))

    def opened(name: str) -> closing[DataDirectory]:
        return closing(
            open_data_directory(tmp_path / name, **SPACE, database=address, in_background=True)
        )

    steps = 0
    chance = random.Random(tier.seed)
    with opened("other") as other:
        for _ in range(kills):
            last = run_and_kill(tmp_path / "data", steps, database, chance)
            asked = other.ask_database()
            assert asked is not None
            asked.result()
            with opened("data") as directory:
                for one in (directory, other):
                    found = {n: d.document.text for n, d in one.store.find(NAMES).items()}
                    # The step after the last acknowledged one was committed or it was not.
                    assert found in (state_after(last + 1), state_after(last + 2))
                    assert_equals_store(one.index, one.store)
                assert directory.store.sequence == other.store.sequence
            steps = last + 1 if found == state_after(last + 1) else last + 2
    assert steps > kills
