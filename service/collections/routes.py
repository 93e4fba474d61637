"""GET /collections, and GET, PUT and DELETE /collections/{collection}."""

from typing import Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, Field

from service.access import bound_to
from service.collections.logic import create_collection, remove_collection
from service.deps import OpenEngineDep
from service.engine import Collection, Engine, UnopenedCollection
from service.errors import CollectionNotFoundError
from service.gate import Rules, declare
from service.openapi import READ, WRITE, CollectionName, Router
from service.ops.routes import CalibrationBody, calibration_body
from service.schemas import nullable
from service.threads import run_in


class CollectionBody(BaseModel):
    """A collection in the list of all."""

    name: str
    state: Literal["open", "unavailable"] = Field(
        description="Requests to an `unavailable` collection are answered with 503."
    )
    detail: str | None = nullable("Why it is unavailable; null while it is open.")
    documents: int | None = nullable("Documents in its index; null where it could not be opened.")
    generation: int | None = nullable("Generation of its index.")
    sequence: int | None = nullable(
        "Number of the last change of its documents that the index holds."
    )


class CollectionResponse(CollectionBody):
    """A collection."""

    reading_share: float | None = nullable(
        "Share of the sentence blocks of a document that the Transformer encodes."
    )
    calibration: CalibrationBody | None = nullable("Of its scores.")


class CollectionsResponse(BaseModel):
    """The collections that the client may see, the default one first, the others by name."""

    collections: list[CollectionBody]


def _described(member: Collection | UnopenedCollection) -> dict[str, Any]:
    known: dict[str, Any] = dict.fromkeys(CollectionResponse.model_fields)
    if isinstance(member, UnopenedCollection):
        return known | {"name": member.name, "state": "unavailable", "detail": member.reason}
    return known | {
        "name": member.name,
        "state": "open",
        "documents": member.data.documents,
        "generation": member.data.engine.generation,
        "sequence": member.data.engine.position,
        "reading_share": member.checkpoint.reading_share,
        "calibration": calibration_body(member.scoring.present),
    }


# As operations they do not count in the failure ratios.
router = Router(Rules(collection=False, cost="nothing"), prefix="/collections", tags=["operations"])


@router.get(
    "",
    summary="List the collections",
    responses=READ({200: "The collections"}),
)
async def get_collections(request: Request, engine: OpenEngineDep) -> CollectionsResponse:
    """Return all collections, or the one that the API key is bound to."""
    bound = bound_to(request.scope)
    members = engine.collections.members()
    return CollectionsResponse(
        collections=[
            CollectionBody(**_described(member))
            for member in members
            if bound in (None, member.name)
        ]
    )


@router.get(
    "/{collection}",
    summary="Get the state of a collection",
    responses=READ({200: "The collection"}, "collection-not-found"),
)
async def get_collection(
    name: CollectionName, request: Request, engine: OpenEngineDep
) -> CollectionResponse:
    """Return what a collection holds, and the calibration of its own."""
    _choose(request, name)
    return _state(engine, name)


@router.put(
    "/{collection}",
    summary="Create a collection",
    responses=WRITE(
        {200: "It existed", 201: {"model": CollectionResponse, "description": "It was created"}},
        "collection-not-found",
        "too-many-collections",
    ),
)
async def put_collection(
    name: CollectionName, request: Request, response: Response, engine: OpenEngineDep
) -> CollectionResponse:
    """Create an empty collection; one that exists stays as it is.

    One that could not be opened when the service started is opened, if that is possible now.
    """
    _choose(request, name)
    if await run_in(engine.changer, create_collection, engine, name):
        response.status_code = 201
    return _state(engine, name)


@router.delete(
    "/{collection}",
    summary="Delete a collection and all that it holds",
    status_code=204,
    responses=WRITE({204: "It is deleted"}, "collection-not-found"),
)
@declare(scope="admin")
async def delete_collection(name: CollectionName, request: Request, engine: OpenEngineDep) -> None:
    """Delete the documents, the index and the uploads of a collection; this takes the scope admin.

    Requests that use it may end; its jobs are cancelled. The default collection cannot be deleted.
    """
    _choose(request, name)
    await run_in(engine.changer, remove_collection, engine, name)


def _choose(request: Request, name: str) -> None:
    """Check that the API key may see a collection, which the log of changes then names."""
    if bound_to(request.scope) not in (None, name):
        raise CollectionNotFoundError(name)
    request.state.collection = name


def _state(engine: Engine, name: str) -> CollectionResponse:
    for member in engine.collections.members():
        if member.name == name:
            return CollectionResponse(**_described(member))
    raise CollectionNotFoundError(name)
