"""Feedback on matches: verdicts of users, which are kept as long as the documents they are on."""

import json
import logging
from collections.abc import AsyncIterator

from index.errors import StoreError
from service.engine import Collection
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.feedback.store import FeedbackLimits, JudgedQuery, Verdict
from service.threads import run_in

_LOG = logging.getLogger(__name__)

CHARACTERS_AT_A_TIME = 131_072  # of an export, in memory; more if one text has more


async def give_feedback(
    collection: Collection, query: JudgedQuery, match_id: str, grade: int
) -> Verdict:
    """Store a verdict on a match; at return it is durable. It replaces an earlier one."""
    _check(query, match_id, collection.engine.settings.max_text_characters)
    # The thread that deletes documents, too: none is deleted between the look and the write.
    return await run_in(collection.writer, _give, collection, query, match_id, grade)


async def remove_feedback(collection: Collection, feedback_id: str) -> None:
    """Remove a verdict."""
    await run_in(collection.writer, collection.feedback.remove, feedback_id)


async def list_feedback(collection: Collection, after: str, limit: int) -> list[Verdict]:
    """Return up to `limit` verdicts after an id, in the order of ids, without texts."""
    return await run_in(collection.engine.readers, collection.feedback.listed, after, limit)


async def export_feedback(collection: Collection, after: str) -> AsyncIterator[bytes]:
    """Return the verdicts after an id as JSON Lines, with the texts that were asked with.

    The first part is read before this returns. A later failure truncates the lines.
    """
    with collection.engine.exports.admit():
        first, last = await run_in(collection.engine.exporter, _lines, collection, after)
    return _all_lines(collection, first, last)


def forget_unstored(collection: Collection) -> None:
    """Remove the verdicts on documents that are not stored, which a backup may have.

    It is copied while the service works: first the feedback, then the documents.

    What fails is logged: it must not keep documents from being served.
    """
    try:
        named = collection.feedback.documents()
        stored = collection.data.store.content_hashes(named)
        lost = [one for one in named if one not in stored]
        if lost:
            collection.feedback.forget(lost)
        collection.feedback.record()
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
    limits = FeedbackLimits(collection.engine.settings.max_feedback)
    return collection.feedback.put(query, match_id, grade, limits)


async def _all_lines(
    collection: Collection, lines: bytes, last: str | None
) -> AsyncIterator[bytes]:
    while last is not None:
        yield lines
        lines, last = await run_in(collection.engine.exporter, _lines, collection, last)


def _lines(collection: Collection, after: str) -> tuple[bytes, str | None]:
    """Return the next lines and the id of the last verdict in them; None after the last one."""
    found = collection.feedback.whole(after, CHARACTERS_AT_A_TIME)
    lines = [json.dumps(_fields(one), ensure_ascii=False) for one in found]
    return "".join(f"{line}\n" for line in lines).encode(), found[-1].id if found else None


def _fields(one: Verdict) -> dict[str, object]:
    asked = one.query
    query = {"text": asked.text, "title": asked.title} if asked.document_id is None else {}
    return {
        "id": one.id,
        "query": query or {"id": asked.document_id},
        "match": one.match_id,
        "grade": one.grade,
        "created": one.created,
        "changed": one.changed,
    }
