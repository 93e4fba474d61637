"""The mark of a data directory whose store is a copy of one in PostgreSQL.

Without it, a command that knows nothing of the database would write to the copy alone, and what it
wrote would be lost; and documents of a data directory would be taken for a copy.
"""

import json
from pathlib import Path

from encoder.atomic_files import write_atomically
from index.errors import StoreError
from index.postgres.address import PostgreSQLAddress

COPY_FILE = "postgresql.json"


def check_may_copy(path: Path, store: Path, address: PostgreSQLAddress) -> None:
    """Check that a data directory is that of a copy, or has no documents.

    Args:
        path: the directory, which may be missing.
        store: the file of its store.
        address: of the database.

    Raises:
        StoreError: it has documents of its own.
    """
    if store.exists() and not (path / COPY_FILE).exists():
        raise StoreError(
            f"{path}: has documents of its own, and the documents are in {address}: copy them "
            f"there with `longmatch migrate {path} --to`, and name another data directory"
        )


def mark_copy(path: Path, address: PostgreSQLAddress) -> None:
    """Mark a data directory as that of a copy, before its store is made.

    Args:
        path: the directory, whose lock this process holds.
        address: of the database, now; it may have moved since the last time.

    Raises:
        StoreError: it cannot be written.
    """
    mark = path / COPY_FILE
    content = json.dumps({"url": address.shown, "schema": address.schema}) + "\n"
    try:
        if not mark.exists() or mark.read_text(encoding="utf-8") != content:
            write_atomically(mark, content)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error


def check_is_no_copy(path: Path) -> None:
    """Check that a data directory has documents of its own.

    Raises:
        StoreError: it is the copy of a database.
    """
    if (path / COPY_FILE).exists():
        raise StoreError(
            f"{path}: holds a copy of a PostgreSQL, as {COPY_FILE} says: set LONGMATCH_STORE to "
            "its address, or name another data directory"
        )
