import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where an index publishes its snapshot; not made yet."""
    return tmp_path / "vectors.faiss"


def sql(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement in the database of a file, commit, and return its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()
