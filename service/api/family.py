"""GET /documents/{id}/family."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from index.store.listing import BEFORE_ALL
from service.api.deps import Admitted, EngineDep
from service.api.documents import PROBLEMS, DocumentId
from service.api.http.openapi import json_example
from service.api.schemas.fields import nullable
from service.api.schemas.paging import DEFAULT_PAGE, Cursor, PageSize, write_cursor
from service.api.similar import UnescapedRoute
from service.documents import find_family

router = APIRouter(
    prefix="/documents", tags=["documents"], dependencies=[Admitted], route_class=UnescapedRoute
)

ANSWER = {
    "family": 12,
    "documents": [
        {"id": "articles/bees", "title": "Bees", "copy": True},
        {"id": "articles/bees-2", "title": "Bees, second edition", "copy": False},
    ],
    "next_cursor": None,
}


class MemberBody(BaseModel):
    """A document of a family."""

    id: str
    title: str
    is_copy: bool = Field(
        serialization_alias="copy",
        description="Whether its text is, to the character, that of the document asked about.",
    )


class FamilyResponse(BaseModel):
    """A page of a family, in the order of ids; the document asked about is in it, too."""

    family: int | None = nullable("Number of the family; null where the document is in none.")
    documents: list[MemberBody] = Field(description="Empty where it is in none.")
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


@router.get(
    "/{id:path}/family",
    summary="List the copies and versions of a stored document",
    responses={200: json_example(ANSWER, "A page of its family"), **PROBLEMS},
)
async def get_family(
    document_id: DocumentId,
    engine: EngineDep,
    limit: PageSize = DEFAULT_PAGE,
    cursor: Cursor = BEFORE_ALL,
) -> FamilyResponse:
    """Return the documents whose texts are copies or versions of the text of this one."""
    number, members = await find_family(engine, document_id, cursor, limit)
    return FamilyResponse(
        family=number,
        documents=[MemberBody(id=one.id, title=one.title, is_copy=one.copy) for one in members],
        next_cursor=write_cursor(members[-1].id) if len(members) == limit else None,
    )
