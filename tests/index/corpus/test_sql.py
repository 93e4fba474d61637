"""Queries to databases: the same on SQLite and on PostgreSQL, both real."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from index.corpus.reader import count_documents, read_corpus
from index.corpus.sql import SqlQuery
from index.document import Document
from index.errors import CorpusError
from tests.kit.corpora import documents, ids, refusals
from tests.kit.postgresql import run_postgresql

ALL = "SELECT * FROM papers ORDER BY id"


@dataclass(frozen=True)
class Database:
    """An empty database: its address, and a function that runs statements in it."""

    url: str
    run: Callable[[str, Sequence[Any]], object]

    def fill(self, columns: str, *rows: Sequence[Any]) -> None:
        """Make the table `papers`."""
        self.run(f"CREATE TABLE papers ({columns})", ())
        mark = "?" if self.url.startswith("sqlite") else "%s"
        for row in rows:
            self.run(f"INSERT INTO papers VALUES ({', '.join(mark for _ in row)})", row)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with run_postgresql() as server:
        yield server.url


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    path = tmp_path / "my papers.db"

    def run(statement: str, values: Sequence[Any]) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement, values)

    run("PRAGMA user_version = 1", ())
    return Database(f"sqlite:///{path}".replace(" ", "%20"), run)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Database:
    if request.param == "sqlite":
        made: Database = request.getfixturevalue("sqlite")
        return made
    url: str = request.getfixturevalue("postgresql")

    def run(statement: str, values: Sequence[Any]) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(statement.encode(), values)

    run("DROP TABLE IF EXISTS papers", ())
    return Database(url, run)


def test_rows_are_documents_as_lines_of_json_are(database: Database) -> None:
    database.fill(
        "id TEXT, title TEXT, text TEXT, url TEXT, metadata TEXT, year INTEGER, score FLOAT",
        ("a", "First", "One. Größe 漢字 😀", "https://x.org/a", '{"tags": ["x"]}', 2020, 0.5),
        ("b", None, "Two.", None, None, None, None),
    )
    corpus = SqlQuery(database.url, f"{ALL};")
    metadata = {"url": "https://x.org/a", "tags": ["x"], "year": 2020, "score": 0.5}
    assert documents(corpus) == [
        Document(id="a", title="First", text="One. Größe 漢字 😀", metadata=metadata),
        Document(id="b", text="Two."),
    ]
    assert count_documents(corpus) == 2


def test_a_bad_row_is_named_with_its_column_and_the_rest_is_read(database: Database) -> None:
    binary = "BLOB" if database.url.startswith("sqlite") else "BYTEA"
    database.fill(
        f"id INTEGER, text TEXT, picture {binary}, metadata TEXT",
        (1, "One.", None, "{}"),
        (2, "Two.", b"\xff", "{}"),
        (3, " ", None, "{}"),
        (4, None, None, "{}"),
        (5, "Five.", None, "{not JSON"),
        (6, "Six.", None, "{}"),
    )
    corpus = SqlQuery(database.url, ALL)
    assert [document.id for document in documents(corpus)] == ["1", "6"]
    found = refusals(corpus)
    assert [where.rpartition(": ")[2] for where in found] == [f"row {n}" for n in range(2, 6)]
    assert list(found.values())[:3] == [
        "picture: is not JSON: it is binary, or text that is not UTF-8",
        "text: is empty",
        "text: is missing",
    ]
    assert list(found.values())[3].startswith("metadata: is not JSON: ")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        *(("SELECT nothing FROM papers", "nothing"), ("SELEC", "syntax error")),
        ("SELECT id FROM papers", r"the query has no column text \(it has id\)"),
        ("SELECT text FROM papers", r"the query has no column id \(it has text\)"),
        ("SELECT id, id, text FROM papers", "the query has two columns id"),
        *(("SELECT id, text FROM papers; DROP TABLE papers", "."), ("DELETE FROM papers", ".")),
        ("", "."),
    ],
)
def test_a_query_without_documents_is_refused(database: Database, query: str, message: str) -> None:
    database.fill("id TEXT, text TEXT", ("a", "One."))
    with pytest.raises(CorpusError, match=f"^{re.escape(database.url)}: .*{message}"):
        list(read_corpus(SqlQuery(database.url, query)))
    assert ids(SqlQuery(database.url, ALL)) == ["a"]  # nothing was deleted


def test_a_query_may_end_with_a_comment(database: Database) -> None:
    database.fill("id TEXT, text TEXT", ("a", "One."))
    corpus = SqlQuery(database.url, "SELECT id, text FROM papers -- all of them")
    assert ids(corpus) == ["a"]
    assert count_documents(corpus) == 1


def test_text_that_is_not_utf_8_is_refused_with_its_row(sqlite: Database) -> None:
    sqlite.fill("id TEXT, text TEXT", ("a", "One."), ("c", "Three."))
    sqlite.run("INSERT INTO papers VALUES ('b', CAST(X'FF' AS TEXT))", ())
    [(where, reason)] = refusals(SqlQuery(sqlite.url, ALL)).items()
    assert where.endswith(": row 2")
    assert reason == "text: is not JSON: it is binary, or text that is not UTF-8"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database" * 99)
    with pytest.raises(CorpusError, match=r"x\.db: file is not a database"):
        list(read_corpus(SqlQuery(f"sqlite:///{tmp_path}/x.db", ALL)))


def test_values_of_postgresql(postgresql: str) -> None:
    query = """SELECT 1 AS id, 'One.' AS text, '{"a": {"b": [1]}}'::jsonb AS metadata,
        DATE '2020-01-02' AS day, 1.50::numeric AS price, ARRAY['x', 'y'] AS tags, true AS public,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS key"""
    [document] = documents(SqlQuery(postgresql, query))
    assert document.metadata == {
        **{"a": {"b": [1]}, "day": "2020-01-02", "price": 1.5, "tags": ["x", "y"]},
        **{"public": True, "key": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
    }
    infinite = SqlQuery(postgresql, "SELECT 1 AS id, 'x' AS text, 'NaN'::float AS score")
    [reason] = refusals(infinite).values()
    assert reason.startswith("score: is not JSON: Out of range float")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("1e5000::numeric AS n", "n: is not JSON: it is Decimal("),
        (
            "(repeat('[', 5000) || repeat(']', 5000))::json AS n",
            "n: is not JSON: maximum recursion",
        ),
        ("(repeat('[', 900) || repeat(']', 900))::json AS n", "metadata: is nested "),
        ("repeat('9', 6000)::json AS n", "n: is not JSON: "),
    ],
)
def test_values_without_end_are_refused_with_their_column(
    postgresql: str, column: str, reason: str
) -> None:
    rows = SqlQuery(postgresql, f"SELECT 1 AS id, 'x' AS text, {column}")
    assert next(iter(refusals(rows).values())).startswith(reason)


def test_a_large_table_of_postgresql_stays_on_the_server(postgresql: str) -> None:
    # A terabyte of rows, which the server makes when they are fetched.
    endless = "SELECT generate_series(1, 1000000000000) AS id, 'Text.' AS text"
    corpus = read_corpus(SqlQuery(postgresql, endless))
    assert [item.id for item, _ in zip(corpus, range(500), strict=False)] == [
        str(number) for number in range(1, 501)
    ]


def test_a_connection_that_is_lost_ends_with_an_error(postgresql: str) -> None:
    rows = "SELECT generate_series(1, 10000) AS id, 'Text.' AS text"
    corpus = read_corpus(SqlQuery(postgresql, rows))
    next(corpus)
    with psycopg.connect(postgresql) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
    with pytest.raises(CorpusError, match=r"terminat|closed"):
        list(corpus)


def test_no_password_in_the_error_of_a_dead_server() -> None:
    corpus = SqlQuery("postgresql://me:secret@127.0.0.1:1/papers?password=secret", ALL)
    with pytest.raises(CorpusError, match="refused") as caught:
        list(read_corpus(corpus))
    assert str(caught.value).startswith("postgresql://me@127.0.0.1:1/papers?password=…: ")
    assert "secret" not in str(caught.value)


def test_no_password_in_the_error_of_a_bad_address() -> None:
    with pytest.raises(CorpusError, match="IPv6") as caught:
        list(read_corpus(SqlQuery("postgresql://me:secret@[bad/papers", ALL)))
    assert "secret" not in str(caught.value)
    for url in ("sqlite://[bad", "sqlite:x.db", "sqlite:///"):
        with pytest.raises(CorpusError, match=r"three slashes|known kind"):
            read_corpus(SqlQuery(url, ALL))
