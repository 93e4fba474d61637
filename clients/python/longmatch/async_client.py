"""The client that awaits."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from longmatch import collection, operations, search, standing
from longmatch.client import (
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_CONNECTIONS,
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    TOO_LONG,
    Configured,
    Options,
    build_request,
    key_headers,
    shown_signature,
    to_reply,
)
from longmatch.retries import Caller, Retry
from longmatch.steps import Emit, Emitting, FileBody, Read, Reply, Send, Sleep, Step, Steps, Work

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


def _awaiting(
    build: Callable[Concatenate[Caller, P], Steps[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(self._options.caller(), *args, **kwargs))

    vars(method)["__signature__"] = shown_signature(build)
    return method


def _iterating_async(
    build: Callable[Concatenate[Caller, P], Emitting[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    @functools.wraps(build)
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._iterate(build(self._options.caller(), *args, **kwargs))

    vars(method)["__signature__"] = shown_signature(build, AsyncIterator)
    return method


class AsyncClient(Configured):
    """A client of a Longmatch server for asyncio.

    async with AsyncClient("http://localhost:8000") as client:
        found = await client.match("Ant colonies find short paths.")
        async for document in client.documents():
            print(document.id)
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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Open no connection yet; arguments as those of `Client`."""
        self._options = Options(retry or Retry(), timeout, connect_timeout)
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=key_headers(api_key),
            transport=transport or _LimitedTransport(max_connections),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    match = _awaiting(search.match)
    match_many = _awaiting(search.match_many)
    match_examples = _awaiting(search.match_examples)
    similar = _awaiting(search.similar)
    compare = _awaiting(search.compare)
    compare_as_page = _awaiting(search.compare_as_page)
    embed = _awaiting(operations.embed)
    read_file = _awaiting(operations.read_file)
    create_standing_query = _awaiting(standing.create_standing_query)
    standing_queries = _iterating_async(standing.standing_queries)
    standing_query = _awaiting(standing.standing_query)
    change_standing_query = _awaiting(standing.change_standing_query)
    delete_standing_query = _awaiting(standing.delete_standing_query)
    resume_standing_query = _awaiting(standing.resume_standing_query)
    events = _iterating_async(standing.events)
    follow_events = _iterating_async(standing.follow_events)
    index = _awaiting(collection.index)
    upload = _awaiting(collection.upload)
    document = _awaiting(collection.document)
    delete = _awaiting(collection.delete)
    documents = _iterating_async(collection.documents)
    family = _iterating_async(collection.family)
    facets = _awaiting(collection.facets)
    map = _awaiting(collection.map)
    export = _iterating_async(collection.export)
    pairs = _iterating_async(collection.pairs)
    give_feedback = _awaiting(collection.give_feedback)
    feedback = _iterating_async(collection.feedback)
    delete_feedback = _awaiting(collection.delete_feedback)
    job = _awaiting(operations.job)
    jobs = _iterating_async(operations.jobs)
    cancel_job = _awaiting(operations.cancel_job)
    wait_for_job = _awaiting(operations.wait_for_job)
    version = _awaiting(operations.version)
    ready = _awaiting(operations.ready)
    wait_until_ready = _awaiting(operations.wait_until_ready)
    is_alive = _awaiting(operations.is_alive)
    metrics = _awaiting(operations.metrics)
    models = _awaiting(operations.models)
    model = _awaiting(operations.model)
    problem = _awaiting(operations.problem)
    collections = _awaiting(operations.collections)
    collection_state = _awaiting(operations.collection_state)
    create_collection = _awaiting(operations.create_collection)
    delete_collection = _awaiting(operations.delete_collection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                # A StopIteration must not leave a coroutine, so steps are resumed in this one.
                result = await self._perform(step, [])
                step = result.resume(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def _iterate(self, steps: Emitting[T]) -> AsyncIterator[T]:
        opened: list[httpx.Response] = []
        try:
            step = next(steps)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = next(steps)
                else:
                    result = await self._perform(step, opened)
                    step = result.resume(steps)
        except StopIteration:
            return
        finally:
            steps.close()
            for response in opened:
                await response.aclose()

    async def _perform(self, step: Step, opened: list[httpx.Response]) -> "_Outcome":
        try:
            match step:
                case Send():
                    return _Outcome(await self._send(step, opened))
                case Read():
                    return _Outcome(await anext(step.reply.stream, None))
                case Sleep():
                    await asyncio.sleep(step.seconds)
                    return _Outcome()
                case Work():
                    return _Outcome(await asyncio.to_thread(step.function))
        except Exception as error:
            return _Outcome(error=error)

    async def _send(self, step: Send, opened: list[httpx.Response]) -> Reply:
        file = step.request.file
        content = None if file is None else _chunks(file)
        request = build_request(self._http, step, content, self._options)
        try:
            async with asyncio.timeout(step.seconds):
                response = await self._http.send(request, stream=True)
                if step.request.streamed and response.is_success:
                    opened.append(response)
                    return to_reply(response, stream=response.aiter_bytes())
                try:
                    return to_reply(response, await response.aread())
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise httpx.ReadTimeout(TOO_LONG) from error


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What performing a step gave: a result or an error."""

    result: Any = None
    error: Exception | None = None

    def resume(self, steps: Generator[S, Any, Any]) -> S:
        """Let the steps go on with it."""
        return steps.send(self.result) if self.error is None else steps.throw(self.error)


class _LimitedTransport(httpx.AsyncHTTPTransport):
    """Has so many requests under way at most; others wait for them.

    The pool of httpx counts connections instead, and one whose request is cancelled just after it
    was made is counted forever (httpcore 1.0.9): a client would come to a stop.
    """

    def __init__(self, most: int) -> None:
        super().__init__(limits=httpx.Limits(max_connections=None))
        self._places = asyncio.Semaphore(most)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(request.extensions["timeout"]["pool"]):
                await self._places.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout("no connection became free", request=request) from error
        try:
            response = await super().handle_async_request(request)
        except BaseException:
            self._places.release()
            raise
        body = cast(httpx.AsyncByteStream, response.stream)
        response.stream = _PlacedStream(body, self._places)
        return response


class _PlacedStream(httpx.AsyncByteStream):
    """The body of an answer, which gives its place back when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, places: asyncio.Semaphore) -> None:
        self._stream = stream
        self._places = places
        self._open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            if self._open:
                self._open = False
                self._places.release()


async def _chunks(file: FileBody) -> AsyncIterator[bytes]:
    for chunk in file.chunks():
        yield chunk
