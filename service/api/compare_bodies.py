"""Question and answer of POST /compare."""

from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from encoder.alignment import MAX_PASSAGES
from service.api.comparison_bodies import ComparisonBody, comparison_body
from service.api.fields import Body, Characters, DocumentId, nullable, optional
from service.api.schemas import ReceiptBody, exactly_one, milliseconds, receipt_body, to_query
from service.comparing import Compared
from service.sources import Query, Source

DEFAULT_PASSAGES = 100


class SideBody(Body):
    """One of two texts: exactly one of `text` and `id`."""

    text: Characters | None = optional("The text itself.")
    id: DocumentId | None = optional("Id of a stored document, which is not encoded again.")

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        exactly_one(text=self.text, id=self.id)
        return self


class CompareRequest(Body):
    """Two texts to compare."""

    left: SideBody
    right: SideBody
    passages: Annotated[int, Field(ge=0, le=MAX_PASSAGES)] = Field(
        default=DEFAULT_PASSAGES, description="Passages to give at most, the largest ones."
    )
    strict: bool = Field(
        default=False,
        description="Refuse with 422, naming tokens and limit, a text that is too long to be read "
        "whole, rather than read its beginning.",
    )

    def to_queries(self) -> tuple[Query, Query]:
        """Return the two texts, each with the pointer to its place in the request."""
        return (
            to_query("#/left", self.left.text, self.left.id),
            to_query("#/right", self.right.text, self.right.id),
        )


class ReadBody(BaseModel):
    """One of the two texts as it was read."""

    id: str | None = nullable("Of the stored document; null for a text of the request.")
    title: str
    receipt: ReceiptBody


class CompareResponse(ComparisonBody):
    """How two texts match, and where."""

    left: ReadBody
    right: ReadBody
    timings: dict[str, float] = Field(description="Milliseconds of each stage.")
    checkpoint: str = Field(description="Name of the checkpoint that made the vectors.")
    calibration: str | None = nullable(
        "Version of the calibration that made the probability; null for none."
    )


def compare_response(
    compared: Compared, checkpoint: str, calibration: str | None
) -> CompareResponse:
    """Shape the answer to POST /compare."""
    explained = compared.explained
    return CompareResponse(
        **dict(comparison_body(explained)),
        left=_read(explained.left),
        right=_read(explained.right),
        timings=milliseconds(compared.seconds),
        checkpoint=checkpoint,
        calibration=calibration,
    )


def _read(source: Source) -> ReadBody:
    return ReadBody(id=source.id, title=source.title, receipt=receipt_body(source.receipt))
