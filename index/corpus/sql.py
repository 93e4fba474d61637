"""The rows of a query to a database, SQLite or PostgreSQL: a document a row.

Nothing is written: SQLite is opened read-only, and PostgreSQL reads in a read-only transaction.
"""

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from index.corpus.records import check_columns
from index.errors import CorpusError
from index.optional_dependencies import require_extra

_SQLITE = "sqlite"
_POSTGRESQL = ("postgresql", "postgres")
SQL_SCHEMES = (_SQLITE, *_POSTGRESQL)
_PASSWORD = re.compile(r"(?<=://)([^/@:?]*):[^/@]*@|(?<=[?&]password=)[^&]*")
_ROWS = 64  # that are fetched at a time; texts are long

Rows = tuple[Sequence[str], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query to a database.

    Attributes:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, or one of PostgreSQL
            (`postgresql://user@host/database`).
        query: SQL that selects `id` and `text`, and may select `title`, `metadata` and others.
    """

    url: str
    query: str

    def __str__(self) -> str:
        """Return the address without its password."""
        return without_password(self.url)

    @property
    def scheme(self) -> str:
        """What is before `://`, in small letters."""
        return self.url.partition("://")[0].lower()


def check_query(corpus: SqlQuery) -> None:
    """Check that a database is of a known kind and, of a file, that it is there.

    Raises:
        CorpusError: it is not.
    """
    if corpus.scheme == _SQLITE:
        _sqlite_path(corpus)
    elif corpus.scheme in _POSTGRESQL:
        require_extra("postgresql", "PostgreSQL", "psycopg")
    else:
        known = ", ".join(f"{name}://" for name in (_SQLITE, _POSTGRESQL[0]))
        raise CorpusError(f"{corpus}: is not an address of a known kind ({known})")


def read_query(corpus: SqlQuery) -> Iterator[dict[str, Any]]:
    """Yield the values of each row.

    Raises:
        CorpusError: the database cannot be read, the query is wrong or lacks a column, or reading
            fails halfway; names the database.
    """
    with _rows(corpus, corpus.query) as (names, rows):
        check_columns(names, f"{corpus}: the query ")
        for row in rows:
            yield dict(zip(names, row, strict=True))


def count_query(corpus: SqlQuery) -> int:
    """Return the number of rows, which runs the query once more."""
    query = corpus.query.strip().rstrip(";")
    # The line breaks end a comment at the end of the query, which is the user's own.
    counting = f"SELECT count(*) FROM (\n{query}\n) AS counted"  # noqa: S608
    with _rows(corpus, counting) as (_, rows):
        count: int = next(rows)[0]
        return count


def _rows(corpus: SqlQuery, query: str) -> AbstractContextManager[Rows]:
    """Run a query; gives the names of its columns, and its rows as they are fetched."""
    return (_sqlite_rows if corpus.scheme == _SQLITE else _postgresql_rows)(corpus, query)


@contextmanager
def _sqlite_rows(corpus: SqlQuery, query: str) -> Iterator[Rows]:
    uri = f"{_sqlite_path(corpus).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = _text_or_bytes
            cursor = connection.execute(query)
            if cursor.description is None:
                raise CorpusError(f"{corpus}: the query selects nothing")
            yield [column[0] for column in cursor.description], cursor
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise CorpusError(f"{corpus}: {error}") from error


@contextmanager
def _postgresql_rows(corpus: SqlQuery, query: str) -> Iterator[Rows]:
    import psycopg
    from psycopg.types.json import set_json_loads

    try:
        with psycopg.connect(corpus.url) as connection:
            connection.read_only = True
            set_json_loads(_json_or_error, connection)
            # A cursor of the server: the rows stay there until they are fetched.
            with connection.cursor(name="longmatch") as cursor:
                cursor.itersize = _ROWS
                cursor.execute(query.encode())
                yield [column.name for column in cursor.description or ()], iter(cursor)
    except psycopg.Error as error:
        # It may quote the address; what it was raised from would, too.
        reason = without_password(" ".join(str(error).split()))
        raise CorpusError(f"{corpus}: {reason}") from None


def without_password(text: str) -> str:
    """Return a text with its addresses, without their passwords."""
    return _PASSWORD.sub(lambda found: "…" if found[1] is None else f"{found[1]}@", text)


def _sqlite_path(corpus: SqlQuery) -> Path:
    _, slashes, name = corpus.url.partition(":///")
    path = Path(unquote(name))
    if not slashes or not path.name:
        raise CorpusError(f"{corpus}: is not sqlite:///FILE, with three slashes before the file")
    if not path.is_file():
        raise CorpusError(f"{corpus}: there is no such file")
    return path


def _json_or_error(data: str | bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        return error  # refused with its row and column


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data  # refused with its row and column
