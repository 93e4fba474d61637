"""Documents: stored and deleted, found, listed and exported."""

import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from index.directory.data_directory import DataDirectory
from index.document import Document
from index.near_duplicates.families import Member
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.filters import Filter
from index.store.records import EncodedDocument, Facet, ListedDocument, StoredDocument
from service.documents.schemas import IndexedBody, IndexResponse
from service.encode import RequestText, encode_texts
from service.engine import Collection, Engine
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.metrics import Stage
from service.schemas import ReceiptBody, milliseconds
from service.telemetry import observe_stage
from service.threads import run_in

_Tokens = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
_ORDERED: TypeAdapter[tuple[str, str | _Tokens, str]] = TypeAdapter(tuple[str, str | _Tokens, str])
_ATTEMPTS = 3  # to apply a change to the index

_LOG = logging.getLogger(__name__)


async def index_documents(
    collection: Collection,
    documents: Sequence[Document],
    *,
    strict: bool = False,
    background: bool = False,
) -> IndexResponse:
    """Insert or replace documents; at return they are durable and the next match finds them.

    All are encoded before the first is stored, and all are stored in one transaction: if one is
    invalid, nothing is changed. A document whose text is stored already is not encoded again.

    Args:
        collection: that encodes and stores.
        documents: with different ids.
        strict: reject a text that is too long to be read whole.
        background: yield to requests.
    """
    ids = [document.id for document in documents]
    repeated = (number for number, name in enumerate(ids) if name in ids[:number])
    if twice := [FieldError(f"#/documents/{number}/id", "is given twice") for number in repeated]:
        raise InvalidInputError(twice)
    known = await run_in(collection.engine.readers, collection.data.store.known, documents)
    new = [
        (RequestText(f"#/documents/{number}/text", document.text), document)
        for number, document in enumerate(documents)
        if document.id not in known
    ]
    encoded = await encode_texts(
        collection, [text for text, _ in new], strict=strict, background=background
    )
    entries = dict(known)
    for (_, document), read in zip(new, encoded, strict=True):
        entries[document.id] = EncodedDocument(document, read.vector, read.receipt, read.blocks)
    ordered = [entries[document.id] for document in documents]
    # One call on the one writer thread: it runs to its end even if the client disconnects.
    seconds: dict[Stage, float] = {
        "store": await run_in(collection.writer, _put, collection, ordered)
    }
    for stage, taken in (item for read in encoded for item in read.seconds.items()):
        seconds[stage] = seconds.get(stage, 0.0) + taken
    return IndexResponse(
        indexed=len(ordered),
        documents=[
            IndexedBody(
                id=entry.document.id,
                receipt=ReceiptBody.model_validate(entry.receipt),
                unchanged=entry.document.id in known,
            )
            for entry in ordered
        ],
        timings=milliseconds(seconds),
        checkpoint=collection.checkpoint.name,
        generation=collection.data.engine.generation,
    )


async def find_document(collection: Collection, document_id: str) -> StoredDocument:
    """Return one stored document, or raise DocumentNotFoundError."""
    found = await run_in(collection.engine.readers, collection.data.store.find, [document_id])
    if document_id not in found:
        raise DocumentNotFoundError(document_id)
    return found[document_id]


def list_documents(
    collection: Collection, cursor: str, limit: int, order: str, where: Filter | None
) -> list[ListedDocument]:
    """Return a page of the documents for which a filter holds.

    Args:
        collection: whose documents.
        cursor: "", an id or, in another order than that, what `cursor_in` wrote.
        limit: of the page.
        order: as of `DocumentStore.listed`.
        where: None for all.
    """
    after, key = cursor, None
    if order != "id" and cursor:
        try:
            of, key, after = _ORDERED.validate_json(cursor)
        except ValidationError:
            of = None
        if of != order or isinstance(key, int) != order.endswith("size"):
            detail = f"is not a cursor of the order {order}"
            raise InvalidInputError([FieldError("", detail, parameter="cursor")])
    store = collection.data.store
    among = None if where is None else store.select(where)
    return store.listed(after, limit, order=order, key=key, among=among)


def cursor_in(order: str, last: ListedDocument) -> str:
    """Return what follows a document in an order."""
    return last.id if order == "id" else json.dumps([order, last.key, last.id])


def count_facets(store: DocumentStore, where: Filter | None) -> list[Facet]:
    """Return how many documents for which a filter holds have which metadata."""
    return store.facets(None if where is None else store.select(where))


def _put(collection: Collection, entries: Sequence[EncodedDocument]) -> float:
    """Store documents and update the index; return the seconds."""
    started = time.perf_counter()
    _apply(collection, collection.data.store.put(entries))
    seconds = time.perf_counter() - started
    observe_stage(collection.engine.metrics, "store", seconds)
    return seconds


def delete_document(collection: Collection, document_id: str) -> None:
    """Delete a document, durably, with the feedback on it; no match finds it after that.

    DocumentNotFoundError if it is not stored. Called in the thread `writer` of the collection. The
    feedback goes first: after a kill or on a full disk there is none on a deleted document.
    """
    collection.feedback.forget([document_id])
    change = collection.data.store.delete([document_id])
    _apply(collection, change)
    if not change.removed:
        raise DocumentNotFoundError(document_id)


def _apply(collection: Collection, change: Changes) -> None:
    """Apply a change of the store, which is durable by now, to the index.

    It is retried: otherwise documents would be stored and not found. If every attempt fails, the
    next change or `Maintenance` brings the index up to date.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            collection.data.engine.apply(change)
            break
        except Exception as error:
            _LOG.error("the index could not apply a change of the store: %s", type(error).__name__)
            if attempt == _ATTEMPTS:
                raise
    collection.standing.stored()


CHARACTERS_AT_A_TIME = 131_072  # of an export, in memory; more if one document has more


def find_family(
    collection: Collection, document_id: str, after: str, limit: int
) -> tuple[int | None, Sequence[Member]]:
    """Return the family of a document: its number and up to `limit` documents after an id.

    DocumentNotFoundError if the document is not stored.
    """
    store = collection.data.store
    number, members = store.families.page(document_id, after, limit)
    if number is None and not store.content_hashes([document_id]):
        raise DocumentNotFoundError(document_id)
    return number, members


async def export_parts(engine: Engine, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Return what an iterator gives, each part when it is wanted, read in the thread of exports.

    The first part is read before this returns, so that a store that cannot be read is an error
    and not a truncated response. A later failure truncates the response.
    """

    def read() -> bytes | None:
        return next(parts, None)

    with engine.exports.admit():
        first = await run_in(engine.exporter, read)

    async def all_parts() -> AsyncIterator[bytes]:
        part = first
        while part is not None:
            if part:
                yield part
            part = await run_in(engine.exporter, read)

    return all_parts()


def json_lines(entries: Iterable[Mapping[str, object]]) -> bytes:
    """Return entries as JSON Lines."""
    return "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries).encode()


def export_documents(data: DataDirectory, after: str) -> Iterator[bytes]:
    """Yield the documents after an id as JSON Lines, as `index.corpus.json_lines` reads them."""
    while documents := data.store.whole(after, CHARACTERS_AT_A_TIME):
        yield json_lines(
            {
                "id": document.id,
                "title": document.title,
                "text": document.text,
                "metadata": dict(document.metadata),
            }
            for document in documents
        )
        after = documents[-1].id
