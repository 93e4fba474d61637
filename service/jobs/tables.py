"""What the tables of jobs ask of a database, SQLite's or a PostgreSQL that servers share."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from index.errors import StorageError


class Rows(Protocol):
    """What a statement found or changed."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None at the end."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ...


class Connection(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Run a statement with values in the place of each `?`."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each of these rows of values."""
        ...


class Tables(Protocol):
    """A database. Safe to use from many threads; each error is a `StoreError`."""

    @property
    def lost(self) -> StorageError | None:
        """Why every write is refused; None if none is."""
        ...

    @property
    def failure(self) -> StorageError | None:
        """The failure that the last write met, as long as it lasts."""
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection inside a transaction that reads."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend a connection inside a transaction that writes, as a whole or not at all."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
