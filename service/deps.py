"""Dependencies of the routes as annotated aliases, and responses that are given once for a key.

Dependencies depend on the request alone: FastAPI resolves each one for every request.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator

from service.access import own_name
from service.body import media_type
from service.engine import Collection, Engine, unready_because
from service.errors import NotReadyError
from service.schemas import read_cursor
from service.state import StoredResponse
from service.threads import run_in


async def get_open_engine(request: Request) -> Engine:
    """Return the engine of the application, ready or not."""
    engine: Engine = request.app.state.engine
    return engine


OpenEngineDep = Annotated[Engine, Depends(get_open_engine)]


async def get_engine(request: Request) -> Engine:
    """Return the engine, or raise NotReadyError if it is not ready."""
    engine = await get_open_engine(request)
    reason = unready_because(engine)
    if reason is not None:
        raise NotReadyError(reason)
    return engine


EngineDep = Annotated[Engine, Depends(get_engine)]


async def get_open_collection(request: Request) -> Collection:
    """Return the collection of a request, for what can be answered while it is not well."""
    engine = await get_open_engine(request)
    used: Collection | None = getattr(request.state, "used", None)  # stays open for the request
    return engine.collections.find(request.state.collection) if used is None else used


OpenCollectionDep = Annotated[Collection, Depends(get_open_collection)]


async def get_collection(request: Request) -> Collection:
    """Return the collection of a request, if it and the engine are ready."""
    await get_engine(request)
    return await get_open_collection(request)


CollectionDep = Annotated[Collection, Depends(get_collection)]

DEFAULT_PAGE = 100
Cursor = Annotated[
    str,
    AfterValidator(read_cursor),
    Query(
        max_length=8_192,
        description="`next_cursor` of the previous page; by default, the first page.",
        openapi_examples={"some": {"value": "YXJ0aWNsZXMvYmVlcw"}},
    ),
]

PageSize = Annotated[
    int,
    Query(
        ge=1,
        le=1_000,
        description="Documents on a page.",
        openapi_examples={"some": {"value": DEFAULT_PAGE}},
    ),
]


REPLAYED = "Idempotency-Replayed"

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A text of your own, unique to this request: 1 to 255 printable ASCII "
        "characters without spaces. If the same request arrives again within 24 hours, it gets the "
        "first response again and nothing is done.",
        openapi_examples={"uuid": {"value": "8e03978e-40d5-43dd-bc93-6894a57f9324"}},
    ),
]


async def respond_once(
    request: Request,
    collection: Collection,
    key: str | None,
    work: Callable[[], Awaitable[StoredResponse]],
    body_digest: bytes | None = None,
) -> Response:
    """Do the work of a request, unless it was done before under the key that it has.

    Only a success is stored: after a failure nothing was done, and the request may be repeated.

    Args:
        request: that was received.
        collection: of it.
        key: its Idempotency-Key, if it has one.
        work: makes the response.
        body_digest: SHA-256 of a body that is not held in memory.
    """
    name = own_name(request.scope, key)
    if name is None:
        return _to_response(await work(), replayed=False)
    store, threads = collection.jobs.idempotency, collection.jobs.threads
    if body_digest is None:
        body_digest = hashlib.sha256(await request.body()).digest()
    kind = media_type(request.headers).encode()
    digest = hashlib.sha256(kind + b"\0" + body_digest).digest()
    with store.in_progress(name):
        stored = await run_in(threads, store.find, name, digest)
        if stored is not None:
            return _to_response(stored, replayed=True)
        response = await work()
        await run_in(threads, store.put, name, digest, response)
    return _to_response(response, replayed=False)


def _to_response(stored: StoredResponse, *, replayed: bool) -> Response:
    """Return the HTTP response of a stored one."""
    headers = {"Location": stored.location} if stored.location else {}
    if replayed:
        headers[REPLAYED] = "true"
    return Response(stored.body, stored.status, headers, media_type="application/json")
