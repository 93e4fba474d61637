"""The feedback of a collection: one verdict for each query and document, durable.

The text of a query is stored once, compressed, whatever number of its matches is judged.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import BaseModel, Field, PlainSerializer, PlainValidator
from sqlalchemy import delete, exists, func, insert, or_, select, update

from index.errors import StoreError
from index.sqlite.connections import utc_now
from service.errors import FeedbackFullError, FeedbackNotFoundError
from service.state import State, judged, verdicts

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


class AskedBody(BaseModel, from_attributes=True):
    """The query, without its text."""

    id: str | None = Field(
        validation_alias="document_id",
        description="Id of the stored document; null for a text.",
    )
    title: str = Field(description="Title of the text; empty for a stored document.")


class Verdict(BaseModel, frozen=True):
    """A verdict that is kept."""

    id: str = Field(description="Of the verdict: the same for the same query and match.")
    query: Annotated[
        JudgedQuery,
        PlainValidator(lambda query: query),
        PlainSerializer(AskedBody.model_validate, AskedBody),
    ]
    match_id: str = Field(serialization_alias="match")
    grade: int
    created: str = Field(description="When the first verdict was given, ISO 8601 in UTC.")
    changed: str = Field(description="When this grade was given, ISO 8601 in UTC.")


_CHARACTERS_AT_A_TIME = 2**22
_IDS_AT_A_TIME = 10_000  # of one statement: databases limit its values
MAX_VERDICTS = 100_000
MAX_QUERY_BYTES = 256 * 2**20  # compressed texts of the queries of one collection


class FeedbackStore:
    """The feedback of one collection. Safe to use from many threads."""

    def __init__(self, state: State, max_verdicts: int = MAX_VERDICTS) -> None:
        """Use an open state, in which there may be so many verdicts."""
        self._state = state
        self._max_verdicts = max_verdicts

    def put(self, query: JudgedQuery, match_id: str, grade: int) -> Verdict:
        """Store a verdict, durably, instead of an earlier one of this query and document."""
        digest, now = query.digest, utc_now()
        name = hashlib.sha256(digest + match_id.encode()).hexdigest()[:_ID_CHARACTERS]
        of_this = verdicts.c.id == name
        with self._state.writing() as connection:
            found = connection.execute(
                select(verdicts.c.grade, verdicts.c.created, verdicts.c.changed).where(of_this)
            ).first()
            former, created, changed = found or (None, now, now)
            if found is None:
                number = self._query_number(connection, query, digest)
                row = (name, number, match_id, grade, now, now)
                connection.execute(insert(verdicts).values(row))
            elif former != grade:
                changed = now
                connection.execute(update(verdicts).where(of_this).values(grade=grade, changed=now))
        return Verdict(
            id=name, query=query, match_id=match_id, grade=grade, created=created, changed=changed
        )

    def listed(self, after: str, limit: int) -> list[Verdict]:
        """Return up to `limit` verdicts after an id, in the order of ids, without texts."""
        page = _listed(after).limit(limit)
        with self._state.reading() as connection:
            return [_verdict(row) for row in connection.execute(page)]

    def whole(self, after: str, characters: int) -> list[Verdict]:
        """Return the next verdicts after an id with their texts: at least one, if there is one.

        No more follow when their texts have so many characters together.
        """
        found: list[Verdict] = []
        page = _listed(after, judged.c.text).execution_options(yield_per=100)
        with self._state.reading() as connection, connection.execute(page) as rows:
            for row in rows:
                found.append(_verdict(row))
                characters -= len(row.id) + len(found[-1].query.text or "")
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
        with self._state.writing() as connection:
            if not _remove(connection, verdicts.c.id == feedback_id):
                raise FeedbackNotFoundError(feedback_id)

    def forget(self, document_ids: Sequence[str]) -> None:
        """Remove every verdict on documents, or on answers to them, durably."""
        for start in range(0, len(document_ids), _IDS_AT_A_TIME):
            names = document_ids[start : start + _IDS_AT_A_TIME]
            queries = select(judged.c.number).where(judged.c.document.in_(names))
            of_them = or_(verdicts.c.answer.in_(names), verdicts.c.query.in_(queries))
            with self._state.reading() as connection:
                if not connection.scalar(select(exists().where(of_them))):
                    continue
            with self._state.writing() as connection:
                _remove(connection, of_them)

    def documents(self) -> list[str]:
        """Return the ids of the documents that verdicts name, as queries or as answers."""
        queries = select(judged.c.document).where(judged.c.document.is_not(None))
        with self._state.reading() as connection:
            return list(connection.scalars(select(verdicts.c.answer).union(queries)))

    def grades(self) -> Counter[int]:
        """Return how many verdicts there are of each grade."""
        counted = select(verdicts.c.grade, func.count()).group_by(verdicts.c.grade)
        with self._state.reading() as connection:
            return Counter({row[0]: row[1] for row in connection.execute(counted)})

    def relevant_queries(self, *, compared: bool = False) -> int:
        """Count the queries with a relevant answer; if `compared`, and with a less relevant one."""
        most, least = func.max(verdicts.c.grade), func.min(verdicts.c.grade)
        relevant = (
            select(verdicts.c.query)
            .group_by(verdicts.c.query)
            .having(most > 0, most >= least + int(compared))
        )
        with self._state.reading() as connection:
            return connection.scalar(select(func.count()).select_from(relevant.subquery())) or 0

    def _query_number(self, connection: sa.Connection, query: JudgedQuery, digest: bytes) -> int:
        """Return the number of the query of a new verdict, which is stored if it is not."""
        given = connection.scalar(select(func.count()).select_from(verdicts)) or 0
        if given >= self._max_verdicts:
            raise FeedbackFullError(
                f"{self._max_verdicts} verdicts (max_feedback)", self._max_verdicts
            )
        found = connection.scalar(select(judged.c.number).where(judged.c.digest == digest))
        if found is not None:
            return int(found)
        text = None if query.text is None else zlib.compress(query.text.encode())
        parts = (text or b"", query.title.encode(), (query.document_id or "").encode())
        size = sum(map(len, parts))
        taken = connection.scalar(select(func.coalesce(func.sum(judged.c.size), 0))) or 0
        if taken + size > MAX_QUERY_BYTES:
            raise FeedbackFullError(f"{MAX_QUERY_BYTES} bytes of texts", MAX_QUERY_BYTES)
        row = {"digest": digest, "document": query.document_id, "title": query.title, "size": size}
        stored = insert(judged).values(**row, text=text).returning(judged.c.number)
        return int(connection.execute(stored).scalar_one())


def _listed(after: str, *text: sa.Column[bytes]) -> sa.Select[Any]:
    """Return the statement that reads the verdicts after an id, with their texts or without."""
    columns = [column for column in verdicts.c if column.name not in ("query", "answer")]
    answer = verdicts.c.answer.label("match_id")
    page = select(*columns, answer, judged.c.document, judged.c.title, *text)
    page = page.join_from(verdicts, judged)
    return page.where(verdicts.c.id > after).order_by(verdicts.c.id)


def _remove(connection: sa.Connection, chosen: Any) -> int:
    """Remove verdicts, and the queries that have none then; return how many verdicts."""
    removed = delete(verdicts).where(chosen).returning(verdicts.c.query)
    queries = list(connection.scalars(removed))
    for number in set(queries):
        judged_still = exists().where(verdicts.c.query == number)
        connection.execute(delete(judged).where(judged.c.number == number, ~judged_still))
    return len(queries)


def _verdict(row: sa.Row[Any]) -> Verdict:
    columns = row._asdict()
    document, title, packed = (columns.pop(name, None) for name in ("document", "title", "text"))
    try:
        text = None if not packed else zlib.decompress(packed).decode()
    except (zlib.error, TypeError, UnicodeDecodeError) as error:
        raise StoreError(f"the text of the feedback {row.id} is damaged") from error
    return Verdict(query=JudgedQuery(document, text, title), **columns)
