"""GET /documents: pages, families and the export of the stored documents."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from index.directory.data_directory import DataDirectory
from index.document import Document
from index.errors import DatabaseUnavailableError
from index.near_duplicates.families import Member
from index.store.listing import DamagedDocument, Page
from service.engine import Collection
from service.errors import DocumentNotFoundError
from service.threads import run_in

CHARACTERS_AT_A_TIME = 131_072  # of an export, in memory; more if one document has more


async def follow_database(collection: Collection) -> None:
    """Wait until a copy of a database, and the index over it, hold what the database holds now.

    Raises:
        DatabaseUnavailableError: the database does not answer, or not in time.
    """
    asked = collection.data.ask_database()
    if asked is None:
        return
    settings = collection.engine.settings
    waiting = asyncio.wrap_future(asked)
    waiting.add_done_callback(lambda one: one.cancelled() or one.exception())  # it may come late
    done, _ = await asyncio.wait((waiting,), timeout=settings.store_seconds)
    if not done:
        seconds = f"it has not answered for {settings.store_seconds:g} seconds"
        raise DatabaseUnavailableError(settings.database and settings.database.address, seconds)
    waiting.result()


async def list_documents(collection: Collection, after: str, limit: int) -> Page:
    """Return up to `limit` documents after an id, in the order of ids, without their texts."""
    return await run_in(collection.engine.readers, collection.data.store.pages.listed, after, limit)


async def family_of(collection: Collection, document_id: str) -> int | None:
    """Return the number of the family of a document; None if it has none."""
    found = await run_in(
        collection.engine.readers, collection.data.store.families.of_ids, [document_id]
    )
    return found.get(document_id)


async def find_family(
    collection: Collection, document_id: str, after: str, limit: int
) -> tuple[int | None, Sequence[Member]]:
    """Return the family of a document: its number and up to `limit` documents after an id.

    Raises:
        DocumentNotFoundError: the document is not stored.
    """
    store = collection.data.store
    number, members = await run_in(
        collection.engine.readers, store.families.page, document_id, after, limit
    )
    if number is None and not await run_in(
        collection.engine.readers, store.content_hashes, [document_id]
    ):
        raise DocumentNotFoundError(document_id)
    return number, members


async def export_documents(collection: Collection, after: str) -> AsyncIterator[bytes]:
    """Return the documents after an id as JSON Lines, as `index.corpus.json_lines` reads them.

    The first part is read before this returns, so that a store that cannot be read is an error
    and not a truncated response. A later failure truncates the lines.
    """
    with collection.engine.exports.admit():
        first, last = await run_in(collection.engine.exporter, _lines, collection.data, after)
    return _all_lines(collection, first, last)


async def _all_lines(
    collection: Collection, lines: bytes, last: str | None
) -> AsyncIterator[bytes]:
    while last is not None:
        yield lines
        lines, last = await run_in(collection.engine.exporter, _lines, collection.data, last)


def _lines(data: DataDirectory, after: str) -> tuple[bytes, str | None]:
    """Return the next lines and the id of the last document in them; None after the last one."""
    documents = data.store.pages.whole(after, CHARACTERS_AT_A_TIME)
    lines = [json.dumps(_fields(one), ensure_ascii=False) for one in documents]
    last = _place(documents[-1]) if documents else None
    return "".join(f"{line}\n" for line in lines).encode(), last


def _place(one: Document | DamagedDocument) -> str:
    return one.place if isinstance(one, DamagedDocument) else one.id


def _fields(one: Document | DamagedDocument) -> dict[str, object]:
    """Return what the line of a document says.

    That of a damaged one has no text, so that indexing the lines again names what is missing.
    """
    if isinstance(one, DamagedDocument):
        return {"id": one.id, "damaged": True}
    return {"id": one.id, "title": one.title, "text": one.text, "metadata": dict(one.metadata)}
