"""What is said when a PostgreSQL cannot be used, and what is left then."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import numpy as np
import psycopg
import pytest

from index.errors import (
    DamagedDocumentError,
    DatabaseUnavailableError,
    StorageFullError,
    StoreError,
)
from index.postgres import connections
from index.postgres.address import parse_postgresql_url
from index.postgres.connections import (
    LOCK_SECONDS,
    PAUSE_SECONDS,
    check_version,
    translated,
)
from index.postgres.document_store import PostgreSQLDocumentStore
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument
from tests.tools.postgresql import PostgreSQLServer, run_postgresql

MakeEntry = Callable[..., EncodedDocument]
FINGERPRINT = "a" * 64


def open_at(url: str, schema: str = "longmatch", **options: bool) -> PostgreSQLDocumentStore:
    address = parse_postgresql_url(url, schema)
    return PostgreSQLDocumentStore(address, fingerprint=FINGERPRINT, dimension=16, **options)


@pytest.fixture
def database(postgresql_server: PostgreSQLServer) -> str:
    """The address of a new database."""
    return postgresql_server.create_database(f"d{uuid4().hex}")


@pytest.fixture
def store(database: str) -> Iterator[PostgreSQLDocumentStore]:
    with closing(open_at(database)) as opened:
        yield opened


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for one in statements:
            connection.execute(one.encode())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5433/db", "postgresql://me@host:5433/db (schema longmatch)"),
        ("postgres://host/db?password=secret", "postgresql://host/db (schema longmatch)"),
        ("postgresql://u@/d?host=/run/x", "postgresql://u@/d?host=/run/x (schema longmatch)"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = parse_postgresql_url(url)
    assert str(address) == shown
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "host=db password=secret", "postgresql://a:secret@[h/d"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=r"is not postgresql://USER@HOST/DATABASE$") as caught:
        parse_postgresql_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("schema", ["", "Big", "a-b", 'a"b', "pg_x", "1a", "a" * 64])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(StoreError, match="is no name for a schema"):
        parse_postgresql_url("postgresql://host/db", schema)


def test_one_that_is_down_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseUnavailableError) as caught:
        open_at("postgresql://me:secret@127.0.0.1:1/papers")
    assert str(caught.value).startswith(
        "postgresql://me@127.0.0.1:1/papers (schema longmatch): the database cannot be used: "
    )
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None  # which would quote the address


def test_an_old_server_is_refused() -> None:
    address = parse_postgresql_url("postgresql://host/db")
    check_version(address, 140_000)
    with pytest.raises(StoreError, match="PostgreSQL 13 is too old: 14 or later"):
        check_version(address, 130_012)


def test_another_encoding_is_refused(postgresql_server: PostgreSQLServer) -> None:
    options = ("ENCODING 'LATIN1'", "LC_COLLATE 'C'", "LC_CTYPE 'C'", "TEMPLATE template0")
    url = postgresql_server.create_database(f"d{uuid4().hex}", *options)
    with pytest.raises(StoreError, match="encoding of the database is LATIN1; UTF8 is needed"):
        open_at(url)


def test_a_missing_database_is_one_sentence(postgresql_server: PostgreSQLServer) -> None:
    with pytest.raises(DatabaseUnavailableError, match=r'database "none" does not exist$'):
        open_at(postgresql_server.url.replace("/postgres?", "/none?"))


def test_a_store_that_is_only_read_is_not_made(database: str) -> None:
    with pytest.raises(StoreError, match="there is no document store here"):
        open_at(database, read_only=True)


def test_one_opened_for_reading_refuses_writes(database: str, entry: MakeEntry) -> None:
    with closing(open_at(database)) as store, closing(open_at(database, read_only=True)) as reader:
        store.put([entry("a")])
        assert reader.find(["a"]).keys() == {"a"}
        with pytest.raises(StoreError, match="was opened for reading only"):
            reader.delete(["a"])


def test_another_format_is_refused(database: str) -> None:
    open_at(database).close()
    execute(database, "UPDATE longmatch.meta SET format = 4")
    with pytest.raises(StoreError, match=r"the store has format 4; this version .* format 3"):
        open_at(database)


def test_tables_of_others_are_left_alone(database: str) -> None:
    execute(database, "CREATE TABLE public.documents (mine text)")
    with pytest.raises(StoreError, match='relation "documents" already exists'):
        open_at(database, "public")
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchall() == [("documents",)]  # and nothing else was made


def test_a_read_only_server_serves_reads(
    store: PostgreSQLDocumentStore, database: str, entry: MakeEntry
) -> None:
    store.put([entry("a")])
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    execute(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with closing(open_at(database)) as again:
        assert again.find(["a"]).keys() == {"a"}
        with pytest.raises(DatabaseUnavailableError, match="read-only transaction"):
            again.put([entry("b", "new")])


def test_a_user_without_permission_is_told_so(database: str, entry: MakeEntry) -> None:
    role = f"r{uuid4().hex}"
    open_at(database).close()
    execute(database, f"CREATE ROLE {role} LOGIN")
    other = database.replace("longmatch@", f"{role}@")
    with pytest.raises(DatabaseUnavailableError, match="permission denied for schema longmatch"):
        open_at(other)
    execute(
        database,
        f"GRANT USAGE ON SCHEMA longmatch TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA longmatch TO {role}",
    )
    with closing(open_at(other)) as store:  # enough to read
        assert len(store) == 0
        with pytest.raises(DatabaseUnavailableError, match="permission denied"):
            store.put([entry("a")])
    execute(database, f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA longmatch TO {role}")
    with closing(open_at(other)) as store:
        store.put([entry("a")])
        store.put([entry("a", "another", year=1)])
        store.delete(["a"])


def test_a_statement_that_takes_too_long_changes_nothing(
    store: PostgreSQLDocumentStore, database: str, entry: MakeEntry
) -> None:
    store.put([entry("a")])
    with closing(open_at(f"{database}&options=-cstatement_timeout%3D50")) as hurried:
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE longmatch.documents")
            with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
                hurried.put([entry("b", "new")])
            with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
                hurried.find(["a"])
        assert hurried.find(["a", "b"]).keys() == {"a"}
        assert hurried.sequence == 1


@pytest.mark.parametrize("part", ["vectors", "checksums"])
def test_a_connection_lost_in_a_transaction_undoes_it(
    store: PostgreSQLDocumentStore, database: str, entry: MakeEntry, part: str
) -> None:
    """The backend dies when it has written half of the documents; the next call works again."""
    store.put([entry("a", "old", year=1)])
    execute(
        database,
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$",
        f"CREATE TRIGGER dying BEFORE INSERT ON longmatch.{part} FOR EACH ROW "
        "EXECUTE FUNCTION die()",
    )
    with pytest.raises(DatabaseUnavailableError):
        store.put([entry("a", "new", year=2), entry("b", "other")])
    execute(database, f"DROP TRIGGER dying ON longmatch.{part}")
    assert store.find(["a", "b"])["a"].document.text == "old"
    assert (len(store), store.sequence) == (1, 1)
    assert store.put([entry("a", "new")]).added.tolist() == [2]  # no number was lost


def test_idle_connections_of_a_server_that_was_restarted_are_replaced(entry: MakeEntry) -> None:
    with run_postgresql() as server, closing(open_at(server.url)) as store:
        store.put([entry("a")])
        with store.connections.reading(), store.connections.reading():
            pass  # two are idle now
        server.kill()
        with pytest.raises(DatabaseUnavailableError):
            store.find(["a"])
        server.start()
        assert store.find(["a"]).keys() == {"a"}
        store.put([entry("b", "new")])
        assert len(store) == 2


def test_a_full_disk_changes_nothing(
    store: PostgreSQLDocumentStore, database: str, entry: MakeEntry
) -> None:
    store.put([entry("a", "old")])
    execute(
        database,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'could not extend file: No space left' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER filling BEFORE INSERT ON longmatch.vectors EXECUTE FUNCTION full_disk()",
    )
    with pytest.raises(StorageFullError, match="the disk is full: could not extend file"):
        store.put([entry("a", "new")])
    assert store.find(["a"])["a"].document.text == "old"
    execute(database, "DROP TRIGGER filling ON longmatch.vectors")
    assert store.put([entry("a", "new")]).sequence == 2


def test_a_full_disk_is_told_from_other_failures() -> None:
    address = parse_postgresql_url("postgresql://me:secret@host/db")
    full = translated(address, psycopg.errors.DiskFull("could not extend file: secret"))
    assert isinstance(full, StorageFullError)
    assert str(full).endswith("the disk is full: could not extend file: …")
    strange = translated(address, psycopg.errors.UndefinedTable("no such table"))
    assert not isinstance(strange, DatabaseUnavailableError)


def test_a_write_waits_for_another_one_and_not_for_ever(
    store: PostgreSQLDocumentStore,
    database: str,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = "BEGIN; SET LOCAL lock_timeout = '50ms'"
    monkeypatch.setattr("index.postgres.connections._WRITE", short)
    with psycopg.connect(database) as other:
        other.execute("SELECT FROM longmatch.meta FOR UPDATE")
        with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
            store.put([entry("a")])
    assert store.put([entry("a")]).sequence == 1


def test_the_write_of_a_process_that_is_paused_is_outlasted(
    store: PostgreSQLDocumentStore,
    database: str,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert PAUSE_SECONDS < LOCK_SECONDS
    soon = connections._WRITE.replace(f"'{PAUSE_SECONDS}s'", "'100ms'")
    assert soon != connections._WRITE
    monkeypatch.setattr(connections, "_WRITE", soon)

    def pause(session: connections.Session) -> None:
        with closing(open_at(database)) as other:
            other.put([entry("a", "of the other")])

    with pytest.raises(DatabaseUnavailableError, match="idle-in-transaction timeout"):
        store.put([entry("a"), entry("b")], pause)
    assert store.find(["a", "b"])["a"].document.text == "of the other"
    assert (len(store), store.sequence) == (1, 1)


def test_more_threads_than_connections_wait_for_one(
    store: PostgreSQLDocumentStore, entry: MakeEntry
) -> None:
    store.put([entry(f"d{n}", f"text {n}") for n in range(20)])
    found: list[int] = []

    def read() -> None:
        found.extend(len(store.find([f"d{n}" for n in range(20)])) for _ in range(5))

    threads = [threading.Thread(target=read) for _ in range(30)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [20] * 150


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        ("documents SET title = 'Bee'", {"get", "find"}),
        ("documents SET metadata = '{\"a\": 1}'", {"get", "find"}),
        ("documents SET id = 'b2'", {"get"}),
        ("documents SET text = 'twp'", {"find"}),
        ("documents SET text = '\\xff'", {"find"}),
        ("documents SET tokens_read = 1", {"find"}),
        ("documents SET indexed_at = 'now'", {"find"}),
        ("vectors SET vector = set_byte(vector, 3, 0)", {"vectors"}),
        ("block_vectors SET vectors = set_byte(vectors, 1, 1)", {"block_vectors"}),
        ("block_vectors SET offsets = set_byte(offsets, 4, 9)", {"block_vectors"}),
    ],
)
def test_a_changed_row_is_named_and_the_others_are_read(
    store: PostgreSQLDocumentStore, database: str, entry: MakeEntry, change: str, noticed: set[str]
) -> None:
    blocks = BlockVectors(np.array([[0, 4]]), np.eye(8, dtype=np.float32)[:1])
    entries = [entry("a", "one", "A"), entry("b", "two", "B"), entry("c", "three", "C")]
    store.put([replace(one, blocks=blocks) for one in entries])
    store.put([replace(entry("b", "two", "B again"), blocks=blocks)])
    execute(database, f"UPDATE longmatch.{change} WHERE vector_id = 2")
    reads: dict[str, Callable[[int, bool], object]] = {
        "get": lambda one, skip: store.get([one], skip_damaged=skip),
        "find": lambda one, skip: store.find(["abc"[one - 1]], skip_damaged=skip),
        "vectors": lambda one, skip: store.vectors([one], skip_damaged=skip)[0].tolist(),
        "block_vectors": lambda one, skip: store.block_vectors([one], skip_damaged=skip),
    }
    for name, read in reads.items():
        assert read(1, False)
        assert read(3, False)
        if name in noticed:
            with pytest.raises(DamagedDocumentError, match="put it again, or delete it"):
                read(2, False)
            assert not read(2, True)
        else:
            read(2, False)
    assert 2 in store.damage
    if "SET id" not in change:
        assert store.put([entry("b", "two")]).removed.tolist() == [2]  # its text is put anew
        assert len(store.damage) == 0
        assert store.find(["b"])["b"].document.text == "two"
