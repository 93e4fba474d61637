"""GET /map."""

from typing import Annotated

from fastapi import Header, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from service.deps import CollectionDep
from service.errors import FieldError, InvalidInputError
from service.map.logic import MAX_POINTS, OTHER, SIDE, Cluster, CorpusMap
from service.openapi import READ, Router
from service.schemas import nullable
from service.threads import run_in

router = Router(tags=["documents"])


class MapResponse(BaseModel):
    """A point for each document, near those that resemble it."""

    sequence: int = Field(description="Number of the last change of the documents that it shows.")
    progress: float | None = nullable(
        "Share that is made of the map of the documents as they are now; null: this is that map. "
        "Until then it is the one before, at first without points: ask again."
    )
    documents: int = Field(description="Documents of the collection then.")
    ids: list[str] = Field(description=f"Of the documents shown: at most {MAX_POINTS}.")
    x: list[int] = Field(description=f"Of each, from 0 to {SIDE - 1}.")
    y: list[int]
    clusters: list[Cluster]
    cluster: list[int] = Field(description="The cluster of each document, as its place in that.")
    fields: list[str] = Field(description="Of the metadata, that `field` can be.")
    values: list[str | int | float | bool] = Field(description="The frequent ones of `field`.")
    value: list[int] = Field(description=f"The value of each document; {OTHER}: none of them.")


def _map_json(found: CorpusMap, progress: float | None, name: str | None) -> bytes:
    colouring = None if name is None else found.fields.get(name)
    x, y = found.places.T.tolist()
    return to_json(
        {
            "sequence": found.sequence,
            "progress": progress,
            "documents": found.documents,
            "ids": found.ids,
            "x": x,
            "y": y,
            "clusters": found.clusters,
            "cluster": found.of,
            "fields": list(found.fields),
            "values": [] if colouring is None else colouring.values,
            "value": [] if colouring is None else colouring.of,
        }
    )


@router.get(
    "/map",
    summary="Get a map of the documents",
    response_model=MapResponse,
    responses=READ({200: "The map, or the one before it; 304 if it is that of `If-None-Match`"}),
)
async def get_map(
    collection: CollectionDep,
    field: Annotated[
        str | None,
        Query(
            description="Name of a field of the metadata to colour by, one of `fields`.",
            openapi_examples={"kind": {"value": "kind"}},
        ),
    ] = None,
    if_none_match: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Return the documents in the plane: neighbours on it resemble each other.

    It is made at the first request and after changes, in the background: the documents of a large
    collection are chosen evenly. The positions say nothing but who is near whom.
    """
    readers = collection.engine.readers
    found, progress = await run_in(readers, collection.map.read)
    if field is not None and progress is None and field not in found.fields:
        named = ", ".join(found.fields) or "none"
        detail = f"it distinguishes no documents; those that do: {named}"
        raise InvalidInputError([FieldError("", detail, parameter="field")])
    headers = {"Cache-Control": "no-cache"}
    if progress is None:
        headers["ETag"] = f'"{found.sequence}"'
        if if_none_match == headers["ETag"]:
            return Response(status_code=304, headers=headers)
    body = await run_in(readers, _map_json, found, progress, field)
    return Response(body, media_type="application/json", headers=headers)
