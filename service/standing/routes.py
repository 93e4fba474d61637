"""/standing-queries: made, listed, changed, removed; and their events."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import Body, Path, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from index.search.records import DEFAULT_MODE, Bounds, Mode
from index.store.filters import filter_to_json
from service.deps import CollectionDep, IdempotencyKey, respond_once
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.match.filter import FilterField
from service.openapi import ENCODE, WRITE, Router
from service.schemas import (
    DEFAULT_PAGE,
    BodyModel,
    Cosine,
    Cursor,
    DocumentId,
    PageSize,
    QueryBody,
    ReceiptBody,
    Share,
    Strict,
    Title,
    WholeText,
    nullable,
    optional,
    receipt_body,
    write_cursor,
)
from service.standing.logic import (
    bounds_or_default,
    change_standing_query,
    create_standing_query,
)
from service.standing.store import DeliveryState, Event, Interest, StandingQuery, Webhook
from service.standing.webhooks import (
    MAX_URL_CHARACTERS,
    SECRET_FORM,
    AllowedTargets,
    TargetRefusedError,
    check_secret,
    make_secret,
    parse_target,
)
from service.state import StoredResponse
from service.threads import run_in

Secret = Annotated[
    WholeText, AfterValidator(check_secret), Field(json_schema_extra={"pattern": SECRET_FORM})
]


Url = Annotated[
    WholeText,
    Field(
        max_length=MAX_URL_CHARACTERS,
        json_schema_extra={"pattern": r"^https?://[A-Za-z0-9]", "format": "uri"},
    ),
]


class WebhookRequest(BodyModel):
    """Where to tell events."""

    url: Url = Field(
        description="A public address by https, or one of the setting `webhook_hosts`."
    )
    secret: Secret | None = optional(
        "`whsec_` and the Base64 of 24 to 64 bytes, which signs the messages; by default, one is "
        "made, and shown once."
    )

    def to_webhook(self) -> Webhook:
        """Return the webhook, with a secret."""
        return Webhook(self.url, self.secret or make_secret())


class StandingQueryRequest(QueryBody):
    """What to look for among new documents: exactly one of `text` and `id`."""

    title: Title | None = optional("Title of the text, if it has one; as in POST /match.")
    id: DocumentId | None = optional(
        "Id of a stored document: new documents are compared with what it is then."
    )
    mode: Mode = Field(
        default=DEFAULT_MODE,
        description="By what new documents are scored, as in POST /match: document vectors, words, "
        "or both.",
    )
    filter: FilterField | None = optional(
        "Tell of no document for whose metadata this does not hold when it is compared."
    )
    min_score: Cosine | None = optional("Tell of no document whose score is under this.")
    min_probability: Share | None = optional(
        "Tell of no document under this probability; refused where the checkpoint has no "
        "calibration. Without any bound and without a calibration of the data directory, 0.9."
    )
    max_false_positive_rate: Share | None = optional(
        "Tell of no document whose score a larger share of random pairs of the corpus reaches; "
        "refused where the data directory has not been calibrated. Without any bound, 0.001."
    )
    webhook: WebhookRequest | None = optional("Where to tell events; by default, nowhere.")
    strict: Strict = False

    @property
    def bounds(self) -> Bounds:
        """The bounds that are given."""
        return Bounds(self.min_score, self.min_probability, self.max_false_positive_rate)

    def to_interest(self, bounds: Bounds) -> Interest:
        """Return what is looked for, inside these bounds."""
        return Interest(
            document_id=self.id,
            title=self.title or "",
            mode=self.mode,
            bounds=bounds,
            where=None if self.filter is None else self.filter.to_filter(),
        )


class _Change(BodyModel):
    """What is to be another; what is not given stays. Null takes away what there may be none of."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _as_in_json(cls, given: object) -> object:
        """Let null pass, unlike `BodyModel`."""
        return given

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must have at least one field")
        return self


class WebhookChange(_Change):
    """Another address, another secret, or both."""

    url: Url | None = optional(
        "As in POST /standing-queries; needed where the query has no webhook."
    )
    secret: Secret | None = optional(
        "As in POST /standing-queries; null lets the server make a new one. A new secret is in the "
        "answer, and never shown again."
    )

    def apply(self, before: Webhook | None) -> Webhook:
        """Return the webhook that there is to be.

        Raises:
            InvalidInputError: it has no address.
        """
        url = self.url
        if url is None and before is not None:
            url = before.url
        if url is None:
            detail = "give this: the query has no webhook"
            raise InvalidInputError([FieldError("#/webhook/url", detail)])
        if before is not None and "secret" not in self.model_fields_set:
            return Webhook(url, before.secret)
        return Webhook(url, self.secret or make_secret())


class StandingQueryChange(_Change):
    """What is to be another of a standing query; what is not given stays."""

    min_score: Cosine | None = optional("As in POST /standing-queries; null for none.")
    min_probability: Share | None = optional(
        "As in POST /standing-queries; null for none. Without any bound, the "
        "query gets the default."
    )
    max_false_positive_rate: Share | None = optional("As in POST /standing-queries; null for none.")
    webhook: WebhookChange | None = optional(
        "Another address or secret; null for no webhook. One where there was none receives what "
        "is found from now on; another one goes on with the first event that was not received."
    )
    paused: bool | None = optional(
        "True: nothing is compared or delivered. False: both go on where they were."
    )

    def apply(self, before: StandingQuery) -> StandingQuery:
        """Return what the query is to be."""
        given = self.model_dump(
            include={field.name for field in fields(Bounds)}, exclude_unset=True
        )
        bounds = replace(before.interest.bounds, **given)
        webhook = before.webhook
        if "webhook" in self.model_fields_set:
            webhook = None if self.webhook is None else self.webhook.apply(before.webhook)
        return replace(
            before,
            interest=replace(before.interest, bounds=bounds),
            webhook=webhook,
            paused=before.paused if self.paused is None else self.paused,
        )


class WebhookResponse(BaseModel):
    """A webhook, and how far it has come."""

    url: str = Field(description="Without path and query, which may be secret.")
    secret: str | None = nullable("Shown once, by the request that sets it; null ever after.")
    state: DeliveryState = Field(
        description="`active`, `retrying` after an attempt that failed, or `failed`: there will be "
        "no other until POST /standing-queries/{id}/resume."
    )
    delivered: int = Field(description="Number of the last event that was received.")
    attempts: int = Field(description="To deliver the next event, which all failed.")
    failure: str | None = nullable("Why the last attempt failed; null after a success.")
    retry_at: str | None = nullable("When the next attempt is due, ISO 8601 in UTC; null for none.")


class StandingQueryResponse(BaseModel):
    """A standing query, without its text."""

    id: str
    document: str | None = nullable("Id of the stored document; null for a text.")
    title: str = Field(description="Of the text.")
    mode: Mode
    filter: dict[str, Any] | None = nullable("The filter, as it is evaluated; null for none.")
    min_score: float | None = nullable("Null where it does not count.")
    min_probability: float | None = nullable("Null where it does not count.")
    max_false_positive_rate: float | None = nullable("Null where it does not count.")
    receipt: ReceiptBody | None = nullable("What was read of the text; null for a document.")
    created: str = Field(description="ISO 8601 in UTC; older documents are not new to it.")
    webhook: WebhookResponse | None = nullable("Where events are sent; null for nowhere.")
    paused: bool = Field(description="Nothing is compared or delivered; see PATCH.")
    detail: str | None = nullable("Why new documents wait and are not compared; null if they are.")


class StandingQueriesResponse(BaseModel):
    """A page of standing queries, the oldest first."""

    queries: list[StandingQueryResponse]
    next_cursor: str | None = nullable("Of the next page; null on the last one.")


class EventsResponse(BaseModel):
    """A page of events, the oldest first."""

    events: list[Event]
    last: int = Field(
        description="Number of the last event on this page, or `after` where there is none: give "
        "it as `after` to get the next ones."
    )


def standing_query_response(
    query: StandingQuery, *, with_secret: bool = False
) -> StandingQueryResponse:
    """Return the body of a standing query."""
    interest, receipt = query.interest, query.receipt
    return StandingQueryResponse(
        id=query.id,
        document=interest.document_id,
        title=interest.title,
        mode=interest.mode,
        filter=None if interest.where is None else filter_to_json(interest.where),
        min_score=interest.bounds.min_score,
        min_probability=interest.bounds.min_probability,
        max_false_positive_rate=interest.bounds.max_false_positive_rate,
        receipt=None if receipt is None else receipt_body(receipt),
        created=query.created,
        webhook=_webhook_response(query, with_secret=with_secret),
        paused=query.paused,
        detail=query.detail,
    )


def _webhook_response(query: StandingQuery, *, with_secret: bool) -> WebhookResponse | None:
    webhook, delivery = query.webhook, query.delivery
    if webhook is None:
        return None
    due = datetime.fromtimestamp(delivery.retry_at, UTC).isoformat(timespec="seconds")
    return WebhookResponse(
        url=parse_target(webhook.url).origin,
        secret=webhook.secret if with_secret else None,
        state=delivery.state,
        delivered=delivery.delivered,
        attempts=delivery.attempts,
        failure=delivery.failure,
        retry_at=due if delivery.state == "retrying" else None,
    )


PREFIX = "/standing-queries"


router = Router(prefix=PREFIX, tags=["standing queries"])

REQUESTS = {
    "text": {
        "summary": "New documents that match a text",
        "value": {
            "text": "Ant colonies find short paths. …",
            "max_false_positive_rate": 0.001,
            "webhook": {"url": "https://hooks.example.com/longmatch"},
        },
    },
    "document": {
        "summary": "New documents that match a stored one, only some of them",
        "value": {
            "id": "articles/ants",
            "mode": "semantic",
            "min_score": 0.6,
            "filter": {"field": "year", "range": {"gte": 2026}},
        },
    },
}
CHANGES = {
    "threshold": {"summary": "Report less", "value": {"max_false_positive_rate": 0.0001}},
    "secret": {"summary": "A new secret", "value": {"webhook": {"secret": None}}},
    "pause": {"summary": "Compare and send nothing for a while", "value": {"paused": True}},
}
QueryId = Annotated[
    str, Path(alias="id", openapi_examples={"one": {"value": "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f"}})
]


@router.post(
    "",
    summary="Make a standing query",
    status_code=201,
    response_model=StandingQueryResponse,
    responses=ENCODE(
        {201: "It is durable: every document stored from now on is compared"},
        "document-not-found",
        "too-many-standing-queries",
        "idempotency-key-in-use",
        "idempotency-key-reused",
    ),
)
async def post_standing_query(
    request: Annotated[StandingQueryRequest, Body(openapi_examples=REQUESTS)],
    http: Request,
    collection: CollectionDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Compare every new document with a text or a stored document, and tell of those that match.

    A document is new when it is stored with another text than before: by POST /index, an upload or
    `longmatch index`. It is scored as POST /match scores it, and what is inside the bounds becomes
    an event, once for each version of a document: see /standing-queries/{id}/events.
    """

    async def work() -> StoredResponse:
        webhook = None if request.webhook is None else request.webhook.to_webhook()
        await _check_webhook(collection, request.webhook)
        bounds = bounds_or_default(collection.calibrator, request.mode, request.bounds)
        made = await create_standing_query(
            collection, request.to_interest(bounds), request.text, webhook, strict=request.strict
        )
        body = standing_query_response(made, with_secret=True).model_dump_json().encode()
        prefix = http.state.prefix
        return StoredResponse(201, body, f"{prefix}{PREFIX}/{made.id}")

    return await respond_once(http, collection, idempotency_key, work)


async def _check_webhook(
    collection: Collection, webhook: WebhookRequest | WebhookChange | None
) -> None:
    """Refuse an address that a webhook may not reach, before anything is encoded or stored."""
    if webhook is None or webhook.url is None:
        return
    try:
        allowed = AllowedTargets(collection.engine.settings.webhook_hosts)
        await allowed.check(parse_target(webhook.url))
    except (TargetRefusedError, ValueError) as error:
        raise InvalidInputError([FieldError("#/webhook/url", str(error))]) from error


@router.get(
    "",
    summary="List the standing queries",
    responses=WRITE(
        {200: "A page"},
        "standing-query-not-found",
    ),
)
async def get_standing_queries(
    collection: CollectionDep, limit: PageSize = DEFAULT_PAGE, cursor: Cursor = ""
) -> StandingQueriesResponse:
    """Return the standing queries in the order in which they were made, without their texts."""
    standing, threads = collection.standing, collection.jobs.threads
    found = await run_in(threads, standing.store.listed, cursor, limit)
    return StandingQueriesResponse(
        queries=[standing_query_response(query) for query in found],
        next_cursor=write_cursor(found[-1].id) if len(found) == limit else None,
    )


LARGEST_NUMBER = 2**53 - 1  # that JavaScript knows exactly
EVENTS = WRITE({200: "A page"}, "standing-query-not-found")
After = Annotated[
    int,
    Query(
        ge=0,
        le=LARGEST_NUMBER,
        description="Number of an event: give later ones. By default, all that are kept.",
        openapi_examples={"some": {"value": 17}},
    ),
]


@router.get("/events", summary="Get the events of all standing queries", responses=EVENTS)
async def get_all_events(
    collection: CollectionDep, limit: PageSize = DEFAULT_PAGE, after: After = 0
) -> EventsResponse:
    """Return a page of the events of all standing queries.

    The last events of each query are kept, `max_standing_events` of them.
    """
    return await _events(collection, None, after, limit)


@router.get("/{id}/events", summary="Get the events of a standing query", responses=EVENTS)
async def get_events(
    query_id: QueryId,
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    after: After = 0,
) -> EventsResponse:
    """Return a page of the events of a standing query.

    Each is a version of a document that was stored after the query was made and matches it.
    """
    return await _events(collection, query_id, after, limit)


async def _events(
    collection: Collection, query_id: str | None, after: int, limit: int
) -> EventsResponse:
    standing, threads = collection.standing, collection.jobs.threads
    found = await run_in(threads, standing.store.events_after, after, limit, query_id)
    return EventsResponse(events=found, last=found[-1].number if found else after)


@router.get(
    "/{id}",
    summary="Get a standing query",
    responses=WRITE({200: "The standing query"}, "standing-query-not-found"),
)
async def get_standing_query(query_id: QueryId, collection: CollectionDep) -> StandingQueryResponse:
    """Return what a standing query looks for, and whether new documents are compared with it."""
    standing, threads = collection.standing, collection.jobs.threads
    return standing_query_response(await run_in(threads, standing.store.find, query_id))


@router.patch(
    "/{id}",
    summary="Change a standing query",
    responses=WRITE(
        {200: "It is durable, and holds for what is sent from now on"},
        "standing-query-not-found",
    ),
)
async def change_query(
    query_id: QueryId,
    request: Annotated[StandingQueryChange, Body(openapi_examples=CHANGES)],
    collection: CollectionDep,
) -> StandingQueryResponse:
    """Change the bounds or the webhook, or pause it; what is not given stays as it is.

    Documents that were not compared yet are compared inside the new bounds; events that were sent
    stay. What a query looks for is not changed: make another one.
    """
    await _check_webhook(collection, request.webhook)
    known: str | None = None

    def change(before: StandingQuery) -> StandingQuery:
        nonlocal known
        known = None if before.webhook is None else before.webhook.secret
        return request.apply(before)

    changed = await change_standing_query(collection, query_id, change)
    new = changed.webhook is not None and changed.webhook.secret != known
    return standing_query_response(changed, with_secret=new)


@router.post(
    "/{id}/resume",
    summary="Try a webhook again",
    responses=WRITE({200: "It is tried at once"}, "standing-query-not-found"),
)
async def resume_standing_query(
    query_id: QueryId, collection: CollectionDep
) -> StandingQueryResponse:
    """Deliver the events that wait, also after the last attempt failed; none is left out.

    Without a webhook, or where none waits, this does nothing.
    """
    standing, threads = collection.standing, collection.jobs.threads
    return standing_query_response(await run_in(threads, standing.resume, query_id))


@router.delete(
    "/{id}",
    summary="Delete a standing query and its events",
    status_code=204,
    responses=WRITE(
        {204: "It is deleted"},
        "standing-query-not-found",
    ),
)
async def remove_standing_query(query_id: QueryId, collection: CollectionDep) -> None:
    """Delete a standing query permanently, with its events."""
    await run_in(collection.jobs.threads, collection.standing.store.remove, query_id)
