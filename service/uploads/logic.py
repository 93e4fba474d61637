"""POST /index with JSON Lines: an upload -> a job -> batches of documents, stored by `indexing`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from index.document import Document
from index.errors import StoreError
from service.documents.logic import Indexed, index_documents
from service.engine import Collection
from service.errors import EncodingFailedError, InvalidInputError
from service.limits import check_disk
from service.state.idempotency import StoredResponse, request_digest
from service.threads import run_in
from service.uploads.files import Batch, BatchLimits, UploadFile, read_batch
from service.uploads.store import Job, LineError, Step, Upload

BATCH_DOCUMENTS = 64
_CHUNK_BYTES = 2**20

Numbered = tuple[int, Document]


@dataclass(frozen=True, slots=True)
class UploadHead:
    """What is known of an upload before it is read.

    Attributes:
        gzip: whether the body is compressed.
        key: the Idempotency-Key, if there is one.
        client: who sends it.
        announced: bytes of the body, as sent; 0 if not known.
    """

    gzip: bool
    key: str | None
    client: str
    announced: int


async def submit_upload(
    collection: Collection,
    chunks: AsyncIterator[bytes],
    respond: Callable[[Upload], StoredResponse],
    charge: Callable[[int], Awaitable[None]],
    head: UploadHead,
) -> tuple[StoredResponse, bool]:
    """Receive an upload and create a job for it; both are durable at return.

    Args:
        collection: that runs the job.
        chunks: the body as it arrives; one that ends too soon raises.
        respond: makes the response.
        charge: is called with how many bytes, decompressed, were received.
        head: of the request.

    Returns:
        The response, and whether it is a replay of an earlier one.
    """
    jobs, key = collection.jobs, head.key
    with jobs.receiving(head.client, head.announced), jobs.idempotency.in_progress(key):
        file = await run_in(jobs.threads, jobs.begin_upload, gzip=head.gzip)
        try:
            upload = await _receive(collection, file, chunks, charge)
            request = request_digest("lines", upload.digest)
            stored = await run_in(jobs.threads, jobs.idempotency.find, key, request)
        except BaseException:  # also when the client disconnects or the service stops
            await asyncio.shield(asyncio.to_thread(file.abandon))
            raise
        if stored:
            await run_in(jobs.threads, file.abandon)
            return stored, True
        response = respond(upload)
        store = partial(jobs.idempotency.insert, key, request, response) if key else None
        try:
            await run_in(jobs.threads, jobs.add, upload, store, head.client)
        except StoreError:
            await run_in(jobs.threads, file.abandon)
            raise
        return response, False


async def _receive(
    collection: Collection,
    file: UploadFile,
    chunks: AsyncIterator[bytes],
    charge: Callable[[int], Awaitable[None]],
) -> Upload:
    threads = collection.jobs.threads
    held: list[bytes] = []
    async for chunk in chunks:
        held.append(chunk)
        if sum(map(len, held)) >= _CHUNK_BYTES:
            await run_in(threads, file.write, b"".join(held))
            held.clear()
    await run_in(threads, file.write, b"".join(held))
    await charge(file.size)
    return await run_in(threads, file.finish)


def run_job(collection: Collection, job: Job) -> None:
    """Index a job from its position until it has ended, its turn is over or the service stops.

    However this process ends, at most one batch is read again, and a document whose text is stored
    already is not stored twice.
    """
    path = collection.jobs.path_of(job)
    if not collection.jobs.verify(job):
        collection.jobs.end(job, "failed", "the upload is missing or damaged: send it again")
        return
    settings = collection.engine.settings
    limits = BatchLimits(
        documents=BATCH_DOCUMENTS,
        line_bytes=settings.max_body_bytes,
        text_characters=settings.max_text_characters,
    )
    position, line = job.position, job.line
    with path.open("rb") as upload, asyncio.Runner() as runner:
        while batch := read_batch(upload, position, line, limits):
            check_disk(path.parent, batch.position - position, settings.disk_reserve_bytes)
            step = runner.run(_index_batch(collection, batch))
            continues = collection.jobs.store.advance(job, step)
            collection.metrics.job_documents.labels("indexed").inc(step.indexed)
            collection.metrics.job_documents.labels("failed").inc(step.failed)
            if not continues or collection.jobs.stopping or collection.jobs.turn_is_over(job):
                return
            position, line = step.position, step.line
    collection.jobs.end(job, "done")


async def _index_batch(collection: Collection, batch: Batch) -> Step:
    stored, errors = await _index(collection, batch.documents)
    return Step(
        position=batch.position,
        line=batch.line,
        indexed=len(stored),
        unchanged=sum(document.unchanged for document in stored),
        truncated=sum(
            document.receipt.tokens_read < document.receipt.tokens for document in stored
        ),
        failed=batch.failed + len(errors),
        errors=[*batch.errors, *errors],
    )


async def _index(
    collection: Collection, documents: Sequence[Numbered]
) -> tuple[list[Indexed], list[LineError]]:
    """Store the valid documents; return them, and the errors of the others."""
    if not documents:
        return [], []
    try:
        indexed = await index_documents(
            collection, [document for _, document in documents], background=True
        )
    except InvalidInputError as error:
        invalid = _line_errors(documents, error)
        rest = [
            document
            for document in documents
            if document[0] not in {error.line for error in invalid}
        ]
        stored, errors = await _index(collection, rest)
        return stored, [*invalid, *errors]
    except EncodingFailedError:
        if len(documents) == 1:
            return [], [LineError(documents[0][0], "#/text", "could not be encoded")]
        parts = [await _index(collection, [document]) for document in documents]
        return [one for part, _ in parts for one in part], [
            one for _, part in parts for one in part
        ]
    return list(indexed.documents), []


def _line_errors(documents: Sequence[Numbered], error: InvalidInputError) -> list[LineError]:
    """Translate pointers into the documents of a call to lines and pointers into them."""
    found = {}
    for item in error.errors:
        _, _, number, field = item.pointer.split("/", 3)
        line = documents[int(number)][0]
        found[line] = LineError(line, f"#/{field}", item.detail)
    return list(found.values())
