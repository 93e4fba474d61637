"""The tables of one collection besides its documents, the same in SQLite and in PostgreSQL."""

from functools import partial
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
    text,
)

FORMAT = 1
METADATA = MetaData()


class Words(TypeDecorator[str]):
    """Text as UTF-8 bytes: a text of PostgreSQL has no NUL, and an order that depends on it."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Encode a text; a lone surrogate, which no stored text has, equals nothing."""
        return None if value is None else value.encode(errors="surrogatepass")

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Decode a text, even a damaged one."""
        return None if value is None else bytes(value).decode(errors="replace")


_filled = partial(Column[Any], nullable=False)
_count = partial(Column[Any], type_=BigInteger, nullable=False, server_default=text("0"))
_flag = partial(Column[Any], type_=Boolean, nullable=False, server_default=false())
_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # the only type that SQLite numbers rows by


def _table(name: str, *parts: Any) -> Table:
    """Make a table; where rows are numbered, no number is given twice."""
    return Table(name, METADATA, *parts, sqlite_autoincrement=True)


# One row. `space` is the fingerprint of the vectors whose ids `standing.scanned` is one of.
progress = _table(
    "progress",
    _filled("format", Integer),
    _filled("space", Text),
    _filled("served_seconds", Double),
)

# Jobs run in the order of `number`.
jobs = _table(
    "jobs",
    Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("state", Text),
    _filled("size", BigInteger),
    _filled("digest", LargeBinary),
    _filled("client", Words),
    _filled("accepted", BigInteger),
    _count("position"),
    _count("line"),
    _count("indexed"),
    _count("unchanged"),
    _count("truncated"),
    _count("failed"),
    Column("detail", Words),
    _filled("created", Text),
    Column("ended", Text),
    Index("jobs_by_state", "state", "number"),
)
line_errors = _table(
    "line_errors",
    Column("job", ForeignKey(jobs.c.number, ondelete="CASCADE"), primary_key=True),
    Column("line", BigInteger, primary_key=True, autoincrement=False),
    _filled("pointer", Words),
    _filled("detail", Words),
)
responses = _table(
    "responses",
    Column("key", Words, primary_key=True),
    _filled("request", LargeBinary),
    _filled("status", Integer),
    Column("location", Words),
    _filled("body", LargeBinary),
    _filled("served_seconds", Double, index=True),
)

# `size` are the bytes that a query takes.
judged = _table(
    "judged",
    Column("number", _NUMBER, primary_key=True),
    _filled("digest", LargeBinary, unique=True),
    Column("document", Words, index=True),
    _filled("title", Words),
    _filled("size", BigInteger, index=True),
    Column("text", LargeBinary),
)
verdicts = _table(
    "verdicts",
    Column("id", Words, primary_key=True),
    _filled("query", ForeignKey(judged.c.number)),
    _filled("answer", Words, index=True),
    _filled("grade", Integer, index=True),
    _filled("created", Text),
    _filled("changed", Text),
    UniqueConstraint("query", "answer"),
)

# The columns that are long come last.
standing = _table(
    "standing",
    Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("interest", JSON),
    _filled("created", Text),
    _filled("scanned", BigInteger),
    Column("detail", Words),
    Column("fingerprint", Text),
    Column("receipt", JSON(none_as_null=True)),
    Column("url", Words),
    Column("secret", Words),
    _count("delivered"),
    _count("attempts"),
    _filled("retry_at", Double, server_default=text("0")),
    _flag("failed"),
    Column("failure", Words),
    _flag("paused"),
    _count("revision"),
    _filled("bytes", BigInteger),
    Column("offsets", LargeBinary),
    Column("vector", LargeBinary),
    Column("blocks", LargeBinary),
    Column("text", Words),
)
# Clients resume after the last number that they have seen.
events = _table(
    "events",
    Column("number", _NUMBER, primary_key=True),
    _filled("query", ForeignKey(standing.c.number, ondelete="CASCADE"), index=True),
    _filled("created", Text),
    _filled("document", Words),
    _filled("title", Words),
    _filled("score", Double),
    _filled("scored_as", Text),
    Column("probability", Double),
    Column("false_positive_rate", Double),
)
