"""The third visible way: an upload -> a job -> batches of documents, stored as `indexing` does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from index.document import Document
from index.errors import StoreError
from service.engine import Engine
from service.errors import EncodingFailedError, InvalidInputError
from service.indexing import Indexed, index_documents
from service.jobs.idempotency import StoredResponse, request_digest
from service.jobs.job import Job, LineError, Step, Upload
from service.jobs.uploads import Batch, BatchLimits, UploadFile, read_batch, verify_upload
from service.threads import run_in

BATCH_DOCUMENTS = 64
_CHUNK_BYTES = 2**20

Numbered = tuple[int, Document]


async def submit_upload(
    engine: Engine,
    chunks: AsyncIterator[bytes],
    shape: Callable[[Upload], StoredResponse],
    *,
    gzip: bool,
    key: str | None,
) -> tuple[StoredResponse, bool]:
    """Receive an upload and make a job of it; at return it is durable.

    Args:
        engine: whose jobs it joins.
        chunks: the body as it comes; one that ends too soon raises.
        shape: makes the answer.
        gzip: whether the body is compressed.
        key: the Idempotency-Key.

    Returns:
        The answer, and whether it was given before to the same request.

    Raises:
        OverloadedError: too many jobs.
        BodyTooLargeError, MalformedUploadError, InvalidInputError: the body is refused.
        KeyInUseError, KeyReusedError: the key is refused.
        StoreError: it could not be stored; there is no such job.
    """
    jobs = engine.jobs
    with jobs.receiving(), jobs.answers.in_progress(key):
        file = await run_in(jobs.threads, jobs.begin_upload, gzip=gzip)
        try:
            upload = await _receive(engine, file, chunks)
            request = request_digest("lines", upload.digest)
            kept = await run_in(jobs.threads, jobs.answers.find, key, request)
        except BaseException:  # also a client that left, and a service that stops
            await asyncio.shield(asyncio.to_thread(file.abandon))
            raise
        if kept:
            await run_in(jobs.threads, file.abandon)
            return kept, True
        answer = shape(upload)
        keyed = jobs.answers.keyed(key, request, answer) if key else None
        try:
            await run_in(jobs.threads, jobs.add, upload, keyed)
        except StoreError:
            await run_in(jobs.threads, file.abandon)
            raise
        return answer, False


async def _receive(engine: Engine, file: UploadFile, chunks: AsyncIterator[bytes]) -> Upload:
    threads = engine.jobs.threads
    held: list[bytes] = []
    async for chunk in chunks:
        held.append(chunk)
        if sum(map(len, held)) >= _CHUNK_BYTES:
            await run_in(threads, file.write, b"".join(held))
            held.clear()
    await run_in(threads, file.write, b"".join(held))
    return await run_in(threads, file.finish)


def run_job(engine: Engine, job: Job) -> None:
    """Index a job from where it is, until it has ended or the service stops.

    Whatever ends this process, the same lines are read again at most: a document whose text is
    stored already is not stored twice.

    Raises:
        StoreError: store, tables or upload could not be read or written.
        UnavailableError: the encoder does not work.
    """
    path = engine.jobs.path_of(job)
    if not verify_upload(path, job.digest):
        engine.jobs.end(job, "failed", "the upload is missing or damaged: send it again")
        return
    limits = BatchLimits(
        documents=min(BATCH_DOCUMENTS, engine.settings.max_documents_per_request),
        line_bytes=engine.settings.max_body_bytes,
        text_characters=engine.settings.max_text_characters,
    )
    position, line = job.position, job.line
    with path.open("rb") as upload, asyncio.Runner() as runner:
        while batch := read_batch(upload, position, line, limits):
            step = runner.run(_index_batch(engine, batch))
            goes_on = engine.jobs.store.advance(job, step)
            engine.metrics.job_documents.labels("indexed").inc(step.indexed)
            engine.metrics.job_documents.labels("failed").inc(len(step.errors))
            if not goes_on or engine.jobs.stopping:
                return
            position, line = step.position, step.line
    engine.jobs.end(job, "done")


async def _index_batch(engine: Engine, batch: Batch) -> Step:
    stored, errors = await _index(engine, batch.documents)
    return Step(
        position=batch.position,
        line=batch.line,
        indexed=len(stored),
        unchanged=sum(one.unchanged for one in stored),
        truncated=sum(one.receipt.tokens_read < one.receipt.tokens for one in stored),
        errors=[*batch.errors, *errors],
    )


async def _index(
    engine: Engine, documents: Sequence[Numbered]
) -> tuple[list[Indexed], list[LineError]]:
    """Store the documents that can be, and say of the others why not."""
    if not documents:
        return [], []
    try:
        indexed = await index_documents(
            engine, [document for _, document in documents], background=True
        )
    except InvalidInputError as error:
        refused = _refused(documents, error)
        rest = [one for one in documents if one[0] not in {error.line for error in refused}]
        stored, errors = await _index(engine, rest)
        return stored, [*refused, *errors]
    except EncodingFailedError:
        return await _index_one_by_one(engine, documents)
    return list(indexed.documents), []


async def _index_one_by_one(
    engine: Engine, documents: Sequence[Numbered]
) -> tuple[list[Indexed], list[LineError]]:
    if len(documents) == 1:
        return [], [LineError(documents[0][0], "#/text", "could not be encoded")]
    stored: list[Indexed] = []
    errors: list[LineError] = []
    for one in documents:
        done, failed = await _index(engine, [one])
        stored += done
        errors += failed
    return stored, errors


def _refused(documents: Sequence[Numbered], error: InvalidInputError) -> list[LineError]:
    """Turn pointers into the documents of a call into lines and pointers into them."""
    found = {}
    for item in error.errors:
        _, _, number, field = item.pointer.split("/", 3)
        line = documents[int(number)][0]
        found[line] = LineError(line, f"#/{field}", item.detail)
    return list(found.values())
