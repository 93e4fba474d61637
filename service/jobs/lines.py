"""Lines of an upload -> batches of documents; where a batch begins is all that resuming needs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from index.document import Document
from index.errors import CorpusError, DocumentError
from index.json_lines import parse_document
from service.jobs.job import LineError

MAX_CHARACTERS = 262_144  # of a batch, unless one document alone has more
_MAX_ERRORS = 1000  # of a batch
_MAX_LINES = 10_000  # of a batch, blank ones too
_SKIP_BYTES = 2**20
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much of an upload is held at a time.

    Attributes:
        documents: of one batch.
        line_bytes: of one line; a longer one is an error of this line.
        text_characters: of one document; as above.
    """

    documents: int
    line_bytes: int
    text_characters: int


@dataclass(slots=True)
class Batch:
    """Documents of different ids, each with the number of its line.

    Attributes:
        position: bytes of the upload up to its end.
        line: lines up to its end.
        documents: what is to be stored.
        errors: the lines that gave no document.
    """

    position: int
    line: int
    documents: list[tuple[int, Document]] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)


def read_batch(upload: BinaryIO, position: int, line: int, limits: BatchLimits) -> Batch | None:
    """Read the next documents.

    Args:
        upload: the file of lines, as bytes.
        position: where to begin, in bytes.
        line: how many lines are before.
        limits: what to hold.

    Returns:
        A batch, which may have errors alone; None at the end of the file.

    Raises:
        OSError: the file cannot be read.
    """
    upload.seek(position)
    batch = Batch(position, line)
    ids: set[str] = set()
    characters = 0
    for raw in _read_raw(upload, limits.line_bytes):
        if raw is None or raw.strip():
            found = _document(raw, batch.line + 1, limits)
            if isinstance(found, LineError):
                batch.errors.append(found)
            else:
                characters += len(found.text)
                if found.id in ids or (ids and characters > MAX_CHARACTERS):
                    return batch  # the next one begins with this line
                ids.add(found.id)
                batch.documents.append((batch.line + 1, found))
        batch.position = upload.tell()
        batch.line += 1
        if _is_full(batch, line, limits):
            return batch
    return batch if batch.position > position else None


def _is_full(batch: Batch, begun: int, limits: BatchLimits) -> bool:
    return (
        len(batch.documents) == limits.documents
        or len(batch.errors) == _MAX_ERRORS
        or batch.line - begun == _MAX_LINES
    )


def _read_raw(upload: BinaryIO, line_bytes: int) -> Iterator[bytes | None]:
    """Yield each line; None for one that is too long, of which no more than that is held."""
    while raw := upload.readline(line_bytes + 1):
        if len(raw) <= line_bytes or raw.endswith(b"\n"):
            yield raw
            continue
        while (rest := upload.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


def _document(raw: bytes | None, line: int, limits: BatchLimits) -> Document | LineError:
    if raw is None:
        return LineError(line, "#", f"is longer than {limits.line_bytes} bytes")
    try:
        text = raw.decode().rstrip("\r\n")
        document = parse_document(text.removeprefix(_BYTE_ORDER_MARK) if line == 1 else text)
    except UnicodeDecodeError as error:
        return LineError(line, "#", f"is not UTF-8 at byte {error.start} of the line")
    except CorpusError as error:
        return LineError(line, "#", str(error))
    except DocumentError as error:
        return LineError(line, f"#/{error.field}", error.reason)
    if len(document.text) > limits.text_characters:
        return LineError(line, "#/text", f"is longer than {limits.text_characters} characters")
    return document
