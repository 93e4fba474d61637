"""Responses of GET /documents and GET /documents/{id}/family."""

from collections.abc import Sequence

from pydantic import BaseModel, Field, JsonValue

from index.near_duplicates.families import Member
from index.store.listing import Page
from service.api.schemas.common import ReceiptBody, receipt_body
from service.api.schemas.fields import nullable
from service.api.schemas.paging import write_cursor


class ListedBody(BaseModel):
    """A stored document, without its text."""

    id: str
    title: str
    metadata: dict[str, JsonValue]
    receipt: ReceiptBody
    indexed_at: str = Field(description="When its text was stored, ISO 8601 in UTC.")
    family: int | None = nullable(
        "Number of its family of copies and versions; null where it is in none."
    )


class DocumentsResponse(BaseModel):
    """A page of the stored documents, in the order of their ids."""

    documents: list[ListedBody]
    damaged: list[str] = Field(
        description="Ids of documents of this page that are damaged, and therefore left out."
    )
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


class MemberBody(BaseModel):
    """A document of a family."""

    id: str
    title: str
    is_copy: bool = Field(
        serialization_alias="copy",
        description="Whether its text is identical to that of the requested document.",
    )


class FamilyResponse(BaseModel):
    """A page of a family in the order of ids, including the requested document."""

    family: int | None = nullable("Number of the family; null if the document has none.")
    documents: list[MemberBody] = Field(description="Empty if it has none.")
    next_cursor: str | None = nullable("The `cursor` of the next page; null on the last page.")


def documents_response(page: Page) -> DocumentsResponse:
    """Shape a page; one that is not full is the last."""
    return DocumentsResponse(
        documents=[
            ListedBody(
                id=one.id,
                title=one.title,
                metadata=dict(one.metadata),
                receipt=receipt_body(one.receipt),
                indexed_at=one.indexed_at,
                family=one.family,
            )
            for one in page.documents
        ],
        damaged=list(page.damaged),
        next_cursor=write_cursor(page.last) if page.full and page.last is not None else None,
    )


def family_response(number: int | None, members: Sequence[Member], limit: int) -> FamilyResponse:
    """Return the response of GET /documents/{id}/family."""
    return FamilyResponse(
        family=number,
        documents=[MemberBody(id=one.id, title=one.title, is_copy=one.copy) for one in members],
        next_cursor=write_cursor(members[-1].id) if len(members) == limit else None,
    )
