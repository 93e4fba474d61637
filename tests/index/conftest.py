import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from index.corpus.demo import write_stdlib_corpus


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where an index publishes its snapshot; not made yet."""
    return tmp_path / "vectors.faiss"


@pytest.fixture(scope="session")
def stdlib_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the documentation of the standard library; do not change it."""
    path = tmp_path_factory.mktemp("stdlib") / "made" / "stdlib.jsonl"
    count = write_stdlib_corpus(path)
    assert len(path.read_text(encoding="utf-8").splitlines()) == count
    return path


def sql(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement in the database of a file, commit, and return its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()
