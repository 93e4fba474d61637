"""Uploads: written to the disk while they arrive, read back in batches.

They leave a reserve of the disk to the store.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from encoder.atomic_files import sync
from index.corpus.json_lines import Line, parse_document, read_stream
from index.document import Document
from index.errors import CorpusError, DocumentError, StoreError
from index.sqlite.connections import storage_error
from service import errors
from service.limits import check_disk
from service.uploads.store import MAX_LISTED_ERRORS, Batch, LineError, Upload

UPLOADS_DIRECTORY = "uploads"
MAX_UPLOADS = 32  # of one collection, received, waiting or indexed: each holds a file open
MAX_UPLOADS_OF_CLIENT = 16  # of them, of one API key or address
MAX_CHARACTERS = 262_144  # of a batch, unless a single document has more
MAX_RATIO = 100.0  # of gzip: repeated text compresses ten times, a bomb a thousand times
_MAX_LINES = 20_000  # of a batch, including blank ones and those that are no document
_FREE_BYTES = 2**20  # of any upload, whatever its ratio
_READ_BYTES = 2**20
_BLANK = " \t\r\v\f"
_LINE_END = 10
_GZIP_WINDOW = 31  # of zlib: a gzip header and trailer are expected
# Each member costs time, whatever it holds. Those of `bgzip` have some 16 KiB, and of a file that
# was made by appending small ones there may be some more.
_FREE_MEMBERS = 1024
_MEMBER_BYTES = 1024
_MEMBER_SLICE = 64 * 1024  # what follows a member is copied: less of it for many small ones


def read_batch(
    upload: BinaryIO,
    position: int,
    line: int,
    *,
    documents: int,
    line_bytes: int,
    text_characters: int,
) -> Batch | None:
    """Read the next documents.

    Args:
        upload: the file of JSON Lines, opened as binary.
        position: where to start, in bytes.
        line: how many lines come before.
        documents: of a batch, at most.
        line_bytes: of one line; a longer line is a `LineError`.
        text_characters: of one document; a longer text is a `LineError`.

    Returns:
        A batch, which may contain only errors; None at the end of the file.
    """
    upload.seek(position)
    batch = Batch(position, line)
    ids: set[str] = set()
    characters = 0
    for read in read_stream(upload, line, line_bytes):
        if read.fault or read.text.strip(_BLANK):
            found = _document(read, text_characters)
            if isinstance(found, LineError):
                batch.failed += 1
                if len(batch.errors) < MAX_LISTED_ERRORS:
                    batch.errors.append(found)
            else:
                characters += len(found.text)
                if found.id in ids or (ids and characters > MAX_CHARACTERS):
                    return batch  # the next one starts with this line
                ids.add(found.id)
                batch.documents.append((read.number, found))
        batch.position, batch.line = upload.tell(), read.number
        if len(batch.documents) == documents or batch.line - line == _MAX_LINES:
            return batch
    return batch if batch.position > position else None


def _document(line: Line, text_characters: int) -> Document | LineError:
    try:
        document = parse_document(line)
    except CorpusError as error:
        return LineError(line.number, "#", str(error))
    except DocumentError as error:
        return LineError(line.number, f"#/{error.field}", error.reason)
    if len(document.text) > text_characters:
        return LineError(line.number, "#/text", f"is longer than {text_characters} characters")
    return document


class UploadFile:
    """One upload that is being received; only the current chunk is held in memory.

    Use it from one thread at a time, and end with either `finish` or `abandon`.

    Attributes:
        size: bytes written so far, decompressed.
        kept: it belongs to a job.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        *,
        gzip: bool,
        disk_reserve_bytes: int = 0,
    ) -> None:
        """Create the file; one that belongs to no job is removed at the next start.

        Args:
            path: ID.ndjson of the job.
            max_bytes: of the upload as received, and also decompressed.
            gzip: whether it is compressed.
            disk_reserve_bytes: free bytes of the disk that it leaves.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._reserve = disk_reserve_bytes
        self._gunzip = _Gunzip() if gzip else None
        self._received = 0
        self.size = 0
        self.kept = False
        self._lines = 0
        self._line_is_filled = False
        self._digest = hashlib.sha256()
        with _storing(path):
            path.parent.mkdir(exist_ok=True)
            self._file = path.open("wb")

    def write(self, chunk: bytes) -> None:
        """Write the next bytes of the request.

        Raises:
            BodyTooLargeError: there are too many, compressed or decompressed.
            CompressionRatioError: they are too many for their compressed size.
        """
        self._received += len(chunk)
        if self._received > self._max_bytes:
            raise errors.BodyTooLargeError(limit=self._max_bytes)
        for part in self._gunzip.feed(chunk) if self._gunzip else (chunk,):
            self.size += len(part)
            if self.size > self._max_bytes:
                raise errors.BodyTooLargeError(limit=self._max_bytes)
            if self.size > max(_FREE_BYTES, MAX_RATIO * self._received):
                raise errors.CompressionRatioError(limit=MAX_RATIO)
            check_disk(self._path.parent, len(part), self._reserve)
            self._digest.update(part)
            self._count_lines(part)
            with _storing(self._path):
                self._file.write(part)

    def finish(self) -> Upload:
        """Make the file durable; InvalidInputError if every line is blank."""
        if self._gunzip is not None:
            self._gunzip.check_end()
        lines = self._lines + self._line_is_filled
        if not lines:
            raise errors.InvalidInputError([errors.FieldError("#", "has no line")])
        with _storing(self._path):
            self._file.close()
            sync(self._path)
            sync(self._path.parent)
        return Upload(
            id=self._path.stem, accepted=lines, size=self.size, digest=self._digest.digest()
        )

    def abandon(self) -> None:
        """Remove the file, finished or not."""
        for undo in (self._file.close, self._path.unlink):
            with suppress(OSError):  # the disk is full
                undo()

    def _count_lines(self, part: bytes) -> None:
        """Count lines that are not blank, with arrays: a part may be a million empty lines."""
        filled = np.frombuffer(part.translate(None, _BLANK.encode()), dtype=np.uint8)
        if not len(filled):
            return
        ends = filled == _LINE_END
        self._lines += int(self._line_is_filled and ends[0])
        self._lines += int(np.count_nonzero(ends[1:] & ~ends[:-1]))
        self._line_is_filled = not ends[-1]


class _Gunzip:
    """Decompresses gzip with a bounded number of members, a bounded piece at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._members = 1
        self._received = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        try:
            for start in range(0, len(chunk), _MEMBER_SLICE):
                data = chunk[start : start + _MEMBER_SLICE]
                self._received += len(data)
                while data:
                    if self._member.eof:
                        self._begin_member()
                    yield self._member.decompress(data, _READ_BYTES)
                    data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise errors.MalformedBodyError("the body is not gzip, or is damaged") from error

    def _begin_member(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._members += 1
        if self._members > _FREE_MEMBERS + self._received // _MEMBER_BYTES:
            raise errors.MalformedBodyError(
                f"the gzip body has more than {_FREE_MEMBERS} members, and more than one for each "
                f"{_MEMBER_BYTES} bytes: compress it as one"
            )

    def check_end(self) -> None:
        if self._received and not self._member.eof:
            raise errors.MalformedBodyError("the gzip body is truncated")


def verify_upload(path: Path, digest: bytes) -> bool:
    """Return whether a file has the content that was received; StoreError if it is unreadable."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest() == digest
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{path.name}: cannot be read: {error.strerror}") from error


def remove_others(folder: Path, keep: Iterable[str]) -> None:
    """Create the folder of uploads, or remove from it the files that belong to no job."""
    kept = {f"{job_id}.ndjson" for job_id in keep}
    with _storing(folder):
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if path.name not in kept:
                path.unlink()


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Raise what the disk refuses inside the block as an error of the store."""
    try:
        yield
    except OSError as error:
        raise (
            storage_error(Path(path.name), error)
            or StoreError(f"{path.name}: cannot be written: {error.strerror}")
        ) from error
