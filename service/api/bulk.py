"""POST /index with lines of JSON: streamed to the disk, indexed in the background."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from service.api.deps import Admitted, EngineDep
from service.api.http.idempotency import IdempotencyKey, to_response
from service.api.http.middleware import MEDIA_TYPE, PATH, is_bulk
from service.api.schemas.jobs import AcceptedBody, accepted_answer
from service.bulk_upload import submit_upload
from service.errors import UnsupportedMediaTypeError

EXAMPLE = (
    '{"id": "articles/ants", "text": "Ants find short paths. …"}\n'
    '{"id": "articles/bees", "title": "Bees", "text": "Bees dance. …", "year": 2021}\n'
)
# What the OpenAPI document says of these requests: it stands at the route for JSON, since one path
# and method has one description.
REQUEST_BODY: dict[str, Any] = {
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "string",
                "description": "A document on each line: `id` and `text`, optionally `title` and "
                "`metadata`; other fields go to the metadata. `Content-Encoding: gzip` is taken.",
            },
            "examples": {"two": {"summary": "Two documents", "value": EXAMPLE}},
        }
    }
}
ACCEPTED: dict[str, Any] = {
    "model": AcceptedBody,
    "description": "The lines are durable and will be indexed; Location is the job's",
    "headers": {"Location": {"schema": {"type": "string"}, "description": "/jobs/{id}"}},
    "content": {
        "application/json": {
            "examples": {
                "answer": {
                    "value": {"id": "3f2b8c1e9d6a4f7f8f0e3a1b2c3d4e5f", "accepted": 2, "size": 138}
                }
            }
        }
    },
}


class BulkRoute(APIRoute):
    """A route for lines of JSON alone."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Let the route of the same path have every other request."""
        return super().matches(scope) if is_bulk(scope) else (Match.NONE, {})


router = APIRouter(tags=["documents"], route_class=BulkRoute)


@router.post(PATH, dependencies=[Admitted], include_in_schema=False)
async def post_lines(
    request: Request, engine: EngineDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Take an upload; the answer is given when it is durable, and before it is indexed."""
    answer, replayed = await submit_upload(
        engine, _chunks(request), accepted_answer, gzip=_is_gzip(request), key=idempotency_key
    )
    return to_response(answer, replayed=replayed)


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk


def _is_gzip(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "x-gzip", "identity"):
        raise UnsupportedMediaTypeError("send the lines as they are, or as gzip")
    return encoding != "identity"
