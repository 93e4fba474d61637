"""Bodies of POST /index and of /documents."""

from collections.abc import Sequence

from pydantic import BaseModel, Field, JsonValue, field_validator

from index.document import MAX_METADATA_BYTES, MAX_METADATA_LEVELS, Document
from index.errors import DocumentError
from service.errors import FieldError, InvalidInputError
from service.schemas import (
    Answer,
    BodyModel,
    Characters,
    DocumentId,
    Metadata,
    ReceiptBody,
    Strict,
    Title,
    nullable,
    optional,
)

MAX_DOCUMENTS = 256  # of one request, whose documents are held in memory; more go as NDJSON


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
    strict: Strict = False

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


class IndexedBody(BaseModel):
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


class ListedBody(BaseModel, from_attributes=True):
    """A stored document, without its text."""

    id: str
    title: str
    metadata: dict[str, JsonValue]
    receipt: ReceiptBody
    indexed_at: str = Field(description="When its text was stored, ISO 8601 in UTC.")
    family: int | None = nullable(
        "Number of its family of copies and versions; null where it is in none."
    )


class DocumentResponse(ListedBody):
    """A stored document."""

    family: int | None = optional("Number of its family of copies and versions, if it has one.")
    text: str | None = optional("Only with `?text=true`.")


class DocumentsResponse(BaseModel):
    """A page of the stored documents."""

    documents: list[ListedBody]
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


class MemberBody(BaseModel, from_attributes=True):
    """A document of a family."""

    id: str
    title: str
    is_copy: bool = Field(
        alias="copy",
        description="Whether its text is identical to that of the requested document.",
    )


class FamilyResponse(BaseModel):
    """A page of a family in the order of ids, including the requested document."""

    family: int | None = nullable("Number of the family; null if the document has none.")
    documents: list[MemberBody] = Field(description="Empty if it has none.")
    next_cursor: str | None = nullable("The `cursor` of the next page; null on the last page.")


class FacetValueBody(BaseModel):
    """A value of a field."""

    value: str | int | float | bool
    documents: int = Field(description="How many have it.")


class FacetBody(BaseModel, from_attributes=True):
    """A field of the metadata."""

    field: str
    documents: int = Field(description="How many have it.")
    values: list[FacetValueBody] = Field(description="The most frequent ones first.")

    @field_validator("values", mode="before")
    @classmethod
    def _named(cls, values: Sequence[tuple[object, int]]) -> list[dict[str, object]]:
        return [{"value": value, "documents": documents} for value, documents in values]


class FacetsResponse(BaseModel):
    """The fields that tell documents apart."""

    facets: list[FacetBody]
