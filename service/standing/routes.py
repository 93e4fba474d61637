"""/standing-queries: made, listed, changed, removed; and their events."""

from operator import attrgetter
from typing import Annotated

from fastapi import Body, Path, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from service.body import JSON
from service.deps import DEFAULT_PAGE, CollectionDep, Cursor, IdempotencyKey, PageSize, respond_once
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.openapi import ENCODE, WRITE, Router
from service.schemas import next_cursor
from service.standing import schemas
from service.standing.logic import change_standing_query, create_standing_query
from service.standing.store import StandingQuery
from service.standing.targets import AllowedTargets, parse_target
from service.state import StoredResponse
from service.threads import run_in

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
    response_model=StandingQuery,
    responses=ENCODE(
        {201: "It is durable: every document stored from now on is compared"},
        "document-not-found",
        "too-many-standing-queries",
        "idempotency-key-in-use",
        "idempotency-key-reused",
    ),
)
async def post_standing_query(
    request: Annotated[schemas.StandingQueryRequest, Body(openapi_examples=REQUESTS)],
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
        made = await create_standing_query(
            collection, request.to_interest(), request.text, webhook, strict=request.strict
        )
        place = f"{http.state.prefix}{PREFIX}/{made.id}"
        return StoredResponse(201, _with_secret(made), place)

    return await respond_once(http, collection, idempotency_key, work)


def _with_secret(query: StandingQuery) -> bytes:
    """Return the JSON of a query with the secret of its webhook, which is shown once."""
    shown = query.model_dump(mode="json")
    if query.webhook is not None:
        shown["webhook"]["secret"] = query.webhook.secret
    return to_json(shown)


async def _check_webhook(
    collection: Collection, webhook: schemas.WebhookRequest | schemas.WebhookChange | None
) -> None:
    """Refuse an address that a webhook may not reach, before anything is encoded or stored."""
    if webhook is None or webhook.url is None:
        return
    try:
        allowed = AllowedTargets(collection.engine.settings.webhook_hosts)
        await allowed.check(parse_target(webhook.url))
    except ValueError as error:
        raise InvalidInputError([FieldError("#/webhook/url", str(error))]) from error


@router.get(
    "",
    summary="List the standing queries",
    responses=WRITE({200: "A page"}, "standing-query-not-found"),
)
async def get_standing_queries(
    collection: CollectionDep, limit: PageSize = DEFAULT_PAGE, cursor: Cursor = ""
) -> schemas.StandingQueriesResponse:
    """Return the standing queries in the order in which they were made, without their texts."""
    found = await run_in(collection.jobs.threads, collection.standing.store.listed, cursor, limit)
    return schemas.StandingQueriesResponse(
        queries=found,
        next_cursor=next_cursor(found, limit, attrgetter("id")),
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
) -> schemas.EventsResponse:
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
) -> schemas.EventsResponse:
    """Return a page of the events of a standing query.

    Each is a version of a document that was stored after the query was made and matches it.
    """
    return await _events(collection, query_id, after, limit)


async def _events(
    collection: Collection, query_id: str | None, after: int, limit: int
) -> schemas.EventsResponse:
    store = collection.standing.store
    found = await run_in(collection.jobs.threads, store.events_after, after, limit, query_id)
    return schemas.EventsResponse(events=found, last=found[-1].number if found else after)


@router.get(
    "/{id}",
    summary="Get a standing query",
    responses=WRITE({200: "The standing query"}, "standing-query-not-found"),
)
async def get_standing_query(query_id: QueryId, collection: CollectionDep) -> StandingQuery:
    """Return what a standing query looks for, and whether new documents are compared with it."""
    return await run_in(collection.jobs.threads, collection.standing.store.find, query_id)


@router.patch(
    "/{id}",
    summary="Change a standing query",
    response_model=StandingQuery,
    responses=WRITE(
        {200: "It is durable, and holds for what is sent from now on"}, "standing-query-not-found"
    ),
)
async def change_query(
    query_id: QueryId,
    request: Annotated[schemas.StandingQueryChange, Body(openapi_examples=CHANGES)],
    collection: CollectionDep,
) -> StandingQuery | Response:
    """Change the bounds or the webhook, or pause it; what is not given stays as it is.

    Documents that were not compared yet are compared inside the new bounds; events that were sent
    stay. What a query looks for is not changed: make another one.
    """
    await _check_webhook(collection, request.webhook)
    before, changed = await change_standing_query(collection, query_id, request.apply)
    known = before.webhook and before.webhook.secret
    if changed.webhook is None or changed.webhook.secret == known:
        return changed
    return Response(_with_secret(changed), media_type=JSON)


@router.post(
    "/{id}/resume",
    summary="Try a webhook again",
    responses=WRITE({200: "It is tried at once"}, "standing-query-not-found"),
)
async def resume_standing_query(query_id: QueryId, collection: CollectionDep) -> StandingQuery:
    """Deliver the events that wait, also after the last attempt failed; none is left out.

    Without a webhook, or where none waits, this does nothing.
    """
    return await run_in(collection.jobs.threads, collection.standing.resume, query_id)


@router.delete(
    "/{id}",
    summary="Delete a standing query and its events",
    status_code=204,
    responses=WRITE({204: "It is deleted"}, "standing-query-not-found"),
)
async def remove_standing_query(query_id: QueryId, collection: CollectionDep) -> None:
    """Delete a standing query permanently, with its events."""
    await run_in(collection.jobs.threads, collection.standing.store.remove, query_id)
