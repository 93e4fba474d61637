"""GET /standing-queries/events and /standing-queries/{id}/events: pages, or server-sent events."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from service.api.deps import Admitted, CollectionDep
from service.api.http.middleware import listens
from service.api.http.negotiation import JSON, choose_media_type
from service.api.http.problems import NOT_ACCEPTABLE
from service.api.openapi.responses import json_example, problem_responses
from service.api.openapi.router import Router
from service.api.schemas.paging import DEFAULT_PAGE, PageSize
from service.api.schemas.standing import EventsResponse, event_body
from service.api.standing.queries import PREFIX, PROBLEMS, QueryId
from service.engine import Collection
from service.matching.listening import follow_events, list_events
from service.standing.query import Event

EVENT_STREAM = "text/event-stream"
LARGEST_NUMBER = 2**53 - 1  # that JavaScript knows exactly
router = Router(prefix=PREFIX, tags=["standing queries"], dependencies=[Admitted])

EVENT = {
    "number": 17,
    "query": "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f",
    "created": "2026-01-31T12:00:00+00:00",
    "document": "articles/bees",
    "title": "Bees",
    "score": 0.61,
    "scored_as": "hybrid",
    "probability": 0.97,
    "false_positive_rate": 0.0004,
}
STREAM = (
    ": listening\n\n"
    'id: 17\nevent: match\ndata: {"number":17,"query":"3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f",'
    '"created":"2026-01-31T12:00:00+00:00","document":"articles/bees","title":"Bees",'
    '"score":0.61,"scored_as":"hybrid","probability":0.97,"false_positive_rate":0.0004}\n\n'
)
PAGE = json_example(
    {"events": [EVENT], "last": 17},
    "A page; with `Accept: text/event-stream`, server-sent events, which go on with those to come",
)
PAGE["content"][EVENT_STREAM] = {
    "schema": {"type": "string"},
    "examples": {"stream": {"value": STREAM}},
}
RESPONSES = {200: PAGE, **problem_responses(NOT_ACCEPTABLE, *PROBLEMS)}

After = Annotated[
    int,
    Query(
        ge=0,
        le=LARGEST_NUMBER,
        description="Number of an event: give later ones. By default, all that are kept. The "
        "header Last-Event-ID, which browsers send when they connect again, is the same.",
        openapi_examples={"some": {"value": 17}},
    ),
]
Accept = Annotated[str | None, Header(include_in_schema=False)]
LastEventId = Annotated[
    int,
    Header(
        ge=0,
        le=LARGEST_NUMBER,
        include_in_schema=False,
    ),
]


@router.get(
    "/events",
    summary="Get the events of all standing queries",
    response_model=EventsResponse,
    responses=RESPONSES,
)
async def get_all_events(
    request: Request,
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    after: After = 0,
    last_event_id: LastEventId = 0,
    accept: Accept = None,
) -> EventsResponse | StreamingResponse:
    """Return the events of all standing queries: a page, or server-sent events.

    The last events of each query are kept, `max_standing_events` of them.
    """
    if choose_media_type(accept, (JSON, EVENT_STREAM)) == EVENT_STREAM:
        return await _stream(request, collection, None, last_event_id or after)
    return _page(await list_events(collection, None, after, limit), after)


@router.get(
    "/{id}/events",
    summary="Get the events of a standing query",
    response_model=EventsResponse,
    responses=RESPONSES,
)
async def get_events(
    query_id: QueryId,
    request: Request,
    collection: CollectionDep,
    limit: PageSize = DEFAULT_PAGE,
    after: After = 0,
    last_event_id: LastEventId = 0,
    accept: Accept = None,
) -> EventsResponse | StreamingResponse:
    """Return the events of a standing query: a page, or server-sent events.

    Each is a version of a document that was stored after the query was made and matches it. As
    server-sent events, those to come follow; a comment comes every 15 seconds without one.
    """
    if choose_media_type(accept, (JSON, EVENT_STREAM)) == EVENT_STREAM:
        return await _stream(request, collection, query_id, last_event_id or after)
    return _page(await list_events(collection, query_id, after, limit), after)


def _page(events: Sequence[Event], after: int) -> EventsResponse:
    return EventsResponse(
        events=[event_body(one) for one in events], last=events[-1].number if events else after
    )


async def _stream(
    request: Request, collection: Collection, query_id: str | None, after: int
) -> StreamingResponse:
    followed = await follow_events(collection, query_id, after)
    listens(request.scope)
    # For proxies that would keep events until they have many.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(followed), media_type=EVENT_STREAM, headers=headers)


async def _lines(followed: AsyncIterator[list[Event]]) -> AsyncIterator[str]:
    async for events in followed:
        yield "".join(map(_line, events)) or ": listening\n\n"


def _line(event: Event) -> str:
    # JSON escapes line ends: the data is one line.
    return f"id: {event.number}\nevent: match\ndata: {event_body(event).model_dump_json()}\n\n"
