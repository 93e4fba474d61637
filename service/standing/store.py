"""Standing queries and their events: what they are, and the tables that keep them, durable."""

import io
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    computed_field,
    field_serializer,
)
from sqlalchemy import Connection, Row, delete, exists, func, insert, select, update

from encoder.blocks import Receipt
from index.search.records import Bounds, Hit, Mode
from index.sqlite.block_vectors import BlockVectors
from index.sqlite.connections import utc_now
from index.store.filters import Filter
from service.encode import EncodedText
from service.errors import StandingQueryNotFoundError, TooManyStandingQueriesError
from service.match.filter import FilterBody
from service.schemas import ReceiptBody, nullable
from service.standing.targets import origin_of
from service.state import State, events, keep_newest, progress, standing

DeliveryState = Literal["active", "retrying", "failed"]


# Its JSON is what answers show, without what is secret; `dict` of it is what is stored.
class Webhook(BaseModel, frozen=True):
    """A webhook, and how far it has come."""

    url: Annotated[str, PlainSerializer(origin_of)] = Field(
        description="Without path and query, which may be secret."
    )
    secret: Annotated[str, PlainSerializer(lambda _: None, str | None)] = Field(
        repr=False, description="Shown once, by the request that sets it; null ever after."
    )
    delivered: int = Field(description="Number of the last event that was received.")
    attempts: int = Field(description="To deliver the next event, which all failed.")
    failure: str | None = nullable("Why the last attempt failed; null after a success.")
    retry_at: float = Field(  # seconds since the epoch
        description="When the next attempt is due, ISO 8601 in UTC; null for none."
    )
    failed: bool = Field(exclude=True)  # there is no other attempt until somebody resumes it

    @computed_field(
        description="`active`, `retrying` after an attempt that failed, or `failed`: there will be "
        "no other until POST /standing-queries/{id}/resume."
    )
    def state(self) -> DeliveryState:
        """Whether events are delivered, tried again, or not tried any more."""
        if self.failed:
            return "failed"
        return "retrying" if self.attempts else "active"

    @field_serializer("retry_at")
    def _due(self, seconds: float) -> str | None:
        if self.failed or not self.attempts:
            return None
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def new_webhook(url: str, secret: str, delivered: int = 0) -> Webhook:
    """Return a webhook that got the events up to this one, and whose next attempt is the first."""
    return Webhook(
        url=url,
        secret=secret,
        delivered=delivered,
        attempts=0,
        failure=None,
        retry_at=0.0,
        failed=False,
    )


class Interest(BaseModel, frozen=True):
    """What a standing query looks for; new documents must meet at least one bound."""

    document: str | None = nullable("Id of the stored document; null for a text.")
    title: str = Field(description="Of the text.")
    mode: Mode
    filter: dict[str, Any] | None = nullable("The filter, as it is evaluated; null for none.")
    min_score: float | None = nullable("Null where it does not count.")
    min_probability: float | None = nullable("Null where it does not count.")
    max_false_positive_rate: float | None = nullable("Null where it does not count.")

    @property
    def bounds(self) -> Bounds:
        """What a new document must meet."""
        return Bounds(self.min_score, self.min_probability, self.max_false_positive_rate)

    @property
    def where(self) -> Filter | None:
        """What its metadata must pass; ValueError where what is stored is no filter."""
        return None if self.filter is None else FilterBody(**self.filter).to_filter()


class StandingQuery(Interest, frozen=True):
    """A standing query, without its text."""

    id: str
    receipt: ReceiptBody | None = nullable("What was read of the text; null for a document.")
    created: str = Field(description="ISO 8601 in UTC; older documents are not new to it.")
    webhook: Webhook | None = nullable("Where events are sent; null for nowhere.")
    paused: bool = Field(description="Nothing is compared or delivered; see PATCH.")
    detail: str | None = nullable("Why new documents wait and are not compared; null if they are.")
    number: int = Field(exclude=True)  # in the order in which they were made
    scanned: int = Field(exclude=True)  # every vector up to this id was compared with it
    fingerprint: str | None = Field(exclude=True)  # of the vectors of its text, if it has one
    revision: int = Field(exclude=True)  # how often it was changed


class Event(BaseModel, frozen=True):
    """A new document that matches a standing query."""

    number: int = Field(
        description="Ascending over all standing queries of the collection, with gaps."
    )
    query: str = Field(description="Id of the standing query.")
    created: str = Field(description="ISO 8601 in UTC.")
    document: str = Field(description="Id of the new document.")
    title: str = Field(description="Of the new document.")
    score: float = Field(description="As POST /match gives it.")
    scored_as: Mode = Field(description="The mode whose score this is; as in POST /match.")
    probability: float | None = nullable("That it is a match; null without a calibration.")
    false_positive_rate: float | None = nullable(
        "Share of random pairs of the corpus that score as high; null without a calibration."
    )


@dataclass(frozen=True, slots=True)
class Scan:
    """What comparing one query with some new documents gave.

    Attributes:
        query: the query, as it was before.
        scanned: every vector up to this id was compared.
        found: the documents that match.
        scored_as: the mode whose scores these are.
    """

    query: StandingQuery
    scanned: int
    found: Sequence[Hit]
    scored_as: Mode


_OF_TEXTS = ("fingerprint", "receipt", "vectors", "text")
_QUERY = [column for column in standing.c if column.name not in ("bytes", "vectors", "text")]
_OF_EVENT = [column for column in events.c if column.name != "query"]
_EVENT = select(standing.c.id.label("query"), *_OF_EVENT).join_from(events, standing)
_DELIVERED, _FAILED = standing.c.webhook["delivered"], standing.c.webhook["failed"].as_boolean()
_WAITS = exists().where(
    events.c.query == standing.c.number, events.c.number > _DELIVERED.as_integer()
)
_UNDELIVERED = (
    select(*_QUERY)
    .where(~_FAILED, ~standing.c.paused, _WAITS)  # null without a webhook, and so not true
    .order_by(standing.c.webhook["retry_at"].as_float())
)
MAX_BYTES = 256 * 2**20  # of the texts of one collection in UTF-8: 256 books of a megabyte
MAX_EVENTS = 10_000  # of one query; older ones are deleted: who reads once a day misses none


class StandingStore:
    """The standing queries of one collection, and their events. Safe to use from many threads."""

    def __init__(self, state: State, *, max_queries: int) -> None:
        """Use an open state, in which there may be so many queries."""
        self._state = state
        self._max_queries = max_queries

    def check_room(self, text_bytes: int) -> None:
        """Check that there is room for one more, before its text is encoded."""
        with self._state.reading() as connection:
            self._check_room(connection, text_bytes)

    def add(
        self,
        interest: Interest,
        text: EncodedText | None,
        webhook: Webhook | None,
        scanned: int,
        fingerprint: str = "",
    ) -> StandingQuery:
        """Store a new query, durably.

        Args:
            interest: what it looks for.
            text: encoded; None for a stored document.
            webhook: where to tell its events, if anywhere.
            scanned: the last vector id that is not new to it.
            fingerprint: of the vectors of the text.
        """
        size = 0 if text is None else len(text.text.encode())
        row = {
            "id": uuid.uuid4().hex,
            "interest": _interest_json(interest),
            "created": utc_now(),
            "scanned": scanned,
            "bytes": size,
            "webhook": None if webhook is None else dict(webhook),
            **_text_columns(text, fingerprint),
        }
        with self._state.writing() as connection:
            self._check_room(connection, size)
            connection.execute(insert(standing).values(row))
            return _find(connection, row["id"])

    def find(self, query_id: str) -> StandingQuery:
        """Return a query."""
        with self._state.reading() as connection:
            return _find(connection, query_id)

    def listed(self, after: str = "", limit: int | None = None) -> list[StandingQuery]:
        """Return up to `limit` queries after an id as they were made, without their texts."""
        with self._state.reading() as connection:
            number = _find(connection, after).number if after else 0
            page = select(*_QUERY).where(standing.c.number > number).order_by(standing.c.number)
            return [_query(row) for row in connection.execute(page.limit(limit))]

    def change(
        self, query_id: str, change: Callable[[StandingQuery], StandingQuery]
    ) -> tuple[StandingQuery, StandingQuery]:
        """Change the bounds, the webhook or the pause of a query, durably.

        What is being compared with it meanwhile is compared again. A webhook where there was none
        gets what is found from now on; another one goes on where the former one was.
        What `change` raises leaves the query as it is.

        Returns:
            The query as it was, and as it is.
        """
        with self._state.writing() as connection:
            before = _find(connection, query_id)
            after = change(before)
            webhook = after.webhook
            if webhook is not None and before.webhook is None:
                last = select(func.max(events.c.number)).where(events.c.query == before.number)
                last_found = connection.scalar(last) or 0
                webhook = webhook.model_copy(update={"delivered": last_found})
            _update(
                connection,
                before,
                interest=_interest_json(after),
                paused=after.paused,
                revision=before.revision + 1,
                webhook=None if webhook is None else dict(webhook),
            )
            return before, _find(connection, query_id)

    def remove(self, query_id: str) -> None:
        """Remove a query and its events, or raise StandingQueryNotFoundError."""
        with self._state.writing() as connection:
            done = connection.execute(delete(standing).where(standing.c.id == query_id))
            if not done.rowcount:
                raise StandingQueryNotFoundError(query_id)

    def read_text(self, query: StandingQuery) -> EncodedText | None:
        """Return the text of a query; None if it has none, or was removed."""
        columns = [standing.c[name] for name in _OF_TEXTS]
        with self._state.reading() as connection:
            row = connection.execute(
                select(*columns).where(standing.c.number == query.number)
            ).first()
        return None if row is None or row.fingerprint is None else _text(row, query.title)

    def put_text(self, query: StandingQuery, text: EncodedText, fingerprint: str) -> None:
        """Replace the encoded text of a query by that of another checkpoint."""
        with self._state.writing() as connection:
            _update(connection, query, **_text_columns(text, fingerprint))

    def hold(self, query: StandingQuery, detail: str | None) -> None:
        """Record why new documents wait and are not compared with a query; None if they are."""
        if query.detail != detail:
            with self._state.writing() as connection:
                _update(connection, query, detail=detail)

    def advance(self, scans: Sequence[Scan]) -> int:
        """Record what comparisons found, each once, in one transaction; return how many events.

        A query that was removed or changed meanwhile, or compared already, gets no event.
        """
        added = 0
        with self._state.writing() as connection:
            for scan in scans:
                query = scan.query
                unchanged = update(standing).where(
                    standing.c.number == query.number,
                    standing.c.scanned == query.scanned,
                    standing.c.revision == query.revision,
                )
                done = connection.execute(unchanged.values(scanned=scan.scanned))
                if done.rowcount and scan.found:
                    self._add_events(connection, scan)
                    added += len(scan.found)
        return added

    def follow(self, space: str, last: int) -> bool:
        """Let queries follow a store; call it before any comparison.

        Vector ids of another space are those of another store. What is in it now is not new: it
        was made of the documents of the former one.

        Args:
            space: fingerprint of the vectors of the store.
            last: the last vector id that the store gave.

        Returns:
            Whether there was no query, or none of another space.
        """
        with self._state.reading() as connection:
            known = connection.scalar(select(progress.c.space))
            furthest = connection.scalar(select(func.max(standing.c.scanned)))
        if known == space and (furthest is None or furthest <= last):
            return True  # and a full disk does not keep the service from starting
        with self._state.writing() as connection:
            connection.execute(update(progress).values(space=space))
            if known or (furthest or 0) > last:  # else they came after a start on a full disk
                connection.execute(update(standing).values(scanned=last))
                return furthest is None
        return True

    def events_after(self, number: int, limit: int, query_id: str | None = None) -> list[Event]:
        """Return up to `limit` events after a number, 0 for the first, of a query or of all."""
        page = _EVENT.where(events.c.number > number).order_by(events.c.number).limit(limit)
        with self._state.reading() as connection:
            if query_id is not None:
                page = page.where(events.c.query == _find(connection, query_id).number)
            return [Event(**row._asdict()) for row in connection.execute(page)]

    def undelivered(self) -> list[StandingQuery]:
        """Return the queries whose webhooks have an event to deliver, those due first."""
        with self._state.reading() as connection:
            return [_query(row) for row in connection.execute(_UNDELIVERED)]

    def record(self, query: StandingQuery, after: Webhook) -> bool:
        """Record how far the webhook of a query has come; nothing of one that is another by now.

        What was received stays received where the secret is another one; a failure does not count
        then. StandingQueryNotFoundError if the query was removed.

        Returns:
            Whether the next event may be delivered to it.
        """
        with self._state.writing() as connection:
            now = _find(connection, query.id)
            webhook = now.webhook
            if webhook is None or webhook.url != after.url:
                return False
            same_secret = webhook.secret == after.secret
            if same_secret or not after.attempts:
                furthest = max(webhook.delivered, after.delivered)
                known = {"secret": webhook.secret, "delivered": furthest}
                _update(connection, query, webhook=dict(after) | known)
            return same_secret and not now.paused

    def resume(self, query_id: str) -> StandingQuery:
        """Let a webhook be tried again at once, or raise StandingQueryNotFoundError."""
        with self._state.writing() as connection:
            query = _find(connection, query_id)
            if query.webhook is not None:
                anew = {"attempts": 0, "retry_at": 0.0, "failed": False}
                _update(connection, query, webhook=dict(query.webhook) | anew)
            return _find(connection, query_id)

    def count(self) -> dict[str, int]:
        """Count the queries: all, those that wait or are paused, those whose webhooks failed."""
        counted = {
            "all": func.count(),
            "waiting": func.count(standing.c.detail),
            "failed": func.count().filter(_FAILED),
            "paused": func.count().filter(standing.c.paused),
        }
        with self._state.reading() as connection:
            row = connection.execute(select(*counted.values()).select_from(standing)).one()
            return dict(zip(counted, row, strict=True))

    def _add_events(self, connection: Connection, scan: Scan) -> None:
        number = scan.query.number
        of_query = {"query": number, "created": utc_now()}
        rows = [
            {
                **of_query,
                "document": hit.id,
                "title": hit.title,
                "score": hit.score,
                "scored_as": scan.scored_as,
                "probability": hit.probability,
                "false_positive_rate": hit.false_positive_rate,
            }
            for hit in scan.found
        ]
        connection.execute(insert(events), rows)
        keep_newest(connection, events.c.number, MAX_EVENTS, events.c.query == number)

    def _check_room(self, connection: Connection, size: int) -> None:
        count, used = connection.execute(
            select(func.count(), func.coalesce(func.sum(standing.c.bytes), 0))
        ).one()
        if count >= self._max_queries:
            raise TooManyStandingQueriesError(self._max_queries, "queries (max_standing_queries)")
        if used + size > MAX_BYTES:
            raise TooManyStandingQueriesError(MAX_BYTES, "bytes of texts")


def _find(connection: Connection, query_id: str) -> StandingQuery:
    row = connection.execute(select(*_QUERY).where(standing.c.id == query_id)).first()
    if row is None:
        raise StandingQueryNotFoundError(query_id)
    return _query(row)


def _update(connection: Connection, query: StandingQuery, **values: Any) -> None:
    connection.execute(update(standing).where(standing.c.number == query.number).values(values))


def _query(row: Row[Any]) -> StandingQuery:
    columns = row._asdict()
    return StandingQuery(**columns.pop("interest"), **columns)


def _interest_json(interest: Interest) -> dict[str, Any]:
    return interest.model_dump(include=set(Interest.model_fields))


def _text_columns(text: EncodedText | None, fingerprint: str) -> dict[str, Any]:
    """Return the columns of an encoded text; all are null for a stored document."""
    if text is None:
        return dict.fromkeys(_OF_TEXTS)
    if text.blocks is None:
        raise ValueError("an encoded text has block vectors")
    file = io.BytesIO()
    np.savez(file, vector=text.vector, offsets=text.blocks.offsets, blocks=text.blocks.vectors)
    return {
        "fingerprint": fingerprint,
        "receipt": asdict(text.receipt),
        "vectors": file.getvalue(),
        "text": text.text,
    }


def _text(row: Row[Any], title: str) -> EncodedText:
    found = np.load(io.BytesIO(row.vectors))
    return EncodedText(
        text=row.text,
        title=title,
        vector=found["vector"],
        receipt=Receipt(**row.receipt),
        blocks=BlockVectors(found["offsets"], found["blocks"]),
    )
