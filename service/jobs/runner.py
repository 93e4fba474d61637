"""The jobs of a data directory: received, run one after the other by one thread, and never lost.

jobs.sqlite3   the jobs, how far they are, their errors; answers kept for Idempotency-Key
uploads/       the lines of the jobs that have not ended
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from index.errors import StoreError
from index.sqlite.connections import SQLiteConnections
from service.errors import OverloadedError, ShuttingDownError, UnavailableError
from service.jobs.idempotency import Answers, KeyedResponse
from service.jobs.job import EndState, Job, Upload
from service.jobs.store import JobStore, open_tables
from service.jobs.uploads import UploadFile, remove_others
from service.metrics import Metrics
from service.settings import Settings

JOBS_FILE = "jobs.sqlite3"
UPLOADS_DIRECTORY = "uploads"
_THREADS = 4  # that write what is received
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 5
_SLOT_RETRY_SECONDS = 10

_LOG = logging.getLogger(__name__)

RunJob = Callable[[Job], None]


class Jobs:
    """Receives uploads and runs them; `open_jobs` makes it.

    Attributes:
        store: what is known of the jobs.
        answers: what is kept for Idempotency-Key.
        threads: where files are written.
        metrics: where to count.
    """

    def __init__(
        self, connections: SQLiteConnections, settings: Settings, metrics: Metrics
    ) -> None:
        self.store = JobStore(connections)
        self.answers = Answers(connections, settings.max_idempotency_keys)
        self.threads = ThreadPoolExecutor(_THREADS, "upload")
        self.metrics = metrics
        self._connections = connections
        self._settings = settings
        self._uploads = settings.data / UPLOADS_DIRECTORY
        for outcome in ("indexed", "failed"):  # so that there is a zero to see
            metrics.job_documents.labels(outcome)
        self._receiving = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._worker: threading.Thread | None = None

    @property
    def stopping(self) -> bool:
        """Whether the job that runs is to leave off; it goes on at the next start."""
        return self._stopping.is_set()

    def start(self, run: RunJob) -> None:
        """Go on with what has not ended.

        Args:
            run: indexes a job from where it is, and returns when it has ended or `stopping`.

        Raises:
            StoreError: the uploads cannot be read.
        """
        remove_others(self._uploads, [job.id for job in self.store.unfinished()])
        self.record()
        self._worker = threading.Thread(target=self._work, args=(run,), name="jobs", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Let the job that runs leave off, without waiting for it."""
        self._stopping.set()
        self._woken.set()

    def close(self) -> None:
        """Stop, wait for it, and close the tables; closing twice does nothing."""
        self.stop()
        if self._worker is not None:
            self._worker.join()
        self.threads.shutdown()
        self._connections.close()

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Count one upload as being received for as long as the block runs.

        Raises:
            OverloadedError: as many as are allowed are received, wait or run.
            ShuttingDownError: the service is closing.
        """
        unfinished = len(self.store.unfinished())
        with self._lock:
            if self.stopping:
                raise ShuttingDownError
            if unfinished + self._receiving >= self._settings.max_unfinished_jobs:
                raise OverloadedError(_SLOT_RETRY_SECONDS, "jobs")
            self._receiving += 1
        try:
            yield
        finally:
            with self._lock:
                self._receiving -= 1

    def begin_upload(self, *, gzip: bool) -> UploadFile:
        """Begin to receive an upload.

        Raises:
            StoreError: it cannot be written.
        """
        path = self._uploads / f"{uuid.uuid4().hex}.ndjson"
        return UploadFile(path, max_bytes=self._settings.max_upload_bytes, gzip=gzip)

    def add(self, upload: Upload, keyed: KeyedResponse | None) -> None:
        """Make a job of an upload: from now on it is not lost.

        Raises:
            StoreError: it could not be stored; there is no such job.
        """
        self.store.add(upload, keyed)
        self._woken.set()
        self.record()

    def cancel(self, job_id: str) -> Job:
        """Let a job end before its time.

        Raises:
            JobNotFoundError: there is none of this id.
            JobEndedError: it had ended.
        """
        job = self.store.cancel(job_id)
        self._ended(job, "cancelled")
        return job

    def end(self, job: Job, state: EndState, detail: str | None = None) -> None:
        """Note how a job ended; do nothing when it had ended before."""
        if self.store.end(job, state, detail):
            self._ended(job, state)

    def path_of(self, job: Job) -> Path:
        """Return where the lines of a job are."""
        return self._uploads / f"{job.id}.ndjson"

    def record(self) -> None:
        """Set the metric of what has not ended."""
        self.metrics.jobs_unfinished.set(len(self.store.unfinished()))

    def _ended(self, job: Job, state: EndState) -> None:
        with suppress(OSError):  # what cannot be removed now is removed at the next start
            self.path_of(job).unlink(missing_ok=True)
        self.metrics.jobs_ended.labels(state).inc()
        self.record()

    def _work(self, run: RunJob) -> None:
        while not self.stopping:
            try:
                if self._run_next(run):
                    continue
            except Exception as error:
                _LOG.error("the jobs wait: %s", type(error).__name__)
            self._woken.wait(_IDLE_SECONDS)
            self._woken.clear()  # the store is read after this: nothing stored before is missed

    def _run_next(self, run: RunJob) -> bool:
        """Run the oldest unfinished job; return whether there was one.

        One that cannot go on stays the oldest, and those behind it wait: of two versions of a
        document the later one must stay.
        """
        job = self.store.begin_next()
        if job is None:
            return False
        try:
            run(job)
        except Exception as error:
            if not self.stopping:
                _LOG.error("job %s waits: %s", job.id, _told(error))
                self.store.pause(job, f"{_told(error)}; tried again every {_RETRY_SECONDS} s")
                self._stopping.wait(_RETRY_SECONDS)
        return True


def open_jobs(settings: Settings, metrics: Metrics) -> Jobs:
    """Open the jobs of the data directory, which is open; nothing runs before `start`.

    Raises:
        StoreError: their tables cannot be read.
    """
    connections = open_tables(settings.data / JOBS_FILE)
    try:
        return Jobs(connections, settings, metrics)
    except BaseException:
        connections.close()
        raise


def _told(error: Exception) -> str:
    """Say what went wrong, without a word that may be of a document."""
    known = isinstance(error, StoreError | UnavailableError)
    return str(error) if known else type(error).__name__
