"""Encode the texts of a request: tokenise, wait in the bounded queue, encode."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from encoder.arrays import Float32
from encoder.blocks import Receipt, SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.errors import EmptyTextError, TruncatedTextError
from index.sqlite.block_vectors import BlockVectors, block_vectors_of
from index.vectors.vector_index import NO_VECTOR
from service.engine import Collection
from service.errors import FieldError, InvalidInputError
from service.metrics import Metrics, Stage
from service.telemetry import add_span, observe_stage
from service.threads import run_in
from service.workers.scheduler import current_reservation

_CHARACTERS_PER_TOKEN = 4  # of English; for the estimate on admission


@dataclass(frozen=True, slots=True)
class RequestText:
    """A text of a request, with the JSON pointer to it, and its title if it has one."""

    pointer: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """A text as it was encoded, in this request or when it was stored.

    Attributes:
        text: the whole of it.
        title: of the text, if it has one.
        vector: Float32[dimension], unit norm.
        receipt: what was read of it.
        blocks: offsets and vectors of its sentence blocks; None if they were not stored, or not
            read from the store.
        document_id: of the stored document; None for a text of the request.
        vector_id: of the stored document; `NO_VECTOR` for a text of the request.
        seconds: time of each stage of encoding; empty for a stored document.
    """

    text: str
    title: str = ""
    vector: Float32
    receipt: Receipt
    blocks: BlockVectors | None = None
    document_id: str | None = None
    vector_id: int = NO_VECTOR
    seconds: Mapping[Stage, float] = field(default_factory=dict)


async def encode_texts(
    collection: Collection, texts: Sequence[RequestText], *, strict: bool, background: bool = False
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
        OverloadedError: the queue is full.
        DeadlinePassedError: the deadline of the request has passed.
        RequestTooLargeError: the texts have more tokens together than the queue holds.
        EncodingFailedError: the encoder failed.
        NotReadyError, ShuttingDownError: the service is broken, or closing.
    """
    if not texts:
        return []
    _check_lengths(texts, collection.engine.settings.max_text_characters)
    estimate = sum(_estimated_tokens(item.text, collection.checkpoint) for item in texts)
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
    collection: Collection, texts: Sequence[RequestText], strict: bool
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


def _check_lengths(texts: Sequence[RequestText], limit: int) -> None:
    refused = [
        FieldError(item.pointer, f"is longer than {limit} characters", limit)
        for item in texts
        if len(item.text) > limit
    ]
    if refused:
        raise InvalidInputError(refused)


def _estimated_tokens(text: str, checkpoint: Checkpoint) -> int:
    longest = checkpoint.max_blocks * checkpoint.block_length
    return min(len(text) // _CHARACTERS_PER_TOKEN + 1, longest)
