"""The events of standing queries: pages of them, and those that are to come."""

import asyncio
from collections.abc import AsyncIterator

from service.engine import Collection
from service.errors import StandingQueryNotFoundError
from service.standing.query import Event, StandingQuery
from service.threads import run_in

HEARTBEAT_SECONDS = 15.0
_POLL_SECONDS = 0.2
_EVENTS_AT_A_TIME = 100


async def find_query(collection: Collection, query_id: str) -> StandingQuery:
    """Return a standing query.

    Raises:
        StandingQueryNotFoundError: there is none of this id.
    """
    standing = collection.standing
    return await run_in(collection.jobs.threads, standing.queries.find, query_id)


async def list_events(
    collection: Collection, query_id: str | None, after: int, limit: int
) -> list[Event]:
    """Return the first events after a number, of a query or of all.

    Raises:
        StandingQueryNotFoundError: there is no such query.
        StoreError: they cannot be read.
    """
    query = None if query_id is None else await find_query(collection, query_id)
    return await _events(collection, query, after, limit)


async def follow_events(
    collection: Collection, query_id: str | None, after: int
) -> AsyncIterator[list[Event]]:
    """Return the events after a number, of a query or of all, and then those to come.

    It ends when the query or the collection is removed, or the service stops. Between the events,
    and at first, come empty lists, so that who is gone is noticed.

    Raises:
        OverloadedError: too many clients listen.
        StandingQueryNotFoundError: there is no such query.
        StoreError: events cannot be read.
    """
    query = None if query_id is None else await find_query(collection, query_id)
    listening = _follow(collection, query, after)
    await anext(listening)  # takes its place, or raises
    return listening


async def _follow(
    collection: Collection, query: StandingQuery | None, after: int
) -> AsyncIterator[list[Event]]:
    with collection.engine.listeners.admit():
        yield []  # to `follow_events`
        yield []  # to the client: the head of the response is sent with it
        sent = -1
        while await _exists(collection, query):
            waited = 0.0
            while collection.standing.last_event == sent and waited < HEARTBEAT_SECONDS:
                await asyncio.sleep(_POLL_SECONDS)
                waited += _POLL_SECONDS
                if _is_over(collection):
                    return
            last = collection.standing.last_event
            if sent == last:
                yield []
            while events := await _events(collection, query, after, _EVENTS_AT_A_TIME):
                after = events[-1].number
                yield events
            sent = last


async def _exists(collection: Collection, query: StandingQuery | None) -> bool:
    if query is not None:
        try:
            await find_query(collection, query.id)
        except StandingQueryNotFoundError:
            return False
    return not _is_over(collection)


def _is_over(collection: Collection) -> bool:
    engine = collection.engine
    return engine.listeners.closing or not engine.collections.has(collection)


async def _events(
    collection: Collection, query: StandingQuery | None, after: int, limit: int
) -> list[Event]:
    threads = collection.jobs.threads
    return await run_in(threads, collection.standing.events.after, after, limit, query)
