"""What the store needs of its database: SQLite or PostgreSQL, which take the same statements."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from index.errors import StorageError


class Connection(Protocol):
    """A connection inside a transaction, as one of `sqlite3` is used; returns its cursors."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Execute one statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Execute a statement for each of many values."""


class Connections(Protocol):
    """The connections of a database. Safe to use from many threads; all errors are StoreError.

    Attributes:
        name: of the database, for messages.
        shared: whether other servers may write to it.
    """

    name: str
    shared: bool

    @property
    def failure(self) -> StorageError | None:
        """What kept the last transaction from being written; None if nothing did."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection inside a read transaction: all statements see one state."""

    def read_rows(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend a connection inside the only write transaction: committed and durable, or undone."""

    def alone(self, task: str) -> AbstractContextManager[Callable[[], None]]:
        """Wait until no other server does a task, and let none begin it until the end.

        What it lends is to be called in between: a server that is silent for long loses the task,
        and the call raises StoreError.
        """

    def close(self) -> None:
        """Close every connection; a borrowed one is closed when it is returned."""
