"""Requests and responses of the API. Limits that are settings are checked later, not here."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, Field, model_validator

from encoder.blocks import Receipt
from index.document import MAX_METADATA_BYTES, MAX_METADATA_LEVELS, Document
from index.errors import DocumentError
from service.documents.logic import MAX_DOCUMENTS, IndexedDocuments
from service.encode import RequestText
from service.errors import FieldError, InvalidInputError
from service.fields import (
    BodyModel,
    Characters,
    DocumentId,
    Metadata,
    Title,
    exclusive,
    optional,
)
from service.match.queries import Query, StoredQuery
from service.metrics import Stage
from service.telemetry import hides_stages

STAGE_TIMES = "Milliseconds of each stage; empty for an API key that is bound to a collection."


class DocumentBody(BodyModel):
    """A document to store."""

    id: DocumentId = Field(
        description="Your own id, without control characters; a document with the same id is "
        "replaced.",
        json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"},
    )
    text: Characters = Field(
        description="The whole text; at most `max_text_characters` (see /version)."
    )
    title: Title = ""
    metadata: Metadata = Field(
        default_factory=dict,
        description=f"Any JSON object of at most {MAX_METADATA_BYTES} bytes and "
        f"{MAX_METADATA_LEVELS} levels; returned with every match.",
    )


class IndexRequest(BodyModel):
    """Documents to insert or replace, all or none of them."""

    documents: list[DocumentBody] = Field(
        min_length=1,
        max_length=MAX_DOCUMENTS,
        description="At most `max_documents_per_request` (see /version).",
    )
    strict: bool = Field(
        default=False,
        description="Reject a text that is too long to be read whole with 422, naming tokens and "
        "limit, instead of reading its beginning.",
    )

    def to_documents(self) -> list[Document]:
        """Return the documents, or raise InvalidInputError, which names all invalid fields."""
        documents: list[Document] = []
        errors: list[FieldError] = []
        for number, body in enumerate(self.documents):
            try:
                documents.append(Document(body.id, body.text, body.title, body.metadata))
            except DocumentError as error:
                errors.append(FieldError(f"#/documents/{number}/{error.field}", error.reason))
        if errors:
            raise InvalidInputError(errors)
        return documents


class QueryBody(BodyModel):
    """One of several queries."""

    model_config = exclusive("text", "id", title_of="text")

    text: Characters | None = optional("Text of a document.")
    title: Title | None = optional(
        "Title of the text, if it has one: a document of this title, or one that names it, is "
        "nearer in lexical and hybrid mode.",
    )
    id: DocumentId | None = optional(
        "Id of a stored document, which is left out of its own matches.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        exactly_one(text=self.text, id=self.id)
        title_of_text(self.text, self.title)
        return self

    def to_query(self, parent: str) -> Query:
        """Return the text or the id with the pointer to it, given the pointer to this body."""
        if self.text is not None:
            return RequestText(f"{parent}/text", self.text, self.title or "")
        return StoredQuery(f"{parent}/id", str(self.id))


class ReceiptBody(BaseModel, from_attributes=True):
    """How much of a document was read and how much was left out."""

    tokens: int = Field(description="Tokens of the whole text.")
    tokens_read: int = Field(description="Tokens whose words were counted.")
    blocks: int = Field(description="Sentence blocks of the tokens that were read.")
    blocks_left_out: int = Field(description="Sentence blocks beyond what the checkpoint reads.")
    tokens_encoded: int = Field(
        description="Tokens that the Transformer encoded: all that were read, or those of the "
        "selected sentence blocks."
    )
    payload_characters: int = Field(
        description="Characters that are no text and were not read: data URIs, runs of base64 and "
        "hexadecimal, minified code."
    )


class Answer(BaseModel):
    """The part of every response that used the index which says how it was made."""

    timings: dict[str, float] = Field(description=STAGE_TIMES)
    checkpoint: str = Field(description="Name of the checkpoint that computed the vectors.")
    generation: int = Field(description="Generation of the index.")


class IndexedBody(BaseModel, from_attributes=True):
    """A document that was stored."""

    id: str
    receipt: ReceiptBody
    unchanged: bool = Field(
        description="The same text was stored already: it was not encoded again; at most title "
        "and metadata were replaced."
    )


class IndexResponse(Answer):
    """The documents that were stored: durable, and the next match finds them."""

    indexed: int = Field(description="Documents stored.")
    documents: list[IndexedBody]


def index_response(indexed: IndexedDocuments, checkpoint: str) -> IndexResponse:
    """Return the response of POST /index."""
    return IndexResponse(
        indexed=len(indexed.documents),
        documents=[IndexedBody.model_validate(item) for item in indexed.documents],
        timings=milliseconds(indexed.seconds),
        checkpoint=checkpoint,
        generation=indexed.generation,
    )


def exactly_one(**given: object) -> None:
    """Reject a body that does not have exactly one of some fields."""
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"give exactly one of {', '.join(given)}")


def title_of_text(text: str | None, title: str | None) -> None:
    """Reject a title without its text; a stored document has its own."""
    if title is not None and text is None:
        raise ValueError("give title only together with text")


def receipt_body(receipt: Receipt) -> ReceiptBody:
    """Return the body of a receipt."""
    return ReceiptBody.model_validate(receipt)


def milliseconds(seconds: Mapping[Stage, float]) -> dict[str, float]:
    """Convert the seconds of stages to milliseconds, rounded to the microsecond.

    There are none for an API key that is bound to a collection.
    """
    if hides_stages.get():
        return {}
    return {stage: round(duration * 1000, 3) for stage, duration in seconds.items()}
