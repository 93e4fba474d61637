"""Several processes write to one store at once, and one follows its changes."""

import json
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from index.postgres.address import parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from tests.reliability.numbered_documents import DIMENSION, FINGERPRINT, entry_of
from tests.tools.postgresql import PostgreSQLServer
from tests.tools.tiers import Tier

ROOT = Path(__file__).parents[3]
SHARED = [f"d{n}" for n in range(12)]


def open_shared(url: str, schema: str) -> PostgreSQLDocumentStore:
    return PostgreSQLDocumentStore(
        parse_postgresql_url(url, schema), fingerprint=FINGERPRINT, dimension=DIMENSION
    )


def write(url: str, schema: str, writer: int, changes: int) -> None:
    """Put and delete documents that other processes put and delete, too; print what was done."""
    chance = random.Random(writer)
    with closing(open_shared(url, schema)) as store:
        for number in range(changes):
            names = chance.sample(SHARED, 3)
            version = writer * 1_000_000 + number
            if chance.random() < 0.7:
                change = store.put([entry_of(name, version) for name in names])
            else:
                change = store.delete(names)
            done = (change.sequence, change.added.tolist(), change.removed.tolist())
            sys.stdout.write(f"{json.dumps(done)}\n")


@pytest.mark.parametrize("writers", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_no_update_is_lost_and_the_feed_ends_equal_to_the_store(
    postgresql_server: PostgreSQLServer, tier: Tier, writers: int
) -> None:
    schema = f"w{uuid4().hex}"
    changes = 400 if tier.sweep else 60
    command = [sys.executable, "-m", "tests.index.postgres.test_many_writers"]
    arguments = [postgresql_server.url, schema]
    running = [
        subprocess.Popen(
            [*command, "write", *arguments, str(writer), str(changes)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for writer in range(1, writers + 1)  # they also make the store at the same time
    ]
    with closing(open_shared(postgresql_server.url, schema)) as store:
        sequence, held = 0, set[int]()
        while any(one.poll() is None for one in running) or sequence < store.sequence:
            change = store.changes_since(sequence)
            held = (held - set(change.removed.tolist())) | set(change.added.tolist())
            sequence = change.sequence
        done = [json.loads(line) for one in running for line in one.communicate()[0].splitlines()]
        assert [one.returncode for one in running] == [0] * writers
        assert len(done) == writers * changes
        moved = sorted(one for one in done if one[1] or one[2])
        # Each change of the set has a sequence of its own, without a gap, and vector ids in order.
        assert [one[0] for one in moved] == list(range(1, store.sequence + 1))
        given = [vector_id for _, added, _ in moved for vector_id in added]
        assert given == list(range(1, store.log.last_vector_id + 1))
        alive: set[int] = set()
        for _, added, removed in moved:
            assert set(removed) <= alive  # nothing was removed twice, or before it was there
            alive = (alive - set(removed)) | set(added)
        now = store.changes_since(0)
        assert set(now.added.tolist()) == alive == held
        documents = store.get(now.added.tolist())
        assert len({one.id for one in documents.values()}) == len(store) == len(documents)


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_nothing_half_done_and_no_lock(
    postgresql_server: PostgreSQLServer, tier: Tier
) -> None:
    schema = f"k{uuid4().hex}"
    chance = random.Random(tier.seed)
    command = [sys.executable, "-m", "tests.index.postgres.test_many_writers", "write"]
    with closing(open_shared(postgresql_server.url, schema)) as store:
        for kill in range(20 if tier.sweep else 2):
            writer = subprocess.Popen(
                [*command, postgresql_server.url, schema, str(kill), str(10**6)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            assert writer.stdout is not None
            writer.stdout.readline()  # it writes now
            time.sleep(chance.uniform(0.0, 0.2))
            writer.kill()
            writer.communicate()
            before = store.sequence
            change = store.put([entry_of("mine", kill)])
            assert change.sequence > before
            assert change.added.tolist() == [store.log.last_vector_id]
            present = store.changes_since(0).added.tolist()
            versions = {one.id: one.metadata["version"] for one in store.get(present).values()}
            assert len(versions) == len(present) == len(store)
            for name, version in versions.items():
                assert store.find([name])[name].document == entry_of(name, version).document


if __name__ == "__main__":
    _, _, url, schema, writer, changes = sys.argv
    write(url, schema, int(writer), int(changes))
