"""The client that blocks, and what both clients share."""

import copy
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args, get_origin

import httpx

from longmatch import collection, operations, search, standing
from longmatch.requests import segment
from longmatch.retries import Caller, Retry
from longmatch.steps import (
    Emit,
    Emitting,
    Read,
    Reply,
    Send,
    Sleep,
    Step,
    Steps,
    Work,
)

DEFAULT_URL = "http://localhost:8000"
DEFAULT_TIMEOUT = 60.0
DEFAULT_CONNECT_TIMEOUT = 5.0
DEFAULT_CONNECTIONS = 20

# First segments of the paths that each collection has.
_OF_COLLECTIONS = frozenset(
    {
        *("match", "compare", "index", "documents", "jobs", "pairs", "feedback"),
        *("map", "facets"),
        *("standing-queries", "v1"),
    }
)

TOO_LONG = "the answer did not end in time"

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Options:
    """How a client calls: see `Client`."""

    retry: Retry
    timeout: float | None
    connect_timeout: float
    collection: str | None = None

    def caller(self) -> Caller:
        """Return who sends the requests of one call."""
        return Caller(self.retry, self.timeout)

    def path(self, path: str) -> str:
        """Return the path of a request, below the collection if it is one of a collection."""
        if self.collection is None or path.split("/", 2)[1] not in _OF_COLLECTIONS:
            return path
        return f"/collections/{segment(self.collection)}{path}"

    def limits(self, seconds: float | None) -> httpx.Timeout:
        """Return the limits of one attempt: of connecting, and between bytes."""
        given = [item for item in (seconds, self.timeout) if item is not None]
        between = min(given) if given else None
        connect = min([self.connect_timeout, *given])
        return httpx.Timeout(between, connect=connect)


def shown_signature(build: Callable[..., Any], iterator: Any = None) -> inspect.Signature:
    """Return the signature of the method made of `build`, which `help` shows.

    Args:
        build: takes the caller of one call first, and returns `Steps` or `Emitting`.
        iterator: what the method of an `Emitting` returns, such as `Iterator`.
    """
    signature = inspect.signature(build)
    _, *parameters = signature.parameters.values()
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    yielded, _, result = get_args(signature.return_annotation)
    if iterator is not None:
        (emitted,) = (part for part in get_args(yielded) if get_origin(part) is Emit)
        result = iterator[get_args(emitted)]
    shown = None if result is type(None) else result
    return signature.replace(parameters=[itself, *parameters], return_annotation=shown)


def _blocking(
    build: Callable[Concatenate[Caller, P], Steps[T]],
) -> Callable[Concatenate["Client", P], T]:
    @functools.wraps(build)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(build(self._options.caller(), *args, **kwargs))

    vars(method)["__signature__"] = shown_signature(build)
    return method


def _iterating(
    build: Callable[Concatenate[Caller, P], Emitting[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    @functools.wraps(build)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._iterate(build(self._options.caller(), *args, **kwargs))

    vars(method)["__signature__"] = shown_signature(build, Iterator)
    return method


class Configured:
    """What both clients have: copies with other options and the same connections."""

    _options: Options

    def with_timeout(self, seconds: float | None) -> Self:
        """Return a client with the same connections whose calls may take these seconds."""
        return self._with(timeout=seconds)

    def with_retry(self, retry: Retry) -> Self:
        """Return a client with the same connections which repeats like this."""
        return self._with(retry=retry)

    def in_collection(self, name: str | None) -> Self:
        """Return a client with the same connections for a collection; None for the default one."""
        return self._with(collection=name)

    def _with(self, **changed: Any) -> Self:
        other = copy.copy(self)
        other._options = replace(self._options, **changed)
        return other


class Client(Configured):
    """A client of a Longmatch server. Threads may share it.

    with Client("http://localhost:8000", api_key="lm_...") as client:
        for match in client.match("Ant colonies find short paths.").matches:
            print(match.score, match.id)
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        retry: Retry | None = None,
        max_connections: int = DEFAULT_CONNECTIONS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            url: of the server; may have a path.
            api_key: where the server asks for one.
            timeout: seconds of a call, repetitions included; None for any time. Uploads and
                iterations may take longer: for them it is the time between bytes.
            connect_timeout: seconds to connect.
            retry: how often to repeat, and how long to wait; by default, `Retry()`.
            max_connections: at most, at a time.
            transport: of httpx, for a proxy or custom certificates; it has its limits.
        """
        self._options = Options(retry or Retry(), timeout, connect_timeout)
        self._http = httpx.Client(
            base_url=url,
            headers=key_headers(api_key),
            limits=httpx.Limits(max_connections=max_connections),
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    match = _blocking(search.match)
    match_many = _blocking(search.match_many)
    match_examples = _blocking(search.match_examples)
    similar = _blocking(search.similar)
    compare = _blocking(search.compare)
    compare_as_page = _blocking(search.compare_as_page)
    embed = _blocking(operations.embed)
    read_file = _blocking(operations.read_file)
    create_standing_query = _blocking(standing.create_standing_query)
    standing_queries = _iterating(standing.standing_queries)
    standing_query = _blocking(standing.standing_query)
    change_standing_query = _blocking(standing.change_standing_query)
    delete_standing_query = _blocking(standing.delete_standing_query)
    resume_standing_query = _blocking(standing.resume_standing_query)
    events = _iterating(standing.events)
    follow_events = _iterating(standing.follow_events)
    index = _blocking(collection.index)
    upload = _blocking(collection.upload)
    document = _blocking(collection.document)
    delete = _blocking(collection.delete)
    documents = _iterating(collection.documents)
    family = _iterating(collection.family)
    facets = _blocking(collection.facets)
    map = _blocking(collection.map)
    export = _iterating(collection.export)
    pairs = _iterating(collection.pairs)
    give_feedback = _blocking(collection.give_feedback)
    feedback = _iterating(collection.feedback)
    delete_feedback = _blocking(collection.delete_feedback)
    job = _blocking(operations.job)
    jobs = _iterating(operations.jobs)
    cancel_job = _blocking(operations.cancel_job)
    wait_for_job = _blocking(operations.wait_for_job)
    version = _blocking(operations.version)
    ready = _blocking(operations.ready)
    wait_until_ready = _blocking(operations.wait_until_ready)
    is_alive = _blocking(operations.is_alive)
    metrics = _blocking(operations.metrics)
    models = _blocking(operations.models)
    model = _blocking(operations.model)
    problem = _blocking(operations.problem)
    collections = _blocking(operations.collections)
    collection_state = _blocking(operations.collection_state)
    create_collection = _blocking(operations.create_collection)
    delete_collection = _blocking(operations.delete_collection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = self._advance(steps, step, [])
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def _iterate(self, steps: Emitting[T]) -> Iterator[T]:
        opened: list[httpx.Response] = []
        try:
            step = next(steps)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = next(steps)
                else:
                    step = self._advance(steps, step, opened)
        except StopIteration:
            return
        finally:
            steps.close()
            for response in opened:
                response.close()

    def _advance(
        self, steps: Generator[S, Any, Any], step: Step, opened: list[httpx.Response]
    ) -> S:
        try:
            result = self._perform(step, opened)
        except Exception as error:
            return steps.throw(error)
        return steps.send(result)

    def _perform(self, step: Step, opened: list[httpx.Response]) -> Any:
        match step:
            case Send():
                return self._send(step, opened)
            case Read():
                return next(step.reply.stream, None)
            case Sleep():
                return time.sleep(step.seconds)
            case Work():
                return step.function()

    def _send(self, step: Send, opened: list[httpx.Response]) -> Reply:
        started = time.monotonic()
        file = step.request.file
        content = None if file is None else file.chunks()
        request = build_request(self._http, step, content, self._options)
        response = self._http.send(request, stream=True)
        if step.request.streamed and response.is_success:
            opened.append(response)
            return to_reply(response, stream=response.iter_bytes())
        with closing(response):
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if step.seconds is not None and time.monotonic() - started > step.seconds:
                    raise httpx.ReadTimeout(TOO_LONG)
            return to_reply(response, bytes(body))


def key_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers that every request has."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def build_request(
    http: httpx.Client | httpx.AsyncClient,
    step: Send,
    content: Iterator[bytes] | AsyncIterator[bytes] | None,
    options: Options,
) -> httpx.Request:
    """Return a request of httpx."""
    request = step.request
    given = {name: value for name, value in request.params.items() if value is not None}
    return http.build_request(
        request.method,
        options.path(request.path),
        params=given or None,
        headers=dict(request.headers),
        json=request.json,
        content=content,
        timeout=options.limits(step.seconds),
    )


def to_reply(response: httpx.Response, content: bytes = b"", stream: Any = None) -> Reply:
    """Return an answer of httpx as the steps read it."""
    return Reply(response.status_code, dict(response.headers), content, stream)
