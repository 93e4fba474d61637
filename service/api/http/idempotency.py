"""Idempotency-Key: the answer to a repeated request is the one that was given before."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from service.engine import Engine
from service.jobs.idempotency import StoredResponse, request_digest
from service.threads import run_in

REPLAYED = "Idempotency-Replayed"

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text of your own that you give to no other request: when the same "
        "request comes again within 24 hours, its first answer is given again and nothing is done.",
        openapi_examples={"uuid": {"value": "8e03978e-40d5-43dd-bc93-6894a57f9324"}},
    ),
]


async def answer_once(
    engine: Engine, key: str, body: bytes, work: Callable[[], Awaitable[bytes]]
) -> Response:
    """Do the work of a request, unless it was done before under this key.

    An answer that is no success is not kept: nothing was done, so the request may be repeated.

    Args:
        engine: where answers are kept.
        key: of the request.
        body: of the request.
        work: returns the JSON of the answer.

    Raises:
        KeyInUseError: the work is being done.
        KeyReusedError: the key was given with another body.
        StoreError: the work is done, but its answer could not be kept.
    """
    answers, threads = engine.jobs.answers, engine.jobs.threads
    request = request_digest("json", hashlib.sha256(body).digest())
    with answers.in_progress(key):
        kept = await run_in(threads, answers.find, key, request)
        if kept is not None:
            return to_response(kept, replayed=True)
        answer = StoredResponse(200, await work())
        await run_in(threads, answers.keep, key, request, answer)
    return to_response(answer, replayed=False)


def to_response(answer: StoredResponse, *, replayed: bool) -> Response:
    """Send an answer as it is kept."""
    headers = {"Location": answer.location} if answer.location else {}
    if replayed:
        headers[REPLAYED] = "true"
    return Response(answer.body, answer.status, headers, media_type="application/json")
