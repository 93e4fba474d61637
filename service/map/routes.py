"""GET /map: the documents of a collection as points, near ones together."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, Field

from index.map import MOST_DOCUMENTS, MOST_GROUPS
from service.body import JSON
from service.deps import CollectionDep
from service.map.logic import MOST_VALUES, SIDE, DocumentMap
from service.openapi import READ, Router
from service.schemas import nullable
from service.threads import run_in

router = Router(tags=["documents"])
_MOST_CHARACTERS = 200  # of the name of a field


class MapGroupBody(BaseModel):
    """A group of documents that lie together."""

    words: list[str] = Field(description="That set its documents apart, the most telling first.")
    documents: int
    x: int
    y: int


class MapResponse(BaseModel):
    """The map of a collection: lists of the same length, an entry for each document on it."""

    documents: int = Field(
        description=f"Of the collection; of more than {MOST_DOCUMENTS:,}, a sample is on the map."
    )
    ids: list[str]
    titles: list[str]
    x: list[int] = Field(description=f"From 0 to {SIDE}.")
    y: list[int] = Field(description=f"From 0 to {SIDE}.")
    group_of: list[int] = Field(description="The row in `groups`.")
    groups: list[MapGroupBody] = Field(description=f"At most {MOST_GROUPS}.")
    values: list[str] | None = nullable(
        f"The most frequent values of `field`, at most {MOST_VALUES}; null without `field`."
    )
    value_of: list[int | None] | None = nullable(
        "The row in `values`; null for a document with another value, or with none."
    )


@router.get(
    "/map",
    summary="Return a map of the documents",
    response_model=MapResponse,
    responses=READ({200: "The map"}),
)
async def get_map(
    collection: CollectionDep,
    field: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=_MOST_CHARACTERS,
            description="A field of the metadata whose values are returned, too.",
        ),
    ] = None,
) -> Response:
    """Return every document as a point of the plane, near those that it resembles.

    Distances between far points say little. The map is made when it is first asked for, which takes
    seconds, and again after the documents changed.
    """
    made = await run_in(collection.engine.exporter, _body, collection, field)
    return Response(made, media_type=JSON)


def _body(collection: CollectionDep, field: str | None) -> bytes:
    made: DocumentMap = collection.map.read(collection.data)
    values, value_of = (None, None) if field is None else made.values(field)
    return (
        MapResponse(
            documents=made.documents,
            ids=[summary.id for summary in made.summaries],
            titles=[summary.title for summary in made.summaries],
            x=list(made.x),
            y=list(made.y),
            group_of=list(made.groups),
            groups=[
                MapGroupBody(
                    words=list(group.words), documents=group.documents, x=group.x, y=group.y
                )
                for group in made.names
            ],
            values=values,
            value_of=value_of,
        )
        .model_dump_json()
        .encode()
    )
