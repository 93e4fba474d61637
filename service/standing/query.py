"""A standing query, what it finds, and where that is sent."""

from dataclasses import dataclass, field
from typing import Any, Literal

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.search.records import Bounds, Mode
from index.store.filters import Filter

DeliveryState = Literal["active", "retrying", "failed"]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where events are sent, and the secret that signs them: `whsec_` and Base64."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far the webhook of a query has come.

    Attributes:
        delivered: number of the last event that was received.
        attempts: to deliver the one after it, which all failed.
        retry_at: seconds since the epoch before which it is not tried again.
        failed: there will be no other attempt until somebody resumes it.
        failure: why the last attempt failed; None after a success.
    """

    delivered: int = 0
    attempts: int = 0
    retry_at: float = 0.0
    failed: bool = False
    failure: str | None = None

    @property
    def state(self) -> DeliveryState:
        """Whether events are delivered, tried again, or not tried any more."""
        if self.failed:
            return "failed"
        return "retrying" if self.attempts else "active"


@dataclass(frozen=True, slots=True, eq=False)
class QueryText:
    """The text of a standing query as it was encoded.

    Attributes:
        text: the whole of it.
        vector: Float32[dimension], unit norm.
        blocks: Float32[S, H], its block vectors.
        receipt: what was read of it.
        fingerprint: of the vectors.
    """

    text: str
    vector: Float32
    blocks: Float32
    receipt: Receipt
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What a standing query looks for.

    Attributes:
        document_id: of a stored document, as it is whenever it is compared; None for a text.
        title: of the text, if it has one.
        mode: what new documents are scored by.
        bounds: that a new document must meet; at least one.
        where: a filter that its metadata must pass.
    """

    document_id: str | None
    title: str = ""
    mode: Mode
    bounds: Bounds
    where: Filter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingQuery:
    """A standing query, without its text.

    Attributes:
        number: in the order in which they were made.
        id: its name for clients.
        interest: what it looks for.
        created: ISO 8601 in UTC.
        scanned: every vector up to this id was compared with it.
        detail: why new documents wait and are not compared with it; None if they are.
        fingerprint: of the vectors of its text; None for a stored document.
        receipt: what was read of its text; None for a stored document.
        webhook: where events are sent, if anywhere.
        delivery: how far that has come.
        paused: nothing is compared with it or delivered until somebody ends that.
        revision: how often it was changed.
    """

    number: int
    id: str
    interest: Interest
    created: str
    scanned: int
    detail: str | None
    fingerprint: str | None
    receipt: Receipt | None
    webhook: Webhook | None
    delivery: Delivery
    paused: bool = False
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A new document that a standing query matches.

    Attributes:
        document_id: of the document.
        title: of the document.
        score: as POST /match gives it.
        scored_as: the mode whose score it is.
        probability: that it is a match; None where that is not calibrated.
        false_positive_rate: share of random pairs that score as high; None likewise.
    """

    document_id: str
    title: str
    score: float
    scored_as: Mode
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class Event:
    """A match that was stored.

    Attributes:
        number: ascending over all queries of the collection, and never given twice.
        query_id: of the standing query.
        created: ISO 8601 in UTC.
        found: the document.
    """

    number: int
    query_id: str
    created: str
    found: Found

    def to_json(self) -> dict[str, Any]:
        """Return the event as clients and webhooks get it."""
        return {
            "number": self.number,
            "query": self.query_id,
            "created": self.created,
            "document": self.found.document_id,
            "title": self.found.title,
            "score": self.found.score,
            "scored_as": self.found.scored_as,
            "probability": self.found.probability,
            "false_positive_rate": self.found.false_positive_rate,
        }


@dataclass(frozen=True, slots=True)
class Scan:
    """What comparing one query with some new documents gave.

    Attributes:
        query: the query, as it was before.
        scanned: every vector up to this id was compared.
        found: the documents that match.
    """

    query: StandingQuery
    scanned: int
    found: tuple[Found, ...]
