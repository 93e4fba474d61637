"""Uploads on their way to the disk: counted, bounded, decompressed, and durable at their end."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from encoder.durable_files import put_in_place
from index.errors import StoreError
from service.errors import BodyTooLargeError, FieldError, InvalidInputError, MalformedUploadError
from service.jobs.job import Upload

T = TypeVar("T")

_READ_BYTES = 2**20
_BLANK = b" \t\r\v\f"
_LINE_END = 10
_GZIP_WINDOW = 31  # of zlib: a gzip header and trailer are expected


class UploadFile:
    """One upload that is being received; nothing of it is held but the chunk in hand.

    To be used from one thread at a time. In the end either `finish` or `abandon` is called.
    """

    def __init__(self, path: Path, *, max_bytes: int, gzip: bool) -> None:
        """Begin a file beside `path`, where `finish` will put it.

        Args:
            path: ID.ndjson of the job.
            max_bytes: of what is received, and of what it is when decompressed.
            gzip: whether what is received is compressed.

        Raises:
            StoreError: it cannot be written.
        """
        self._path = path
        self._partial = path.with_suffix(".partial")
        self._max_bytes = max_bytes
        self._gunzip = _Gunzip() if gzip else None
        self._received = 0
        self._bytes = 0
        self._lines = 0
        self._line_is_filled = False
        self._digest = hashlib.sha256()
        self._file = _or_store_error(path, lambda: self._partial.open("wb"))

    def write(self, chunk: bytes) -> None:
        """Take the next bytes of the request.

        Raises:
            BodyTooLargeError: they are more than allowed, or turn out to be.
            MalformedUploadError: they are not gzip.
            StoreError: they cannot be written.
        """
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise BodyTooLargeError(self._max_bytes)
        for part in self._gunzip.feed(chunk) if self._gunzip else (chunk,):
            self._bytes += len(part)
            if self._bytes > self._max_bytes:
                raise BodyTooLargeError(self._max_bytes)
            self._digest.update(part)
            self._count_lines(part)
            _or_store_error(self._path, partial(self._file.write, part))

    def finish(self) -> Upload:
        """Put the file in place; at return it is on the disk.

        Raises:
            MalformedUploadError: it is cut off.
            InvalidInputError: it has no line.
            StoreError: it cannot be written.
        """
        if self._gunzip is not None:
            self._gunzip.check_end()
        lines = self._lines + self._line_is_filled
        if not lines:
            raise InvalidInputError([FieldError("#", "has no line")])
        _or_store_error(self._path, self._file.close)
        _or_store_error(self._path, lambda: put_in_place(self._partial, self._path))
        return Upload(self._path.stem, self._bytes, lines, self._digest.digest())

    def abandon(self) -> None:
        """Leave nothing of it, finished or not."""
        for undo in (self._file.close, self._partial.unlink, self._path.unlink):
            try:
                undo()
            except OSError:  # a full disk, or there is no such file
                continue

    def _count_lines(self, part: bytes) -> None:
        """Count by arrays: a part may be a million empty lines."""
        filled = np.frombuffer(part.translate(None, _BLANK), dtype=np.uint8)
        if not len(filled):
            return
        ends = filled == _LINE_END
        self._lines += int(self._line_is_filled and ends[0])
        self._lines += int(np.count_nonzero(ends[1:] & ~ends[:-1]))
        self._line_is_filled = not ends[-1]


class _Gunzip:
    """Decompresses gzip, of any number of members, a bounded piece at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP_WINDOW)
                self._begun = True
                yield self._member.decompress(data, _READ_BYTES)
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise MalformedUploadError("the body is not gzip, or is damaged") from error

    def check_end(self) -> None:
        if self._begun and not self._member.eof:
            raise MalformedUploadError("the gzip body is cut off")


def verify_upload(path: Path, digest: bytes) -> bool:
    """Say whether a file is there and is what was received.

    Raises:
        StoreError: it is there and cannot be read.
    """
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                found.update(data)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{path.name}: cannot be read: {error.strerror}") from error
    return found.digest() == digest


def remove_others(folder: Path, keep: Iterable[str]) -> None:
    """Make the folder of uploads, and remove from it what belongs to no job.

    Raises:
        StoreError: it cannot be written.
    """
    kept = {f"{job_id}.ndjson" for job_id in keep}
    try:
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if path.name not in kept:
                path.unlink()
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror}") from error


def _or_store_error(path: Path, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise StoreError(f"{path.name}: cannot be written: {error.strerror}") from error
