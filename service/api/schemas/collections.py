"""Responses of the routes of collections."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.fields import nullable
from service.api.schemas.ops import AdapterBody, CalibrationBody, adapter_body, calibration_body
from service.engine import Collection, UnopenedCollection


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
    adapter: AdapterBody | None = nullable("What was fitted to its corpus (`index --adapt`).")
    calibration: CalibrationBody | None = nullable("Of its scores.")


class CollectionsResponse(BaseModel):
    """The collections that the client may see, the default one first, the others by name."""

    collections: list[CollectionBody]


def collection_body(one: Collection | UnopenedCollection) -> CollectionBody:
    """Return the body of a collection in a list."""
    if isinstance(one, UnopenedCollection):
        return CollectionBody(
            name=one.name,
            state="unavailable",
            detail=one.reason,
            documents=None,
            generation=None,
            sequence=None,
        )
    damage = one.data.damage
    return CollectionBody(
        name=one.name,
        state="open" if damage is None else "unavailable",
        detail=damage,
        documents=len(one.data.index),
        generation=one.data.index.generation,
        sequence=one.data.index.sequence,
    )


def collection_response(one: Collection | UnopenedCollection) -> CollectionResponse:
    """Return the body of a collection."""
    known = collection_body(one).model_dump()
    if isinstance(one, UnopenedCollection):
        return CollectionResponse(**known, reading_share=None, adapter=None, calibration=None)
    return CollectionResponse(
        **known,
        reading_share=one.checkpoint.reading_share,
        adapter=adapter_body(one.adapter, one.space.dimension),
        calibration=calibration_body(one.calibrator),
    )
