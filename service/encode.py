"""The texts of a request with their vectors: stored documents, and texts that are encoded.

A text is tokenised, waits in the bounded queue, and is encoded.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from encoder.blocks import Receipt, SentenceBlocks
from encoder.comparison.sections import SectionReader
from encoder.comparison.text import ComparableText, prepare_text
from encoder.encoder import Encoder
from encoder.errors import EmptyTextError, TruncatedTextError
from index.alignment.alignment_index import AlignableDocuments
from index.directory.data_directory import DataDirectory
from index.engine.port import EncodedQuery
from index.sqlite.block_vectors import as_stored, block_vectors_of
from service.errors import DocumentNotFoundError, FieldError, InvalidInputError
from service.metrics import Metrics, Stage
from service.telemetry import add_span, observe_stage
from service.threads import run_in
from service.workers.scheduler import current_reservation

if TYPE_CHECKING:  # it imports the search processes, which read stored documents here
    from service.engine import Collection

_CHARACTERS_PER_TOKEN = 4  # of English; for the estimate on admission


@dataclass(frozen=True, slots=True)
class RequestText:
    """A text of a request, with the JSON pointer to it, and its title if it has one."""

    pointer: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText(EncodedQuery):
    """A text as it was encoded, in this request or when it was stored, which can be searched for.

    Attributes:
        receipt: what was read of it.
        document_id: of the stored document; None for a text of the request.
        seconds: time of each stage of encoding; empty for a stored document.
    """

    receipt: Receipt
    document_id: str | None = None
    seconds: Mapping[Stage, float] = field(default_factory=dict)


def encode_alone(
    encoder: Encoder, text: str, title: str = "", document_id: str | None = None
) -> EncodedText:
    """Encode a text in this thread; EmptyTextError if it has no token."""
    sentences = encoder.read(text)
    encoded = encoder.encode([sentences])
    return EncodedText(
        text=text,
        title=title,
        vector=encoded.document_vectors[0],
        receipt=sentences.receipt,
        blocks=block_vectors_of(sentences, encoded.block_vectors[0]),
        document_id=document_id,
    )


async def encode_texts(
    collection: "Collection",
    texts: Sequence[RequestText],
    *,
    strict: bool,
    background: bool = False,
) -> list[EncodedText]:
    """Encode the texts of one request together: all of them or none.

    Args:
        collection: whose tokenizer and scheduler are used.
        texts: any number of them.
        strict: refuse a text that is too long rather than leave a part of it out.
        background: let requests go first; the caller bounds how much is encoded at a time.

    Raises:
        InvalidInputError: a text is empty, over the limit of characters, or `strict` and too long
            to be read whole.
        RequestTooLargeError, OverloadedError: the queue never has room for all, or has none now.
        EncodingFailedError, NotReadyError, ShuttingDownError: the encoder failed, or is closed.
    """
    if not texts:
        return []
    limit, checkpoint = collection.engine.settings.max_text_characters, collection.checkpoint
    refused = [
        FieldError(item.pointer, f"is longer than {limit} characters", limit)
        for item in texts
        if len(item.text) > limit
    ]
    if refused:
        raise InvalidInputError(refused)
    longest = checkpoint.max_blocks * checkpoint.block_length
    estimate = sum(min(len(item.text) // _CHARACTERS_PER_TOKEN + 1, longest) for item in texts)
    with current_reservation(
        collection.engine.scheduler, estimate, background=background
    ) as reservation:
        documents, tokenising = await _tokenise(collection, texts, strict)
        reservation.resize(sum(document.receipt.tokens_encoded for document in documents))
        encoded = await collection.engine.scheduler.encode(documents, reservation, collection.name)
    for result in encoded:  # counted by the threads that encoded
        add_span("queue", result.queue_seconds)
        add_span("encode", result.encode_seconds)
    return [
        EncodedText(
            text=item.text,
            title=item.title,
            vector=result.vector,
            blocks=block_vectors_of(document, result.block_vectors),
            receipt=document.receipt,
            seconds={
                "tokenize": seconds,
                "queue": result.queue_seconds,
                "encode": result.encode_seconds,
            },
        )
        for item, document, seconds, result in zip(
            texts, documents, tokenising, encoded, strict=True
        )
    ]


async def _tokenise(
    collection: "Collection", texts: Sequence[RequestText], strict: bool
) -> tuple[list[SentenceBlocks], list[float]]:
    """Return the sentence blocks of each text and the seconds that each took."""
    documents: list[SentenceBlocks] = []
    seconds: list[float] = []
    refused: list[FieldError] = []
    for item in texts:
        started = time.perf_counter()
        try:
            document = await run_in(
                collection.engine.readers, collection.tokenizer, item.text, strict=strict
            )
        except EmptyTextError as error:
            refused.append(FieldError(item.pointer, str(error)))
        except TruncatedTextError as error:
            refused.append(FieldError(item.pointer, str(error), error.limit, error.tokens))
        else:
            documents.append(document)
            seconds.append(time.perf_counter() - started)
            _count(collection.engine.metrics, document.receipt, seconds[-1])
    if refused:
        raise InvalidInputError(refused)
    return documents, seconds


def _count(metrics: Metrics, receipt: Receipt, seconds: float) -> None:
    observe_stage(metrics, "tokenize", seconds)
    metrics.document_tokens.observe(receipt.tokens)
    if receipt.tokens_read < receipt.tokens:
        metrics.documents_truncated.inc()
        metrics.tokens_left_out.inc(receipt.tokens - receipt.tokens_read)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A stored document, with the JSON pointer to its id in the body, None if it is in the path."""

    pointer: str | None
    document_id: str


Query = RequestText | StoredQuery


async def read_queries(
    collection: "Collection", queries: Sequence[Query], *, strict: bool = False
) -> list[EncodedText]:
    """Return the queries with their vectors, in order; only texts of the request are encoded."""
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, RequestText)]
    readers, data = collection.engine.readers, collection.data
    found = iter(await run_in(readers, find_all_stored, data, stored) if stored else [])
    encoded = iter(await encode_texts(collection, texts, strict=strict))
    return [next(found if isinstance(query, StoredQuery) else encoded) for query in queries]


def find_all_stored(data: DataDirectory, queries: Sequence[StoredQuery]) -> list[EncodedText]:
    """Return the stored documents of queries, in order, or raise DocumentNotFoundError.

    They are without block vectors.
    """
    found = find_stored(data, [query.document_id for query in queries])
    for query in queries:
        if query.document_id not in found:
            raise DocumentNotFoundError(query.document_id, query.pointer)
    return [found[query.document_id] for query in queries]


def find_stored(data: DataDirectory, document_ids: Sequence[str]) -> dict[str, EncodedText]:
    """Return stored documents by their ids, without block vectors; unknown ids are absent."""
    documents = data.store.find(document_ids)
    vector_ids = [document.vector_id for document in documents.values()]
    vectors = dict(zip(*data.store.vectors(vector_ids), strict=True))
    return {
        name: EncodedText(
            text=found.document.text,
            title=found.document.title,
            vector=vectors[found.vector_id],
            receipt=found.receipt,
            document_id=name,
            vector_id=found.vector_id,
        )
        for name, found in documents.items()
        if found.vector_id in vectors
    }


def add_stored_blocks(data: DataDirectory, texts: Sequence[EncodedText]) -> list[EncodedText]:
    """Return texts with their stored block vectors where they have none."""
    missing = [text.vector_id for text in texts if text.blocks is None]
    stored = data.store.block_vectors(missing) if missing else {}
    return [replace(text, blocks=text.blocks or stored.get(text.vector_id)) for text in texts]


async def add_blocks(collection: "Collection", texts: Sequence[EncodedText]) -> list[EncodedText]:
    """Return texts with their block vectors: read from the store or, if missing there, encoded."""
    texts = await run_in(collection.engine.readers, add_stored_blocks, collection.data, texts)
    missing = [RequestText("#", text.text) for text in texts if text.blocks is None]
    encoded = iter(await encode_texts(collection, missing, strict=False))
    return [
        replace(text, blocks=next(encoded).blocks) if text.blocks is None else text
        for text in texts
    ]


def to_comparable(
    language: str,
    text: EncodedText,
    alignable: AlignableDocuments | None,
    reader: SectionReader | None,
) -> ComparableText:
    """Split a text into the words and sections that a comparison reads.

    Args:
        language: of the text, ISO 639-1.
        text: with its block vectors.
        alignable: the space of the texts that it is compared with, and the blocks that search
            aligns of those that are stored; None for a comparison without alignment.
        reader: of sections; None where the model has no vectors of them.
    """
    if text.blocks is None:
        raise ValueError(f"document {text.document_id!r} has no block vectors")
    blocks, aligned, vector = text.blocks, None, text.vector
    if alignable is not None:
        vector = alignable.space.whiten(vector[np.newaxis])[0]
        aligned = alignable.blocks.get(text.vector_id) or alignable.project(
            text.text, as_stored(blocks.vectors), blocks.offsets
        )
    return prepare_text(
        text.text,
        vector,
        blocks.vectors,
        blocks.offsets,
        aligned=aligned,
        reader=reader,
        language=language,
    )
