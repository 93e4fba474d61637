"""The feedback of a data directory: one verdict for each query and document, durable.

The text of a query is stored once, compressed, whatever number of its matches is judged.
"""

import hashlib
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from index.errors import StorageError, StoreError
from index.sqlite.connections import (
    DatabaseFormat,
    SQLiteConnections,
    document_id_list,
    utc_now,
)
from service.errors import FeedbackFullError, FeedbackNotFoundError
from service.metrics import CollectionMetrics

MAX_GRADE = 3
_ID_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """The query of a verdict: a stored document, or a text.

    Attributes:
        document_id: of the stored document; None for a text.
        text: None for a stored document, and where texts are not read.
        title: of the text, if it has one.
    """

    document_id: str | None = None
    text: str | None = None
    title: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256, by which two queries are the same; of a query with its text."""
        digest = hashlib.sha256()
        for part in (self.document_id, self.text, self.title):
            encoded = b"" if part is None else part.encode()
            digest.update(b"%d " % (-1 if part is None else len(encoded)) + encoded)
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verdict; there is at most one of a query and a document.

    Attributes:
        id: made of the query and the document, so that it is the same when it is given again.
        query: whose match it is about.
        match_id: of the document that was the answer.
        grade: from 0, not relevant, to `MAX_GRADE`.
        created: ISO 8601 in UTC.
        changed: when this grade was given, ISO 8601 in UTC.
    """

    id: str
    query: JudgedQuery
    match_id: str
    grade: int
    created: str
    changed: str


def verdict_id(query: bytes, match_id: str) -> str:
    """Return the id of the verdict on a document as an answer to the query of this digest."""
    return hashlib.sha256(query + match_id.encode()).hexdigest()[:_ID_CHARACTERS]


FEEDBACK_FILE = "feedback.sqlite3"

# `size` are the bytes that a query takes.
_TABLES = """
CREATE TABLE queries (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    document TEXT,
    title TEXT NOT NULL,
    size INTEGER NOT NULL,
    text BLOB
);
CREATE INDEX queries_by_document ON queries (document) WHERE document IS NOT NULL;
CREATE INDEX queries_by_size ON queries (size);
CREATE TABLE verdicts (
    id TEXT PRIMARY KEY,
    query INTEGER NOT NULL REFERENCES queries,
    answer TEXT NOT NULL,
    grade INTEGER NOT NULL,
    created TEXT NOT NULL,
    changed TEXT NOT NULL,
    UNIQUE (query, answer)
) WITHOUT ROWID;
CREATE INDEX verdicts_by_answer ON verdicts (answer);
CREATE INDEX verdicts_by_grade ON verdicts (grade);
"""
FEEDBACK = DatabaseFormat("feedback", 0x4C4D4642, 1, _TABLES)

_READ = """
SELECT verdicts.id, document, {text}, title, answer, grade, created, changed
FROM verdicts JOIN queries ON queries.number = verdicts.query
WHERE verdicts.id > ? ORDER BY verdicts.id LIMIT ?"""
_LISTED, _WHOLE = _READ.format(text="NULL"), _READ.format(text="text")
_OF_DOCUMENTS = """
FROM verdicts WHERE answer IN (SELECT value FROM json_each(:ids)) OR query IN
(SELECT number FROM queries WHERE document IN (SELECT value FROM json_each(:ids)))"""
_UNUSED = """
DELETE FROM queries WHERE number = ? AND NOT EXISTS (SELECT 1 FROM verdicts WHERE query = number)"""
_CHARACTERS_AT_A_TIME = 2**22
MAX_QUERY_BYTES = 256 * 2**20  # compressed texts of the queries of one collection


@dataclass(frozen=True, slots=True)
class FeedbackLimits:
    """How many verdicts there may be, and how many bytes the queries of them may take."""

    verdicts: int
    query_bytes: int = MAX_QUERY_BYTES


class FeedbackStore:
    """The feedback of one data directory. Safe to use from many threads."""

    def __init__(
        self, connections: SQLiteConnections, metrics: CollectionMetrics | None = None
    ) -> None:
        """Use an open file; count in `metrics`, if there are any."""
        self._connections = connections
        self._metrics = metrics

    @property
    def failure(self) -> StorageError | None:
        """The failure of the disk that keeps feedback from being stored."""
        return self._connections.failure

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._connections.close()

    def put(self, query: JudgedQuery, match_id: str, grade: int, limits: FeedbackLimits) -> Verdict:
        """Store a verdict, durably, instead of an earlier one of this query and document."""
        digest, now = query.digest, utc_now()
        name = verdict_id(digest, match_id)
        with self._connections.writing() as connection:
            found = connection.execute(
                "SELECT grade, created, changed FROM verdicts WHERE id = ?", (name,)
            ).fetchone()
            if found is None:
                number = _query_number(connection, query, digest, limits)
                connection.execute(
                    "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?)",
                    (name, number, match_id, grade, now, now),
                )
                created = changed = now
            else:
                former, created, changed = found
                if former != grade:
                    changed = now
                    connection.execute(
                        "UPDATE verdicts SET grade = ?, changed = ? WHERE id = ?",
                        (grade, now, name),
                    )
        self.record()
        return Verdict(name, query, match_id, grade, created, changed)

    def listed(self, after: str, limit: int) -> list[Verdict]:
        """Return up to `limit` verdicts after an id, in the order of ids, without texts."""
        with self._connections.reading() as connection:
            return [_verdict(row) for row in connection.execute(_LISTED, (after, limit))]

    def whole(self, after: str, characters: int) -> list[Verdict]:
        """Return the next verdicts after an id with their texts: at least one, if there is one.

        No more follow when their texts have so many characters together.
        """
        found: list[Verdict] = []
        with self._connections.reading() as connection:
            for row in connection.execute(_WHOLE, (after, -1)):
                found.append(_verdict(row))
                characters -= len(row[0]) + len(found[-1].query.text or "")
                if characters <= 0:
                    break
        return found

    def all(self) -> Iterator[Verdict]:
        """Iterate over all verdicts with their texts, in the order of ids."""
        after = ""
        while found := self.whole(after, _CHARACTERS_AT_A_TIME):
            yield from found
            after = found[-1].id

    def remove(self, feedback_id: str) -> None:
        """Remove a verdict, durably, or raise FeedbackNotFoundError."""
        with self._connections.writing() as connection:
            row = connection.execute(
                "DELETE FROM verdicts WHERE id = ? RETURNING query", (feedback_id,)
            ).fetchone()
            if row is None:
                raise FeedbackNotFoundError(feedback_id)
            connection.execute(_UNUSED, row)
        self.record()

    def forget(self, document_ids: Sequence[str]) -> None:
        """Remove every verdict on documents, or on answers to them, durably."""
        given = {"ids": document_id_list(document_ids)}
        with self._connections.reading() as connection:
            if connection.execute(f"SELECT 1 {_OF_DOCUMENTS} LIMIT 1", given).fetchone() is None:
                return
        with self._connections.writing() as connection:
            rows = connection.execute(f"DELETE {_OF_DOCUMENTS} RETURNING query", given).fetchall()
            connection.executemany(_UNUSED, set(rows))
        self.record()

    def documents(self) -> list[str]:
        """Return the ids of the documents that verdicts name, as queries or as answers."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT answer FROM verdicts "
                "UNION SELECT document FROM queries WHERE document IS NOT NULL"
            )
            return [str(row[0]) for row in rows]

    def grades(self) -> Counter[int]:
        """Return how many verdicts there are of each grade."""
        with self._connections.reading() as connection:
            rows = connection.execute("SELECT grade, count(*) FROM verdicts GROUP BY grade")
            return Counter({int(grade): int(count) for grade, count in rows})

    def relevant_queries(self, *, compared: bool = False) -> int:
        """Count the queries with a relevant answer; if `compared`, and with a less relevant one."""
        with self._connections.reading() as connection:
            (found,) = connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM verdicts GROUP BY query "
                "HAVING max(grade) > 0 AND max(grade) >= min(grade) + ?)",
                (int(compared),),
            ).fetchone()
            return int(found)

    def record(self) -> None:
        """Set the metric of verdicts, if there are metrics."""
        if self._metrics is not None:
            grades = self.grades()
            self._metrics.feedback.labels("not_relevant").set(grades.pop(0, 0))
            self._metrics.feedback.labels("relevant").set(grades.total())


def open_feedback(
    data: Path, metrics: CollectionMetrics | None = None, *, read_only: bool = False
) -> FeedbackStore:
    """Open the feedback of a data directory; its file is created unless `read_only`.

    Verdicts are counted in `metrics`, if there are any.

    Where a full disk has no room for a new file, there is none and every write is refused.
    """
    opened = SQLiteConnections(data / FEEDBACK_FILE, read_only=read_only, kind=FEEDBACK)
    return FeedbackStore(opened, metrics)


def _query_number(
    connection: sqlite3.Connection, query: JudgedQuery, digest: bytes, limits: FeedbackLimits
) -> int:
    """Return the number of the query of a new verdict, which is stored if it is not."""
    (verdicts,) = connection.execute("SELECT count(*) FROM verdicts").fetchone()
    if verdicts >= limits.verdicts:
        raise FeedbackFullError(f"{limits.verdicts} verdicts (max_feedback)", limits.verdicts)
    found = connection.execute("SELECT number FROM queries WHERE digest = ?", (digest,)).fetchone()
    if found is not None:
        return int(found[0])
    text = None if query.text is None else zlib.compress(query.text.encode())
    parts = (text or b"", query.title.encode(), (query.document_id or "").encode())
    size = sum(map(len, parts))
    (taken,) = connection.execute("SELECT coalesce(sum(size), 0) FROM queries").fetchone()
    if taken + size > limits.query_bytes:
        raise FeedbackFullError(f"{limits.query_bytes} bytes of texts", limits.query_bytes)
    done = connection.execute(
        "INSERT INTO queries (digest, document, title, size, text) VALUES (?, ?, ?, ?, ?)",
        (digest, query.document_id, query.title, size, text),
    )
    return int(done.lastrowid or 0)


def _verdict(row: Sequence[object]) -> Verdict:
    name, document, packed, title, answer, grade, created, changed = row
    try:
        text = zlib.decompress(packed).decode() if isinstance(packed, bytes) else None
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError(f"the text of the feedback {name} is damaged") from error
    query = JudgedQuery(None if document is None else str(document), text, str(title))
    return Verdict(str(name), query, str(answer), int(str(grade)), str(created), str(changed))
