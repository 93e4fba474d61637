"""The backup that docs/postgresql.md describes."""

import subprocess
from pathlib import Path
from uuid import uuid4

import numpy as np

from index.postgres.address import parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from tests.reliability.numbered_documents import DIMENSION, FINGERPRINT, entry_of
from tests.tools.postgresql import PostgreSQLServer, program


def test_a_dump_that_is_restored_is_the_same_store(
    postgresql_server: PostgreSQLServer, tmp_path: Path
) -> None:
    name = f"b{uuid4().hex}"
    one, two = (postgresql_server.create_database(f"{name}{n}") for n in range(2))
    dump = tmp_path / "papers.dump"

    def opened(url: str) -> PostgreSQLDocumentStore:
        address = parse_postgresql_url(url)
        return PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=DIMENSION)

    store = opened(one)
    store.put([entry_of(f"d{n}", n) for n in range(20)])
    store.delete(["d3"])
    command = [program("pg_dump"), "--format=custom", "--schema=longmatch", f"--file={dump}", one]
    subprocess.run(command, check=True)
    command = [program("pg_restore"), "--no-owner", f"--dbname={two}", dump]
    subprocess.run(command, check=True)
    restored = opened(two)
    ids = store.changes_since(0).added
    assert restored.changes_since(1).removed.tolist() == store.changes_since(1).removed.tolist()
    assert restored.get(ids.tolist()) == store.get(ids.tolist())
    np.testing.assert_array_equal(restored.vectors(ids)[1], store.vectors(ids)[1])
    assert restored.put([entry_of("new", 1)]).added.tolist() == [21]
    store.close()
    restored.close()
