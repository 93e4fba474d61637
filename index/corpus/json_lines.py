"""JSON Lines, plain or gzip, read one line at a time; unreadable lines are reported by number."""

import codecs
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from index.corpus.records import JSON_TYPES, document_of
from index.corpus.remote import RemoteFile
from index.document import Document
from index.errors import CorpusError


def parse_document(line: "Line") -> Document:
    """Read one document from a line of JSON, an object with the fields of `document_of`.

    Raises:
        CorpusError: the line cannot be read, or is no object.
        DocumentError: a field is wrong.
    """
    if line.fault:
        raise CorpusError(line.fault)
    return document_of(parse_object(line.text))


def parse_object(line: str) -> dict[str, Any]:
    """Read a line of JSON, an object.

    Raises:
        CorpusError: says why it is none.
    """
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise CorpusError("is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise CorpusError(f"is not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:  # NaN and the like, or an integer of thousands of digits
        raise CorpusError(f"is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise CorpusError(f"is not a JSON object but {JSON_TYPES[type(record)]}")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


MAX_LINE_BYTES = 64 * 2**20
_SKIP_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file.

    Attributes:
        number: counted from 1.
        text: without its line end.
        fault: why it cannot be read, else ""; the lines after it may be fine.
    """

    number: int
    text: str
    fault: str = ""


def read_lines(path: Path | RemoteFile) -> Iterator[Line]:
    """Read the lines of a UTF-8 file, gzip when its name ends in `.gz`, holding one at a time.

    A damaged or truncated gzip file yields the lines before the damage and then one with a fault.
    Nothing is raised: a file that cannot be opened yields one, too.
    """
    number = 0
    try:
        with _open(path) as stream:
            for line in read_stream(stream, 0, MAX_LINE_BYTES):
                number = line.number
                yield line
    except EOFError:
        yield Line(number + 1, "", "the file is cut off here")
    except (zlib.error, gzip.BadGzipFile) as error:
        yield Line(number + 1, "", f"the file is damaged here: {error}")
    except OSError as error:
        yield Line(number + 1, "", f"cannot be read: {error.strerror or error}")


def read_stream(stream: io.BufferedIOBase | BinaryIO, after: int, limit: int) -> Iterator[Line]:
    """Read the lines of UTF-8 from where a stream is, holding one of at most `limit` bytes.

    So many lines came before. The stream is at the end of each line when it is yielded.
    """
    for number in itertools.count(after + 1):
        raw = stream.readline(limit + 1)
        if not raw:
            return
        if len(raw) > limit and not raw.endswith(b"\n"):
            while (rest := stream.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield Line(number, "", f"is longer than {limit} bytes")
        else:
            raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            try:
                yield Line(number, raw.decode().rstrip("\r\n"))
            except UnicodeDecodeError as error:
                yield Line(number, "", f"is not UTF-8 at byte {error.start} of the line")


@contextmanager
def _open(path: Path | RemoteFile) -> Iterator[io.BufferedIOBase]:
    with path.open("rb") as file:
        if path.name.lower().endswith(".gz"):
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield unzipped
        else:
            yield file
