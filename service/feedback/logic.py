"""Feedback on matches: verdicts of users, which are kept as long as the documents they are on."""

import logging
from collections.abc import Iterator

from index.errors import StoreError
from service.documents.logic import CHARACTERS_AT_A_TIME, json_lines
from service.engine import Collection
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.feedback.store import FeedbackStore, JudgedQuery, Verdict
from service.threads import run_in

_LOG = logging.getLogger(__name__)


async def give_feedback(
    collection: Collection, query: JudgedQuery, match_id: str, grade: int
) -> Verdict:
    """Store a verdict on a match; at return it is durable. It replaces an earlier one."""
    _check(query, match_id, collection.engine.settings.max_text_characters)
    # The thread that deletes documents, too: none is deleted between the look and the write.
    return await run_in(collection.writer, _give, collection, query, match_id, grade)


def export_feedback(feedback: FeedbackStore, after: str) -> Iterator[bytes]:
    """Yield the verdicts after an id as JSON Lines, with the texts of their queries."""
    while verdicts := feedback.whole(after, CHARACTERS_AT_A_TIME):
        yield json_lines(map(_fields, verdicts))
        after = verdicts[-1].id


def forget_unstored(collection: Collection) -> None:
    """Remove the verdicts on documents that are not stored, which a backup may have.

    It is copied while the service works: first the feedback, then the documents.

    What fails is logged: it must not keep documents from being served.
    """
    try:
        named = collection.feedback.documents()
        stored = collection.data.store.content_hashes(named)
        lost = [name for name in named if name not in stored]
        if lost:
            collection.feedback.forget(lost)
    except StoreError as error:
        _LOG.warning("feedback on documents that are gone was not removed: %s", error)


def _check(query: JudgedQuery, match_id: str, limit: int) -> None:
    errors = []
    if query.text is not None and not query.text.strip():
        errors.append(FieldError("#/query/text", "is empty"))
    if query.text is not None and len(query.text) > limit:
        errors.append(FieldError("#/query/text", f"is longer than {limit} characters", limit))
    if query.document_id == match_id:
        errors.append(FieldError("#/match", "is the query itself"))
    if errors:
        raise InvalidInputError(errors)


def _give(collection: Collection, query: JudgedQuery, match_id: str, grade: int) -> Verdict:
    named = {"#/query/id": query.document_id, "#/match": match_id}
    given = {pointer: name for pointer, name in named.items() if name is not None}
    stored = collection.data.store.content_hashes(list(given.values()))
    for pointer, name in given.items():
        if name not in stored:
            raise DocumentNotFoundError(name, pointer)
    return collection.feedback.put(query, match_id, grade)


def _fields(verdict: Verdict) -> dict[str, object]:
    judged = verdict.query
    asked = {"id": judged.document_id}
    if judged.document_id is None:
        asked = {"text": judged.text, "title": judged.title}
    return verdict.model_dump(by_alias=True) | {"query": asked}
