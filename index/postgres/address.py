"""The address of a store in PostgreSQL, as it may be shown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from index.errors import StoreError
from index.optional_dependencies import require_extra

DEFAULT_SCHEMA = "longmatch"
FORM = "postgresql://USER@HOST/DATABASE"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SCHEMES = ("postgresql://", "postgres://")
# What a connection gets that its URL does not set: a server that is gone is noticed in a minute.
_CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "longmatch",
}


@dataclass(frozen=True, slots=True)
class PostgreSQLAddress:
    """Where a store is.

    Attributes:
        conninfo: what connects to the server; it may hold a password. Never printed.
        shown: the URL without password and options.
        schema: the schema of the database that holds the tables of the store.
        password: "" if the URL has none.
    """

    conninfo: str = field(repr=False)
    shown: str
    schema: str = DEFAULT_SCHEMA
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.shown} (schema {self.schema})"


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL that holds the documents, of which processes keep copies.

    Attributes:
        address: of it.
        patience: seconds that a search waits for it.
    """

    address: PostgreSQLAddress
    patience: float = 5.0


def parse_postgresql_url(url: str, schema: str = DEFAULT_SCHEMA) -> PostgreSQLAddress:
    """Parse the URL of a database, `postgresql://USER@HOST/DATABASE`, as libpq does.

    Raises:
        MissingExtraError: psycopg is not installed.
        StoreError: it is no such URL, or no name of a schema.
    """
    if not url.startswith(_SCHEMES):
        raise StoreError(f"the address of the database is not {FORM}")
    check_schema(schema)
    require_extra("postgresql", "PostgreSQL", "psycopg")
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = conninfo_to_dict(url)
        conninfo = make_conninfo(url, **{k: v for k, v in _CONNECTION.items() if k not in given})
    except psycopg.Error:  # its message quotes the URL, with the password
        raise StoreError(f"the address of the database is not {FORM}") from None
    return PostgreSQLAddress(conninfo, _shown(given), schema, str(given.get("password") or ""))


def check_schema(schema: str) -> None:
    """Refuse what is no name for a schema; psycopg is not needed for that.

    Raises:
        StoreError: it is none.
    """
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise StoreError(
            f"{schema!r} is no name for a schema: use small letters, digits and _, "
            "and begin with a letter, but not with pg_"
        )


def _shown(given: Mapping[str, object]) -> str:
    parts = {name: str(given.get(name) or "") for name in ("user", "host", "port", "dbname")}
    user = f"{parts['user']}@" if parts["user"] else ""
    port = f":{parts['port']}" if parts["port"] else ""
    folder = f"?host={parts['host']}" if parts["host"].startswith("/") else ""
    host = "" if folder else parts["host"]
    return f"postgresql://{user}{host}{port}/{parts['dbname']}{folder}"
