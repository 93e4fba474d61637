"""Requests and responses of /feedback."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from service.api.schemas.fields import Body, DocumentId, nullable
from service.api.schemas.match import QueryBody
from service.api.schemas.paging import write_cursor
from service.feedback.verdict import MAX_GRADE, JudgedQuery, Verdict


class FeedbackRequest(Body):
    """A verdict on one match of one query."""

    query: QueryBody = Field(
        description="What was asked, as in POST /match: a text, or the id of a stored document."
    )
    match: DocumentId = Field(description="Id of the stored document that was the answer.")
    grade: Annotated[int, Field(ge=0, le=MAX_GRADE)] = Field(
        description="0: not relevant; 1: relevant; 2 and 3: more so, as judgements have them."
    )

    def to_query(self) -> JudgedQuery:
        """Return what was asked."""
        return JudgedQuery(self.query.id, self.query.text, self.query.title or "")


class AskedBody(BaseModel):
    """What was asked, without its text."""

    id: str | None = nullable("Id of the stored document; null for a text.")
    title: str = Field(description="Title of the text; empty for a stored document.")


class FeedbackBody(BaseModel):
    """A verdict that is kept."""

    id: str = Field(description="Of the verdict: the same for the same query and match.")
    query: AskedBody
    match: str
    grade: int
    created: str = Field(description="When the first verdict was given, ISO 8601 in UTC.")
    changed: str = Field(description="When this grade was given, ISO 8601 in UTC.")


class FeedbackPage(BaseModel):
    """A page of the feedback, in the order of ids."""

    feedback: list[FeedbackBody]
    next_cursor: str | None = nullable("What to give as `cursor` for the next page; null: no more.")


def feedback_body(one: Verdict) -> FeedbackBody:
    """Shape a verdict."""
    return FeedbackBody(
        id=one.id,
        query=AskedBody(id=one.query.document_id, title=one.query.title),
        match=one.match_id,
        grade=one.grade,
        created=one.created,
        changed=one.changed,
    )


def feedback_page(verdicts: Sequence[Verdict], limit: int) -> FeedbackPage:
    """Shape a page; one that is not full is the last."""
    return FeedbackPage(
        feedback=[feedback_body(one) for one in verdicts],
        next_cursor=write_cursor(verdicts[-1].id) if len(verdicts) == limit else None,
    )
