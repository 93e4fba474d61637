"""GET /collections, and GET, PUT and DELETE /collections/{collection}."""

from typing import Annotated

from fastapi import Path, Request, Response

from index.directory.collections import NAME_PATTERN
from service.api.deps import OpenEngineDep
from service.api.http.collections import bound_to
from service.api.http.problems import (
    COLLECTION_NOT_FOUND,
    INTERNAL_ERROR,
    INVALID_INPUT,
    NOT_READY,
    SHUTTING_DOWN,
    STORAGE_FAILED,
    STORAGE_FULL,
    TOO_MANY_COLLECTIONS,
)
from service.api.openapi.responses import json_example, problem_responses
from service.api.openapi.router import Router
from service.api.ops import VERSION
from service.api.schemas.collections import (
    CollectionResponse,
    CollectionsResponse,
    collection_body,
    collection_response,
)
from service.collections.changes import create_collection, remove_collection
from service.engine import Collection, Engine, UnopenedCollection
from service.errors import CollectionNotFoundError
from service.threads import run_in

# As operations they do not count in the failure ratios.
router = Router(prefix="/collections", tags=["operations"])

LISTED = {
    "name": "papers",
    "state": "open",
    "detail": None,
    "documents": 3418,
    "generation": 3,
    "sequence": 512,
}
ANSWER = {
    **LISTED,
    "reading_share": 1.0,
    "adapter": VERSION["adapter"],
    "calibration": VERSION["calibration"],
}
PROBLEMS = (COLLECTION_NOT_FOUND, INVALID_INPUT, INTERNAL_ERROR, NOT_READY, SHUTTING_DOWN)

CollectionName = Annotated[
    str,
    Path(
        alias="collection",
        pattern=NAME_PATTERN,
        description="The name of the collection.",
        openapi_examples={"papers": {"value": "papers"}},
    ),
]


@router.get(
    "",
    summary="List the collections",
    responses={
        200: json_example({"collections": [LISTED]}, "The collections"),
        **problem_responses(INTERNAL_ERROR, NOT_READY, SHUTTING_DOWN),
    },
)
async def get_collections(request: Request, engine: OpenEngineDep) -> CollectionsResponse:
    """Return all collections, or the one that the API key is bound to."""
    bound = bound_to(request.scope)
    members = engine.collections.members()
    return CollectionsResponse(
        collections=[collection_body(one) for one in members if bound in (None, one.name)]
    )


@router.get(
    "/{collection}",
    summary="Get the state of a collection",
    responses={200: json_example(ANSWER, "The collection"), **problem_responses(*PROBLEMS)},
)
async def get_collection(
    name: CollectionName, request: Request, engine: OpenEngineDep
) -> CollectionResponse:
    """Return what a collection holds, and the adapter and calibration of its own."""
    _choose(request, name)
    return _state(engine, name)


@router.put(
    "/{collection}",
    summary="Create a collection",
    responses={
        200: json_example(ANSWER, "It existed"),
        201: json_example({**ANSWER, "documents": 0, "sequence": 0}, "It was created"),
        **problem_responses(*PROBLEMS, TOO_MANY_COLLECTIONS, STORAGE_FULL, STORAGE_FAILED),
    },
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
    responses={
        204: {"description": "It is deleted"},
        **problem_responses(*PROBLEMS, STORAGE_FULL, STORAGE_FAILED),
    },
)
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
    found: list[Collection | UnopenedCollection] = [
        one for one in engine.collections.members() if one.name == name
    ]
    if not found:
        raise CollectionNotFoundError(name)
    return collection_response(found[0])
