"""The tables of one collection besides its documents, the same in SQLite and in PostgreSQL."""

from functools import partial
from typing import Any

import sqlalchemy as sa

FORMAT = 2
METADATA = sa.MetaData()


class Words(sa.TypeDecorator[str]):
    """Text as UTF-8 bytes: a text of PostgreSQL has no NUL, and an order that depends on it."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Encode a text; a lone surrogate, which no stored text has, equals nothing."""
        return None if value is None else value.encode(errors="surrogatepass")

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> str | None:
        """Decode a text, even a damaged one."""
        return None if value is None else bytes(value).decode(errors="replace")


_filled = partial(sa.Column[Any], nullable=False)
_count = partial(sa.Column[Any], type_=sa.BigInteger, nullable=False, server_default=sa.text("0"))
_flag = partial(sa.Column[Any], type_=sa.Boolean, nullable=False, server_default=sa.false())
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers no other type


def _table(name: str, *parts: Any) -> sa.Table:
    """Make a table; where rows are numbered, no number is given twice."""
    return sa.Table(name, METADATA, *parts, sqlite_autoincrement=True)


# One row. `space` is the fingerprint of the vectors whose ids `standing.scanned` is one of.
progress = _table(
    "progress",
    _filled("format", sa.Integer),
    _filled("space", sa.Text),
    _filled("served_seconds", sa.Double),
)

# Jobs run in the order of `number`.
jobs = _table(
    "jobs",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("state", sa.Text),
    _filled("size", sa.BigInteger),
    _filled("digest", sa.LargeBinary),
    _filled("client", Words),
    _filled("accepted", sa.BigInteger),
    *map(_count, ("position", "line", "indexed", "unchanged", "truncated", "failed")),
    sa.Column("detail", Words),
    _filled("created", sa.Text),
    sa.Column("ended", sa.Text),
    _filled("server", sa.Text),  # which has the upload
    sa.Index("jobs_by_state", "state", "number"),
)
line_errors = _table(
    "line_errors",
    sa.Column("job", sa.ForeignKey(jobs.c.number, ondelete="CASCADE"), primary_key=True),
    sa.Column("line", sa.BigInteger, primary_key=True, autoincrement=False),
    _filled("pointer", Words),
    _filled("detail", Words),
)
responses = _table(
    "responses",
    sa.Column("key", Words, primary_key=True),
    _filled("request", sa.LargeBinary),
    _filled("status", sa.Integer),
    sa.Column("location", Words),
    _filled("body", sa.LargeBinary),
    _filled("served_seconds", sa.Double, index=True),
)

# `size` are the bytes that a query takes.
judged = _table(
    "judged",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("digest", sa.LargeBinary, unique=True),
    sa.Column("document", Words, index=True),
    _filled("title", Words),
    _filled("size", sa.BigInteger, index=True),
    sa.Column("text", sa.LargeBinary),
)
verdicts = _table(
    "verdicts",
    sa.Column("id", Words, primary_key=True),
    _filled("query", sa.ForeignKey(judged.c.number)),
    _filled("answer", Words, index=True),
    _filled("grade", sa.Integer, index=True),
    _filled("created", sa.Text),
    _filled("changed", sa.Text),
    sa.UniqueConstraint("query", "answer"),
)

# The columns that are long come last.
standing = _table(
    "standing",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("id", Words, unique=True),
    _filled("interest", sa.JSON),
    _filled("created", sa.Text),
    _filled("scanned", sa.BigInteger),
    sa.Column("detail", Words),
    sa.Column("fingerprint", sa.Text),
    sa.Column("receipt", sa.JSON(none_as_null=True)),
    sa.Column("url", Words),
    sa.Column("secret", Words),
    _count("delivered"),
    _count("attempts"),
    _filled("retry_at", sa.Double, server_default=sa.text("0")),
    _flag("failed"),
    sa.Column("failure", Words),
    _flag("paused"),
    _count("revision"),
    _filled("bytes", sa.BigInteger),
    *(sa.Column(name, sa.LargeBinary) for name in ("offsets", "vector", "blocks")),
    sa.Column("text", Words),
)
# Clients resume after the last number that they have seen.
events = _table(
    "events",
    sa.Column("number", _NUMBER, primary_key=True),
    _filled("query", sa.ForeignKey(standing.c.number, ondelete="CASCADE")),
    _filled("created", sa.Text),
    _filled("document", Words),
    _filled("title", Words),
    _filled("score", sa.Double),
    _filled("scored_as", sa.Text),
    sa.Column("probability", sa.Double),
    sa.Column("false_positive_rate", sa.Double),
    sa.Index("events_by_query", "query", "number"),
)
