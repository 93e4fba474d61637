"""The methods of standing queries and their events.

The clients pass the `Caller` of one call; these docstrings are those of their methods.
"""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from longmatch.decoding import fetch, read_field, read_pages
from longmatch.requests import Mode, Query, Webhook, body_of, query_body, segment
from longmatch.results import Event
from longmatch.retries import Caller
from longmatch.status import StandingQuery
from longmatch.steps import Emit, Emitting, Request, Sleep, Steps

_STANDING = "/standing-queries"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOptions:
    """Which new documents become events; None leaves the choice to the server.

    Attributes:
        mode: by what documents are scored.
        filter: a condition on the metadata, as JSON; see the documentation of filters.
        min_score: of events.
        min_probability: of events; refused without a calibration.
        max_false_positive_rate: of events; refused without a calibration of the corpus.
        strict: refuse a text that is too long to be read whole.
    """

    mode: Mode | None = None
    filter: Mapping[str, Any] | None = None
    min_score: float | None = None
    min_probability: float | None = None
    max_false_positive_rate: float | None = None
    strict: bool | None = None


def create_standing_query(
    caller: Caller,
    query: Query,
    options: StandingOptions | None = None,
    *,
    webhook: Webhook | None = None,
    idempotency_key: str | None = None,
) -> Steps[StandingQuery]:
    """Have every document that is stored from now on compared with a text or a stored document.

    Args:
        query: a text, or a stored document.
        options: which documents become events.
        webhook: where to send events; the secret of the answer signs them.
        idempotency_key: unique to this request; by default, a new one.
    """
    given = asdict(options or StandingOptions())
    body = body_of(**query_body(query), **given, webhook=webhook)
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    request = Request(method="POST", path=_STANDING, json=body, headers=headers)
    return fetch(caller, StandingQuery, request)


def standing_queries(caller: Caller, *, page_size: int | None = None) -> Emitting[StandingQuery]:
    """Iterate over the standing queries in the order in which they were made."""
    return read_pages(caller, _STANDING, page_size, "queries", StandingQuery)


def standing_query(caller: Caller, query_id: str) -> Steps[StandingQuery]:
    """Return a standing query."""
    request = Request(method="GET", path=_standing_path(query_id))
    return fetch(caller, StandingQuery, request)


def change_standing_query(
    caller: Caller, query_id: str, changes: Mapping[str, Any]
) -> Steps[StandingQuery]:
    """Change the bounds or the webhook of a standing query, or pause it.

    Args:
        query_id: of the query.
        changes: `min_score`, `min_probability`, `max_false_positive_rate`, `webhook` (a mapping of
            `url`, `secret` or both) and `paused`, as JSON. What is not given stays; None takes a
            bound or the webhook away, and as the secret, it lets the server make a new one.
    """
    request = Request(method="PATCH", path=_standing_path(query_id), json=dict(changes))
    return fetch(caller, StandingQuery, request)


def delete_standing_query(caller: Caller, query_id: str) -> Steps[None]:
    """Delete a standing query and its events."""
    yield from caller.ask(Request(method="DELETE", path=_standing_path(query_id), done_status=404))


def resume_standing_query(caller: Caller, query_id: str) -> Steps[StandingQuery]:
    """Try the webhook of a standing query again at once, also after its last attempt failed."""
    request = Request(method="POST", path=_standing_path(query_id, "/resume"))
    return fetch(caller, StandingQuery, request)


def events(
    caller: Caller, query_id: str | None = None, *, after: int = 0, page_size: int | None = None
) -> Emitting[Event]:
    """Iterate over the events that are kept, the oldest first.

    Args:
        query_id: of a standing query; None for those of all.
        after: number of an event; later ones are given.
    """
    while found := (yield from _page(caller, query_id, after, page_size)):
        for event in found:
            after = event.number
            yield Emit(event)


def follow_events(
    caller: Caller, query_id: str | None = None, *, after: int = 0
) -> Emitting[Event]:
    """Iterate over the events that are kept, and without an end over those to come.

    They are asked for once a second.

    Args:
        query_id: of a standing query; None for those of all.
        after: number of an event; later ones are given.
    """
    while True:
        while found := (yield from _page(caller, query_id, after, None)):
            for event in found:
                after = event.number
                yield Emit(event)
        yield Sleep(_POLL_SECONDS)


def _page(
    caller: Caller, query_id: str | None, after: int, limit: int | None
) -> Steps[list[Event]]:
    params = {"limit": limit, "after": after}
    request = Request(method="GET", path=_events_path(query_id), params=params)
    return read_field(list[Event], "events", (yield from caller.again().ask(request)))


def _standing_path(query_id: str, below: str = "") -> str:
    return f"{_STANDING}/{segment(query_id)}{below}"


def _events_path(query_id: str | None) -> str:
    return f"{_STANDING}/events" if query_id is None else _standing_path(query_id, "/events")
