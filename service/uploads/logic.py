"""POST /index with JSON Lines: an upload becomes a job, whose documents are stored in batches.

Jobs are run by one thread, and never lost. Those of one client run one after the other: of two
versions of a document, the later one wins. Those of different clients run in turns, so that none
waits for the end of another's.

The files of the jobs that have not ended are in uploads/ of the data directory.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic

from encoder.atomic_files import write_atomically
from index.document import Document
from index.errors import StorageError, StoreError
from service import errors
from service.documents.logic import index_documents
from service.engine import Collection
from service.limits import check_disk
from service.metrics import CollectionMetrics, JobEnd
from service.settings import Settings
from service.state import IdempotencyStore, State
from service.threads import Worker, run_in
from service.uploads import files
from service.uploads.store import Batch, Job, JobStore, LineError, Upload

_THREADS = 4  # that write uploads
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 5
_FULL_SECONDS = 10  # after which a client may try again
_TURN_SECONDS = 2.0  # for which a client's job runs while others wait
_CHUNK_BYTES = 2**20

_LOG = logging.getLogger(__name__)

SERVER_FILE = "server-id"


def server_id(data: Path) -> str:
    """Return what tells a server from the others of its database: kept in its data directory."""
    file = data / SERVER_FILE
    if not file.exists():
        write_atomically(file, uuid.uuid4().hex)
    return file.read_text()


class Jobs:
    """Receives uploads and runs them; none runs before `start`.

    Attributes:
        worker: the thread that runs them.
        store: of the jobs.
        idempotency: the responses stored for Idempotency-Key.
        threads: that write uploads, and use the state for routes.
        metrics: where they are counted.
    """

    def __init__(
        self, state: State, data: Path, settings: Settings, metrics: CollectionMetrics
    ) -> None:
        self.worker = Worker("jobs", self._run_next)
        self.store = JobStore(state, server_id(data) if state.shared else "")
        self.idempotency = IdempotencyStore(state)
        self.threads = ThreadPoolExecutor(_THREADS, "upload")
        self.metrics = metrics
        self._settings = settings
        self._uploads = data / files.UPLOADS_DIRECTORY
        self._receiving: list[str] = []  # whose uploads arrive now
        self._verified: set[str] = set()
        self._turns: dict[str, int] = {}  # the number of each client's last turn
        self._turn_began = 0.0

    @property
    def stopping(self) -> bool:
        """Whether the running job is to stop; it continues at the next start."""
        return self.worker.stopping.is_set()

    def start(self, run: Callable[[Job], None]) -> None:
        """Start the thread, which continues with the jobs that have not ended.

        `run` indexes a job from its position, and returns when it has ended or `stopping`.
        """
        self._run = run
        try:
            files.remove_others(self._uploads, [job.id for job in self.store.unfinished()])
        except StorageError as error:
            _LOG.error("%s", error)
        self.worker.start()

    @asynccontextmanager
    async def receive(
        self,
        chunks: AsyncIterator[bytes],
        charge: Callable[[int], Awaitable[None]],
        client: str,
        *,
        announced: int,
        gzip: bool,
    ) -> AsyncIterator[tuple[files.UploadFile, Upload]]:
        """Receive an upload, which is durable in the block, and gone after it unless it is a job.

        Args:
            chunks: the body as it arrives; one that ends too soon raises.
            charge: is called with how many bytes, decompressed, were received.
            client: who sends it; none takes all places.
            announced: bytes of the body; 0 if not known.
            gzip: whether it is compressed.

        Raises:
            OverloadedError: there are too many uploads, of all or of this client.
            StorageFullError: the disk has no room for it.
            ShuttingDownError: the service stops.
        """
        if self.stopping:
            raise errors.ShuttingDownError
        clients = [job.client for job in self.store.unfinished()] + self._receiving
        if len(clients) >= files.MAX_UPLOADS:
            raise errors.OverloadedError(_FULL_SECONDS, "jobs")
        if clients.count(client) >= files.MAX_UPLOADS_OF_CLIENT:
            raise errors.OverloadedError(_FULL_SECONDS, "client_jobs")
        limit, reserve = self._settings.max_upload_bytes, self._settings.disk_reserve_bytes
        check_disk(self._uploads.parent, announced, reserve)
        self._receiving.append(client)
        path, held = self._uploads / f"{uuid.uuid4().hex}.ndjson", bytearray()
        file: files.UploadFile | None = None
        try:
            file = await run_in(
                self.threads, files.UploadFile, path, limit, gzip=gzip, disk_reserve_bytes=reserve
            )
            async for chunk in chunks:
                held += chunk
                if len(held) >= _CHUNK_BYTES:
                    await run_in(self.threads, file.write, bytes(held))
                    held.clear()
            await run_in(self.threads, file.write, bytes(held))
            await charge(file.size)
            yield file, await run_in(self.threads, file.finish)
        finally:  # also when the client disconnects or the service stops
            self._receiving.remove(client)
            if file is not None and not file.kept:
                await asyncio.shield(asyncio.to_thread(file.abandon))

    async def add(self, file: files.UploadFile, upload: Upload, client: str) -> None:
        """Create a job of a client for an upload, durably, and wake the runner."""
        file.kept = True  # also when the client disconnects meanwhile
        try:
            await run_in(self.threads, self.store.insert, upload, client)
        except StoreError:
            file.kept = False
            raise
        self.worker.woken.set()

    def end(self, job_id: str, state: JobEnd, detail: str | None = None) -> None:
        """Record how a job ended, or raise JobEndedError; what it has stored stays."""
        job = self.store.end(job_id, state, detail)
        with suppress(OSError):  # a file that cannot be removed now is removed at the next start
            self.path_of(job).unlink(missing_ok=True)
        self._verified.discard(job_id)
        self.metrics.jobs_ended(state).inc()

    def verify(self, job: Job) -> bool:
        """Return whether the upload of a job is what was received; read once in each process."""
        if job.id not in self._verified and files.verify_upload(self.path_of(job), job.digest):
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

    def _run_next(self) -> float:
        """Run the next job for a turn; return the seconds to rest, 0 where there was one.

        A job that cannot continue stays the oldest of its client, and those behind it wait: of two
        versions of a document, the later one must win.
        """
        waiting = self._next()
        job = None if waiting is None else self.store.begin(waiting)
        if job is None:
            return _IDLE_SECONDS if waiting is None else 0.0
        self._turn_began = monotonic()
        try:
            with suppress(errors.JobEndedError):  # it was cancelled when it came to its end
                self._run(job)
        except Exception as error:
            if not self.stopping:
                reason = errors.describe(error)
                _LOG.error("job %s is paused: %s", job.id, reason)
                self.store.pause(job, f"{reason}; tried again every {_RETRY_SECONDS} s")
                self.worker.stopping.wait(_RETRY_SECONDS)
        return 0.0


BATCH_DOCUMENTS = 64

Numbered = tuple[int, Document]


def run_job(collection: Collection, job: Job) -> None:
    """Index a job from its position until it has ended, its turn is over or the service stops.

    However this process ends, at most one batch is read again, and a document whose text is stored
    already is not stored twice.
    """
    path = collection.jobs.path_of(job)
    if not collection.jobs.verify(job):
        collection.jobs.end(job.id, "failed", "the upload is missing or damaged: send it again")
        return
    settings = collection.engine.settings
    read = partial(
        files.read_batch,
        documents=BATCH_DOCUMENTS,
        line_bytes=settings.max_body_bytes,
        text_characters=settings.max_text_characters,
    )
    position, line = job.position, job.line
    with path.open("rb") as upload, asyncio.Runner() as runner:
        while batch := read(upload, position, line):
            check_disk(path.parent, batch.position - position, settings.disk_reserve_bytes)
            runner.run(_index(collection, batch, batch.documents))
            continues = collection.jobs.store.advance(job, batch)
            collection.metrics.job_documents("indexed").inc(batch.indexed)
            collection.metrics.job_documents("failed").inc(batch.failed)
            if not continues or collection.jobs.stopping or collection.jobs.turn_is_over(job):
                return
            position, line = batch.position, batch.line
    collection.jobs.end(job.id, "done")


async def _index(collection: Collection, batch: Batch, documents: Sequence[Numbered]) -> None:
    """Store documents of a batch, and count in it what became of them."""
    if not documents:
        return
    try:
        indexed = await index_documents(
            collection, [document for _, document in documents], background=True
        )
    except errors.InvalidInputError as error:
        invalid = _line_errors(documents, error)
        lines = {error.line for error in invalid}
        batch.failed += len(invalid)
        batch.errors += invalid
        await _index(collection, batch, [item for item in documents if item[0] not in lines])
    except errors.EncodingFailedError:
        if len(documents) == 1:
            batch.failed += 1
            batch.errors.append(LineError(documents[0][0], "#/text", "could not be encoded"))
            return
        for document in documents:
            await _index(collection, batch, [document])
    else:
        for stored in indexed.documents:
            batch.indexed += 1
            batch.unchanged += stored.unchanged
            batch.truncated += stored.receipt.tokens_read < stored.receipt.tokens


def _line_errors(documents: Sequence[Numbered], error: errors.InvalidInputError) -> list[LineError]:
    """Translate pointers into the documents of a call to lines and pointers into them."""
    found = {}
    for item in error.errors:
        _, _, number, field = item.pointer.split("/", 3)
        line = documents[int(number)][0]
        found[line] = LineError(line, f"#/{field}", item.detail)
    return list(found.values())
