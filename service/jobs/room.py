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
from service.settings import Settings

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
        self, folder: Path, settings: Settings, unfinished: Callable[[], Sequence[Job]]
    ) -> None:
        """Begin with no upload that is being received.

        Args:
            folder: of the uploads.
            settings: the limits.
            unfinished: returns the jobs that have not ended.
        """
        self._folder = folder
        self._settings = settings
        self._unfinished = unfinished
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
            if len(clients) >= self._settings.max_unfinished_jobs:
                raise OverloadedError(_RETRY_SECONDS, "jobs")
            if self._has_its_share(client, clients):
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

    def _has_its_share(self, client: str, clients: Sequence[str]) -> bool:
        return clients.count(client) >= self._settings.max_unfinished_jobs_per_client

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
        if taken + size > self._settings.max_waiting_upload_bytes:
            raise OverloadedError(_RETRY_SECONDS, "upload_bytes")
        reserve = self._settings.disk_reserve_bytes
        try:
            free = shutil.disk_usage(self._folder.parent).free
        except OSError:  # the write itself will tell
            return
        if free - size < reserve:
            reason = f"it has {free} bytes free, and uploads leave {reserve}"
            raise StorageFullError(self._folder.name, reason)
