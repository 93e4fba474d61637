"""Idempotency-Key: a repeated request gets the response that was given the first time."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from service.engine import Collection
from service.jobs.idempotency import StoredResponse, request_digest
from service.threads import run_in

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
    collection: Collection, key: str, body: bytes, work: Callable[[], Awaitable[StoredResponse]]
) -> Response:
    """Do the work of a request, unless it was done before under this key.

    Only a success is stored: after a failure nothing was done, and the request may be repeated.

    Args:
        collection: where responses are stored.
        key: of the request.
        body: of the request.
        work: returns the response.

    Raises:
        KeyInUseError: the work is being done.
        KeyReusedError: the key was used with another body.
        StoreError: the work is done, but its response could not be stored.
    """
    store, threads = collection.jobs.idempotency, collection.jobs.threads
    request = request_digest("json", hashlib.sha256(body).digest())
    with store.in_progress(key):
        stored = await run_in(threads, store.find, key, request)
        if stored is not None:
            return to_response(stored, replayed=True)
        response = await work()
        await run_in(threads, store.put, key, request, response)
    return to_response(response, replayed=False)


def to_response(stored: StoredResponse, *, replayed: bool) -> Response:
    """Return the HTTP response of a stored one."""
    headers = {"Location": stored.location} if stored.location else {}
    if replayed:
        headers[REPLAYED] = "true"
    return Response(stored.body, stored.status, headers, media_type="application/json")
