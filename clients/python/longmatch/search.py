"""The methods that search: match, compare, similar; standing queries and their events.

The first argument of each is the `Caller` of one call, which the clients pass: their methods are
without it, and their documentation is what stands here.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longmatch.decoding import read_json, read_part, read_reply, read_value
from longmatch.errors import ConnectionFailedError
from longmatch.requests import (
    Align,
    Explain,
    Mode,
    Query,
    Rerank,
    Stored,
    Webhook,
    body_of,
    document_path,
    query_body,
    segment,
)
from longmatch.results import Comparison, Event, Matches, StandingQuery
from longmatch.retries import Caller
from longmatch.steps import Emit, Emitting, Reply, Request, Sleep, Steps

_HTML = "text/html"
_STANDING = "/standing-queries"
_EVENT_STREAM = "text/event-stream"
_DATA = b"data: "
_RECONNECT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """What to find for a query; None leaves the choice to the server.

    Attributes:
        top_k: how many matches.
        mode: by what documents are found and ranked.
        filter: a condition on the metadata, as JSON; see the documentation of filters.
        exclude: ids of documents not to return.
        min_score: of matches.
        min_probability: of matches; refused without a calibration.
        max_false_positive_rate: of matches; refused without a calibration of the corpus.
        align: whether, or how, the best candidates are aligned block by block.
        rerank: how many candidates to read together with the query.
        explain: whether, or how many of, the first matches say why they match.
        collapse: return one match of each family of copies and versions.
        strict: refuse a text that is too long to be read whole.
    """

    top_k: int | None = None
    mode: Mode | None = None
    filter: Mapping[str, Any] | None = None
    exclude: Sequence[str] | None = None
    min_score: float | None = None
    min_probability: float | None = None
    max_false_positive_rate: float | None = None
    align: bool | Align | None = None
    rerank: int | Rerank | None = None
    explain: bool | Explain | None = None
    collapse: bool | None = None
    strict: bool | None = None


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


@dataclass(frozen=True, slots=True)
class _StandingQueries:
    queries: list[StandingQuery]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class _Events:
    events: list[Event]
    last: int


@dataclass(frozen=True, slots=True)
class _Answers:
    results: list[Matches]


def match(caller: Caller, query: Query, options: MatchOptions | None = None) -> Steps[Matches]:
    """Find the documents that match a text or a stored document, best first.

    Args:
        query: a text, a `Text` with its title, or `Stored(id)`, which is left out of its matches.
        options: what to find.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    body = {**query_body(query), **_options(options)}
    reply = yield from caller.ask(Request(method="POST", path="/match", json=body))
    return read_reply(Matches, reply)


def match_many(
    caller: Caller, queries: Sequence[Query], options: MatchOptions | None = None
) -> Steps[list[Matches]]:
    """Find the documents that match each of several queries, in their order.

    Args:
        queries: as those of `match`; the server limits their number.
        options: for each of them.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    body = {"queries": [query_body(query) for query in queries], **_options(options)}
    reply = yield from caller.ask(Request(method="POST", path="/match", json=body))
    return read_reply(_Answers, reply).results


def match_examples(
    caller: Caller,
    like: Sequence[Query],
    unlike: Sequence[Query] = (),
    options: MatchOptions | None = None,
) -> Steps[Matches]:
    """Find the documents that match all of some examples, and none of others better.

    Args:
        like: as the queries of `match`; the server limits their number.
        unlike: examples of what is not looked for.
        options: what to find; without reranking and bounds that need a calibration.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    examples = {"like": [query_body(one) for one in like]}
    if unlike:
        examples["unlike"] = [query_body(one) for one in unlike]
    request = Request(method="POST", path="/match", json={**examples, **_options(options)})
    return read_reply(Matches, (yield from caller.ask(request)))


def similar(
    caller: Caller, document_id: str, *, top_k: int | None = None, min_score: float | None = None
) -> Steps[Matches]:
    """Find the documents that are nearest to a stored one, in semantic mode.

    Args:
        document_id: of the stored document.
        top_k: how many.
        min_score: of matches.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    reply = yield from caller.ask(
        Request(
            method="GET",
            path=document_path(document_id, "/similar"),
            params={"top_k": top_k, "min_score": min_score},
        )
    )
    return read_reply(Matches, reply)


def compare(
    caller: Caller,
    left: str | Stored,
    right: str | Stored,
    *,
    passages: int | None = None,
    strict: bool | None = None,
) -> Steps[Comparison]:
    """Say how two texts, or stored documents, match, and where.

    Args:
        left: a text, or `Stored(id)`.
        right: the other one.
        passages: how many to return at most.
        strict: refuse a text that is too long to be read whole.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    reply = yield from caller.ask(_comparison(left, right, passages, strict, {}))
    return read_reply(Comparison, reply)


def compare_as_page(
    caller: Caller,
    left: str | Stored,
    right: str | Stored,
    *,
    passages: int | None = None,
    strict: bool | None = None,
) -> Steps[str]:
    """Return the comparison as a page for a person, HTML in one file; as `compare`.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    request = _comparison(left, right, passages, strict, {"Accept": _HTML})
    reply = yield from caller.ask(request)
    return reply.content.decode()


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
        webhook: where to tell events; the secret of the answer signs them.
        idempotency_key: unique to this request; by default, a new one.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    given = asdict(options or StandingOptions())
    body = body_of(**query_body(query), **given, webhook=webhook)
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    request = Request(method="POST", path=_STANDING, json=body, headers=headers)
    return read_reply(StandingQuery, (yield from caller.ask(request)))


def standing_queries(caller: Caller, *, page_size: int | None = None) -> Emitting[StandingQuery]:
    """Iterate over the standing queries in the order in which they were made.

    Args:
        page_size: queries in one request.

    Raises:
        LongmatchError: see `longmatch.errors`.
    """
    cursor: str | None = None
    while True:
        params = {"limit": page_size, "cursor": cursor}
        reply = yield from caller.again().ask(Request(method="GET", path=_STANDING, params=params))
        page = read_reply(_StandingQueries, reply)
        for one in page.queries:
            yield Emit(one)
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


def standing_query(caller: Caller, query_id: str) -> Steps[StandingQuery]:
    """Return a standing query.

    Raises:
        NotFoundError: there is none of this id.
        LongmatchError: see `longmatch.errors`.
    """
    request = Request(method="GET", path=_standing_path(query_id))
    return read_reply(StandingQuery, (yield from caller.ask(request)))


def delete_standing_query(caller: Caller, query_id: str) -> Steps[None]:
    """Delete a standing query and its events.

    Raises:
        NotFoundError: there is none of this id.
        LongmatchError: see `longmatch.errors`.
    """
    yield from caller.ask(Request(method="DELETE", path=_standing_path(query_id), done_status=404))


def resume_standing_query(caller: Caller, query_id: str) -> Steps[StandingQuery]:
    """Try the webhook of a standing query again at once, also after its last attempt failed.

    Raises:
        NotFoundError: there is none of this id.
        LongmatchError: see `longmatch.errors`.
    """
    request = Request(method="POST", path=_standing_path(query_id, "/resume"))
    return read_reply(StandingQuery, (yield from caller.ask(request)))


def events(
    caller: Caller, query_id: str | None = None, *, after: int = 0, page_size: int | None = None
) -> Emitting[Event]:
    """Iterate over the events that are kept, the oldest first.

    Args:
        query_id: of a standing query; None for those of all.
        after: number of an event; later ones are given.
        page_size: events in one request.

    Raises:
        NotFoundError: there is no such standing query.
        LongmatchError: see `longmatch.errors`.
    """
    while True:
        params = {"limit": page_size, "after": after}
        request = Request(method="GET", path=_events_path(query_id), params=params)
        page = read_reply(_Events, (yield from caller.again().ask(request)))
        for one in page.events:
            yield Emit(one)
        if not page.events:
            return
        after = page.last


def follow_events(
    caller: Caller, query_id: str | None = None, *, after: int = 0
) -> Emitting[Event]:
    """Iterate over the events that are kept, and without an end over those to come.

    A connection that breaks is made again, and goes on after the last event, as often as the client
    repeats.

    Args:
        query_id: of a standing query; None for those of all.
        after: number of an event; later ones are given.

    Raises:
        NotFoundError: there is no such standing query, or it was removed meanwhile.
        LongmatchError: see `longmatch.errors`.
    """
    while True:
        headers = {"Accept": _EVENT_STREAM, "Last-Event-ID": str(after)}
        path = _events_path(query_id)
        request = Request(method="GET", path=path, headers=headers, streamed=True)
        reply = yield from caller.again().ask(request)
        rest = b""
        while (part := (yield from _next_part(reply))) is not None:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.startswith(_DATA):
                    event = read_value(Event, read_json(line.removeprefix(_DATA)))
                    after = event.number
                    yield Emit(event)
        yield Sleep(_RECONNECT_SECONDS)


def _next_part(reply: Reply) -> Steps[bytes | None]:
    """Return the next bytes; None where the stream ended or broke."""
    try:
        return (yield from read_part(reply))
    except ConnectionFailedError:
        return None


def _standing_path(query_id: str, below: str = "") -> str:
    return f"{_STANDING}/{segment(query_id)}{below}"


def _events_path(query_id: str | None) -> str:
    return f"{_STANDING}/events" if query_id is None else _standing_path(query_id, "/events")


def _options(options: MatchOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    given = {name: getattr(options, name) for name in MatchOptions.__dataclass_fields__}
    if options.exclude is not None:
        given["exclude"] = list(options.exclude)
    return body_of(**given)


def _comparison(
    left: str | Stored,
    right: str | Stored,
    passages: int | None,
    strict: bool | None,
    headers: Mapping[str, str],
) -> Request:
    sides = {"left": query_body(left), "right": query_body(right)}
    body = body_of(**sides, passages=passages, strict=strict)
    return Request(method="POST", path="/compare", json=body, headers=headers)
