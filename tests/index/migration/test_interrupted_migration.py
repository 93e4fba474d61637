"""A migration that was interrupted goes on, copies nothing twice, and ends with equal copies."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest

from index.errors import DatabaseUnavailableError, StoreError
from index.migration.migrate import MIGRATING, CopyDiffersError, migrate_from, migrate_to
from index.postgres.address import PostgreSQLAddress, parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from index.progress import SilentProgress
from tests.index.migration.conftest import SILENT, entry_of, opened, state
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT
from tests.tools.postgresql import PostgreSQLServer, run_postgresql
from tests.tools.tiers import Tier

PROGRAM = """
import sys
from pathlib import Path
from index.migration import migrate
from index.postgres.address import parse_postgresql_url
from index.progress import SilentProgress
_, way, path, url, schema = sys.argv
print("ready", flush=True)
getattr(migrate, way)(Path(path), parse_postgresql_url(url, schema), SilentProgress())
"""


class Interrupting(SilentProgress):
    """Interrupts a migration when so many documents were copied."""

    def __init__(self, after: int) -> None:
        self.steps: list[str] = []
        self.copied: list[int] = []
        self._after = after

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        self.steps.append(step)

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        if self.steps[-1] == "copying":
            self.copied.append(count)
            if sum(self.copied) >= self._after:
                raise KeyboardInterrupt


def test_what_was_copied_is_not_copied_again(
    data: Path, address: PostgreSQLAddress, tmp_path: Path, postgresql_server: PostgreSQLServer
) -> None:
    with pytest.raises(KeyboardInterrupt):
        migrate_to(data, address, Interrupting(200))

    def versions() -> dict[int, str]:
        with psycopg.connect(postgresql_server.url) as connection:
            rows = connection.execute(
                f"SELECT vector_id, xmin::text FROM {address.schema}.documents".encode()
            )
            return dict(rows.fetchall())

    copied = versions()
    assert 200 <= len(copied) < 370
    with pytest.raises(StoreError, match="a migration into this store is unfinished: repeat it"):
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
    with pytest.raises(StoreError, match="a migration into this store is unfinished: repeat it"):
        migrate_from(tmp_path / "new", address, SILENT)
    documents = migrate_to(data, address, SILENT)
    assert copied.items() <= versions().items()
    assert len(versions()) == documents
    assert migrate_to(data, address, SILENT) == documents  # once more: it is only verified

    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    watching = Interrupting(10**6)
    assert migrate_from(tmp_path / "new", address, watching) == documents
    assert watching.copied[0] == 256
    assert sum(watching.copied) == documents
    assert state(tmp_path / "new") == state(data)


@pytest.mark.slow
def test_a_database_that_dies_on_the_way_is_filled_after_its_start(
    data: Path, tmp_path: Path
) -> None:
    class Killing(Interrupting):
        def advanced(self, count: int, *, tokens: int = 0) -> None:
            try:
                super().advanced(count, tokens=tokens)
            except KeyboardInterrupt:
                server.kill()

    with run_postgresql() as server:
        address = parse_postgresql_url(server.url)
        with pytest.raises(DatabaseUnavailableError):
            migrate_to(data, address, Killing(200))
        server.start()
        watching = Interrupting(10**6)
        assert migrate_to(data, address, watching) == 373
        assert watching.copied[0] == 256
        with pytest.raises(DatabaseUnavailableError):
            migrate_from(tmp_path / "new", address, Killing(200))
        server.start()
        migrate_from(tmp_path / "new", address, SILENT)
    assert state(tmp_path / "new") == state(data)


@pytest.mark.slow
def test_a_database_that_dies_while_it_is_verified_costs_no_copying(
    data: Path, tmp_path: Path
) -> None:
    class KillingLater(Interrupting):
        def advanced(self, count: int, *, tokens: int = 0) -> None:
            super().advanced(count, tokens=tokens)
            if self.steps[-1].startswith("verifying"):
                server.kill()

    with run_postgresql() as server:
        address = parse_postgresql_url(server.url)
        migrate_to(data, address, SILENT)
        with pytest.raises(DatabaseUnavailableError):
            migrate_from(tmp_path / "new", address, KillingLater(10**6))
        server.start()
        watching = Interrupting(10**6)
        migrate_from(tmp_path / "new", address, watching)
        assert watching.copied == [373]
    assert state(tmp_path / "new") == state(data)


def test_a_copy_in_a_folder_that_differs_is_made_anew(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    migrate_to(data, address, SILENT)
    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    store = tmp_path / "new" / MIGRATING / "store.sqlite3"
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE vectors SET sequence = 9 WHERE vector_id = 3")
    with pytest.raises(CopyDiffersError, match="one of them was changed"):
        migrate_from(tmp_path / "new", address, SILENT)
    migrate_from(tmp_path / "new", address, SILENT)
    assert state(tmp_path / "new") == state(data)


def test_a_change_between_two_attempts_starts_the_way_back_anew(
    data: Path, address: PostgreSQLAddress, tmp_path: Path
) -> None:
    migrate_to(data, address, SILENT)
    with pytest.raises(KeyboardInterrupt):
        migrate_from(tmp_path / "new", address, Interrupting(200))
    with closing(
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)
    ) as store:
        store.delete(["d1/ü"])
        store.put([entry_of(5), entry_of(1_000)])
    migrate_from(tmp_path / "new", address, SILENT)
    with opened(tmp_path / "new") as directory:
        found = directory.store.find(["d1/ü", "d5/ü", "d1000/ü"])
        assert found.keys() == {"d5/ü", "d1000/ü"}


@pytest.mark.parametrize("table", ["documents SET title = 'x'", "vectors SET sequence = 9"])
def test_a_copy_that_differs_is_not_finished(
    data: Path, address: PostgreSQLAddress, postgresql_server: PostgreSQLServer, table: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        migrate_to(data, address, Interrupting(200))
    with psycopg.connect(postgresql_server.url) as connection:
        connection.execute(
            f"UPDATE {address.schema}.{table} WHERE vector_id = 3; "
            f"DELETE FROM {address.schema}.checksums".encode()
        )
    with pytest.raises(StoreError, match=r"the copy has 373 documents .* begin again"):
        migrate_to(data, address, SILENT)
    with pytest.raises(StoreError, match="unfinished"):
        PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_migration_that_is_killed_goes_on(
    data: Path, address: PostgreSQLAddress, tmp_path: Path, tier: Tier, kills: int
) -> None:
    chance = np.random.default_rng(tier.seed)
    expected = state(data)

    def run(path: Path, way: str, seconds: float | None) -> int:
        command = [sys.executable, "-c", PROGRAM, way, path, address.shown, address.schema]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        process.communicate()
        return process.returncode

    for way, path in (("migrate_to", data), ("migrate_from", tmp_path / "new")):
        for _ in range(kills):
            run(path, way, chance.uniform(0.0, 0.4))
        assert run(path, way, None) == 0
    assert state(tmp_path / "new") == expected
    assert not (tmp_path / "new" / MIGRATING).exists()
