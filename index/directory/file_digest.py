"""The digest of a closed store: a checksum of its whole file.

SQLite keeps no checksums of its pages. So closing a store writes a digest of the whole file, and
opening it compares: what changed in between is damage, wherever in the file it is. The digest is
removed before the first write. After a kill there is none, and the checksums of the rows, which
are compared whenever rows are read, are the remaining protection.
"""

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

from encoder.atomic_files import sync, write_atomically
from index.errors import StoreError

DIGEST_FILE = ".store-digest"
_CHUNK = 2**24
_PART = 2**19  # bytes of a chunk that are in memory at a time
_THREADS = 4

_log = logging.getLogger(__name__)


def write_digest(store: Path) -> None:
    """Write the digest of a store that no process has open; a failure is only logged."""
    log = store.with_name(f"{store.name}-wal")
    try:
        if log.exists() and log.stat().st_size:
            return  # a reader has it open, so the file is not the whole store
        digest = _digest(store)
        write_atomically(store.with_name(DIGEST_FILE), f"{digest} {_check(digest)}\n")
    except OSError as error:
        _log.warning("%s: no digest was written: %s", store, error)


def verify_digest(store: Path) -> None:
    """Compare a store with its digest; one without a digest passes.

    Raises:
        StoreError: the file has changed since it was closed, or cannot be read.
    """
    path = store.with_name(DIGEST_FILE)
    expected = _read(path)
    if expected is None:
        return
    try:
        found = _digest(store)
    except FileNotFoundError:
        return  # opening the store reports it
    except OSError as error:
        raise StoreError(f"{store}: cannot be read: {error}") from error
    if found != expected and path.exists():  # else another process has begun to write
        raise StoreError(
            f"{store}: has changed since it was closed, it may be damaged: longmatch doctor says "
            "what is wrong, and longmatch doctor --repair rebuilds what can be rebuilt"
        )


def has_digest(store: Path) -> bool:
    """Return whether there is a digest to compare a store with."""
    return _read(store.with_name(DIGEST_FILE)) is not None


class DigestCheck:
    """The comparison of a store with its digest while the store is open, in another thread.

    The file of the store must not change before `sound` was called: SQLite leaves changes in the
    log until a checkpoint. So whatever happens meanwhile, file and digest belong together, and
    after a kill the next opening compares them again.
    """

    def __init__(self, store: Path, sound: Callable[[], None]) -> None:
        """Start comparing.

        Args:
            store: its file.
            sound: called when the digest was right and has been removed.
        """
        self._store = store
        self._sound = sound
        self._damage: str | None = None
        self._thread = threading.Thread(target=self._compare, name="digest")
        self._thread.start()

    @property
    def damage(self) -> str | None:
        """What is wrong; None while nothing is known to be."""
        return self._damage

    def wait(self) -> bool:
        """Wait for the end, and return whether the store is sound."""
        self._thread.join()
        return self._damage is None

    def _compare(self) -> None:
        try:
            verify_digest(self._store)
            remove_digest(self._store)
            self._sound()
        except StoreError as error:
            self._damage = str(error)
            _log.critical("%s", error)


def remove_digest(store: Path) -> None:
    """Remove the digest before a write.

    Raises:
        StoreError: it cannot be removed.
    """
    path = store.with_name(DIGEST_FILE)
    try:
        if path.exists():
            path.unlink()
            sync(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed: {error}") from error


def _read(path: Path) -> str | None:
    try:
        digest, check = path.read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: is damaged and is ignored: %s", path, error)
        return None
    if _check(digest) != check:
        _log.warning("%s: is damaged and is ignored", path)
        return None
    return digest


def _check(digest: str) -> str:
    return f"{crc32(digest.encode()):08x}"


def _digest(path: Path) -> str:
    """Return the SHA-256, in hex, of the SHA-256 of each chunk; chunks are read in parallel."""
    size = path.stat().st_size
    with path.open("rb") as file, ThreadPoolExecutor(_THREADS, "digest") as threads:
        chunks = threads.map(_reader(file.fileno()), range(0, max(size, 1), _CHUNK))
        return hashlib.sha256(b"".join(chunks)).hexdigest()


def _reader(descriptor: int) -> Callable[[int], bytes]:
    def read(start: int) -> bytes:
        digest, end = hashlib.sha256(), start + _CHUNK
        while start < end and (part := os.pread(descriptor, min(_PART, end - start), start)):
            digest.update(part)
            start += len(part)
        return digest.digest()

    return read
