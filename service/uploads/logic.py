"""POST /index with JSON Lines: an upload becomes a job, whose documents are stored in batches.

Jobs are run by one thread, and never lost. Those of one client run one after the other: of two
versions of a document, the later one wins. Those of different clients run in turns, so that none
waits for the end of another's.

The files of the jobs that have not ended are in uploads/ of the data directory.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from sqlalchemy import Connection

from encoder.atomic_files import write_atomically
from index.document import Document
from index.errors import StorageError, StoreError
from service.documents.logic import Indexed, index_documents
from service.engine import Collection
from service.errors import (
    EncodingFailedError,
    InvalidInputError,
    JobEndedError,
    OverloadedError,
    ShuttingDownError,
    describe,
)
from service.limits import check_disk
from service.metrics import CollectionMetrics, JobEnd
from service.settings import Settings
from service.state import IdempotencyStore, State, StoredResponse, request_digest
from service.threads import run_in
from service.uploads.files import (
    MAX_UPLOADS,
    MAX_UPLOADS_OF_CLIENT,
    UPLOADS_DIRECTORY,
    Batch,
    BatchLimits,
    UploadFile,
    read_batch,
    remove_others,
    verify_upload,
)
from service.uploads.store import Job, JobStore, LineError, Step, Upload

_THREADS = 4  # that write uploads
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 5
_FULL_SECONDS = 10  # after which a client may try again
_TURN_SECONDS = 2.0  # for which a client's job runs while others wait

_LOG = logging.getLogger(__name__)

SERVER_FILE = "server-id"

RunJob = Callable[[Job], None]
AddMore = Callable[[Connection], None]


def server_id(data: Path) -> str:
    """Return what tells a server from the others of its database: kept in its data directory."""
    file = data / SERVER_FILE
    if not file.exists():
        write_atomically(file, uuid.uuid4().hex)
    return file.read_text()


class Jobs:
    """Receives uploads and runs them; none runs before `start`."""

    def __init__(
        self, state: State, data: Path, settings: Settings, metrics: CollectionMetrics
    ) -> None:
        self.store = JobStore(state, server_id(data) if state.shared else "")
        self.idempotency = IdempotencyStore(state)
        self.threads = ThreadPoolExecutor(_THREADS, "upload")
        self.metrics = metrics
        self._state = state
        self._settings = settings
        self._uploads = data / UPLOADS_DIRECTORY
        self._receiving: list[str] = []  # whose uploads arrive now
        self._verified: set[str] = set()
        self._turns: dict[str, int] = {}  # the number of each client's last turn
        self._turn_began = 0.0
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._worker: threading.Thread | None = None

    @property
    def stopping(self) -> bool:
        """Whether the running job is to stop; it continues at the next start."""
        return self._stopping.is_set()

    def start(self, run: RunJob) -> None:
        """Start the thread, which continues with the jobs that have not ended.

        Args:
            run: indexes a job from its position, and returns when it has ended or `stopping`.
        """
        try:
            remove_others(self._uploads, [job.id for job in self.store.unfinished()])
        except StorageError as error:
            _LOG.error("%s", error)
        self._worker = threading.Thread(target=self._work, args=(run,), name="jobs", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Ask the running job to stop, without waiting for it."""
        self._stopping.set()
        self._woken.set()

    def close(self) -> None:
        """Stop, and wait for the threads; closing twice does nothing."""
        self.stop()
        if self._worker is not None:
            self._worker.join()
        self.threads.shutdown()

    @contextmanager
    def receiving(self, client: str = "", announced: int = 0) -> Iterator[None]:
        """Give a place to an upload of a client while the block runs. From the event loop only.

        Args:
            client: whose it is; none takes all places.
            announced: bytes of its body; 0 if not known.

        Raises:
            OverloadedError: there are too many uploads, of all or of this client.
            StorageFullError: the disk has no room for it.
            ShuttingDownError: after `stop`.
        """
        if self.stopping:
            raise ShuttingDownError
        clients = [job.client for job in self.store.unfinished()] + self._receiving
        if len(clients) >= MAX_UPLOADS:
            raise OverloadedError(_FULL_SECONDS, "jobs")
        if clients.count(client) >= MAX_UPLOADS_OF_CLIENT:
            raise OverloadedError(_FULL_SECONDS, "client_jobs")
        check_disk(self._uploads.parent, announced, self._settings.disk_reserve_bytes)
        self._receiving.append(client)
        try:
            yield
        finally:
            self._receiving.remove(client)

    def begin_upload(self, *, gzip: bool) -> UploadFile:
        """Open the file of a new upload."""
        return UploadFile(
            self._uploads / f"{uuid.uuid4().hex}.ndjson",
            max_bytes=self._settings.max_upload_bytes,
            gzip=gzip,
            disk_reserve_bytes=self._settings.disk_reserve_bytes,
        )

    def add(self, upload: Upload, answered: AddMore | None = None, client: str = "") -> None:
        """Create a job of a client for an upload, durably, and wake the runner.

        `answered` stores the response to it in the same transaction.
        """
        with self._state.writing() as connection:
            self.store.insert(connection, upload, client)
            if answered is not None:
                answered(connection)
        self._woken.set()

    def cancel(self, job_id: str) -> None:
        """Cancel a job, or raise JobEndedError; what it has stored stays."""
        self._end(job_id, "cancelled")

    def end(self, job: Job, state: JobEnd, detail: str | None = None) -> None:
        """Record how a job ended; do nothing if it had ended before."""
        with suppress(JobEndedError):
            self._end(job.id, state, detail)

    def _end(self, job_id: str, state: JobEnd, detail: str | None = None) -> None:
        job = self.store.end(job_id, state, detail)
        with suppress(OSError):  # a file that cannot be removed now is removed at the next start
            self.path_of(job).unlink(missing_ok=True)
        self._verified.discard(job_id)
        self.metrics.jobs_ended(state).inc()

    def verify(self, job: Job) -> bool:
        """Return whether the upload of a job is what was received; read once in each process."""
        if job.id not in self._verified and verify_upload(self.path_of(job), job.digest):
            self._verified.add(job.id)
        return job.id in self._verified

    def turn_is_over(self, job: Job) -> bool:
        """Return whether the running job is to let one of another client run."""
        if monotonic() - self._turn_began < _TURN_SECONDS:
            return False
        return any(other.client != job.client for other in self.store.unfinished())

    def path_of(self, job: Job) -> Path:
        """Return the path of the upload of a job."""
        return self._uploads / f"{job.id}.ndjson"

    def _work(self, run: RunJob) -> None:
        said = ""
        while not self.stopping:
            try:
                if self._run_next(run):
                    continue
                said = ""
            except Exception as error:
                if said != (said := describe(error)):
                    _LOG.error("jobs are paused: %s", said)
            self._woken.wait(_IDLE_SECONDS)
            self._woken.clear()  # the store is read after this: no job added before is missed

    def _next(self) -> Job | None:
        """Return the oldest job of the client whose last turn was the longest ago."""
        first: dict[str, Job] = {}
        for job in self.store.unfinished():
            first.setdefault(job.client, job)
        self._turns = {name: turn for name, turn in self._turns.items() if name in first}
        if not first:
            return None
        client = min(first, key=lambda name: (self._turns.get(name, 0), first[name].number))
        self._turns[client] = max(self._turns.values(), default=0) + 1
        return first[client]

    def _run_next(self, run: RunJob) -> bool:
        """Run the next job for a turn; return whether there was one.

        A job that cannot continue stays the oldest of its client, and those behind it wait: of two
        versions of a document, the later one must win.
        """
        waiting = self._next()
        job = None if waiting is None else self.store.begin(waiting)
        if job is None:
            return waiting is not None
        self._turn_began = monotonic()
        try:
            run(job)
        except Exception as error:
            if not self.stopping:
                reason = describe(error)
                _LOG.error("job %s is paused: %s", job.id, reason)
                self.store.pause(job, f"{reason}; tried again every {_RETRY_SECONDS} s")
                self._stopping.wait(_RETRY_SECONDS)
        return True


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
            collection.metrics.job_documents("indexed").inc(step.indexed)
            collection.metrics.job_documents("failed").inc(step.failed)
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
