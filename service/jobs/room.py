"""Room for uploads: places for jobs, and bytes on the disk.

What has none is refused before the work. No client takes all places, and uploads leave a reserve of
the disk to the store.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from index.errors import StorageFullError, StoreError
from service.errors import OverloadedError
from service.jobs.job import Job

MAX_UPLOADS = 32  # of one collection, received, waiting or indexed: each holds a file open
MAX_UPLOADS_OF_CLIENT = 16  # of them, of one API key or address
MAX_WAITING_BYTES = 16 * 2**30  # of all of them, decompressed
_RETRY_SECONDS = 10


class Place:
    """The place of one upload that is being received, and the bytes that it has taken."""

    def __init__(self, room: "UploadRoom", client: str) -> None:
        self._room = room
        self.client = client
        self.bytes = 0

    def take(self, size: int) -> None:
        """Take so many bytes more, before they are written.

        Raises:
            OverloadedError: the uploads that wait have too many together.
            StorageFullError: they would take the reserve of the disk.
        """
        self._room.check_bytes(size)
        self.bytes += size


class UploadRoom:
    """The room of one data directory. Safe to use from many threads."""

    def __init__(
        self,
        folder: Path,
        unfinished: Callable[[], Sequence[Job]],
        *,
        disk_reserve_bytes: int,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        """Begin with no upload that is being received.

        Args:
            folder: of the uploads.
            unfinished: returns the jobs that have not ended.
            disk_reserve_bytes: free bytes of the disk that uploads leave.
            max_waiting_bytes: of all uploads that have not ended, decompressed.
        """
        self._folder = folder
        self._unfinished = unfinished
        self._reserve = disk_reserve_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._lock = threading.Lock()
        self._places: list[Place] = []
        self._waiting_bytes = 0

    @contextmanager
    def place(self, client: str, announced: int) -> Iterator[Place]:
        """Give a place to an upload of a client while the block runs.

        Args:
            client: whose it is.
            announced: bytes of its body; 0 if not known.

        Raises:
            OverloadedError: there are too many uploads, of all or of this client, or too many bytes
                of them.
            StorageFullError: the disk has no more than its reserve.
        """
        jobs = self._count()
        with self._lock:
            clients = [job.client for job in jobs] + [one.client for one in self._places]
            if len(clients) >= MAX_UPLOADS:
                raise OverloadedError(_RETRY_SECONDS, "jobs")
            if clients.count(client) >= MAX_UPLOADS_OF_CLIENT:
                raise OverloadedError(_RETRY_SECONDS, "client_jobs")
            place = Place(self, client)
            self._places.append(place)
        try:
            self.check_bytes(announced)
            yield place
        finally:
            with suppress(StoreError):  # its bytes are those of a job now
                self._count()
            with self._lock:
                self._places.remove(place)

    def _count(self) -> Sequence[Job]:
        jobs = self._unfinished()
        with self._lock:
            self._waiting_bytes = sum(job.size for job in jobs)
        return jobs

    def check_bytes(self, size: int) -> None:
        """Check that there is room for so many bytes more.

        Raises:
            OverloadedError, StorageFullError: there is none, see `Place.take`.
        """
        with self._lock:
            taken = self._waiting_bytes + sum(one.bytes for one in self._places)
        if taken + size > self._max_waiting_bytes:
            raise OverloadedError(_RETRY_SECONDS, "upload_bytes")
        try:
            free = shutil.disk_usage(self._folder.parent).free
        except OSError:  # the write itself will tell
            return
        if free - size < self._reserve:
            reason = f"it has {free} bytes free, and uploads leave {self._reserve}"
            raise StorageFullError(self._folder.name, reason)
