"""XML in zip archives, which several formats of documents are: read in pieces, within limits.

No document type declaration is accepted, hence no entity is expanded and nothing outside of the
archive is read. A part is parsed as it is decompressed, and neither is ever held as a whole.
"""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lxml import etree

from index.corpus.formats.content import MAX_FILE_BYTES
from index.errors import CorpusError

MAX_PARTS_BYTES = 4 * MAX_FILE_BYTES  # decompressed, of all parts of an archive that are read
_CHUNK_BYTES = 2**16
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError)

T = TypeVar("T", covariant=True)


class Target(Protocol[T]):
    """Takes the elements of a part as they are parsed; names are without their namespace."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        ...

    def end(self, name: str) -> None:
        """An element ends."""
        ...

    def data(self, text: str) -> None:
        """A piece of text within the innermost element."""
        ...

    def close(self) -> T:
        """Return what was found."""
        ...


class Parts:
    """The parts of an open archive; `open_parts` makes it."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = MAX_PARTS_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """Return a part."""
        return b"".join(self._chunks(name))

    def parse(self, name: str, target: Target[T]) -> T:
        """Parse a part of XML, and return what the target makes of it.

        Raises:
            CorpusError: as `read`; or it is not XML, or has a document type declaration.
        """
        parser = etree.XMLParser(
            target=_Plain(target, name),
            huge_tree=True,  # nothing is built; without it, depth and length are limited
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
        )
        try:
            for chunk in self._chunks(name):
                parser.feed(chunk)
            found: T = parser.close()
        except etree.XMLSyntaxError as error:
            raise CorpusError(f"{name}: is not XML: {error.msg}") from error
        return found

    def _chunks(self, name: str) -> Iterator[bytes]:
        if name not in self:
            raise CorpusError(f"has no {name}")
        # Refused by the size that the archive says, before anything is decompressed. A part is
        # never read beyond that size.
        self._left -= self._archive.getinfo(name).file_size
        if self._left < 0:
            raise CorpusError(f"{name}: is larger than {MAX_PARTS_BYTES} bytes when decompressed")
        with self._archive.open(name) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


@contextmanager
def open_parts(path: Path, kind: str) -> Iterator[Parts]:
    """Open an archive.

    Args:
        path: of it.
        kind: what the file should be, for messages.

    Raises:
        CorpusError: it is no archive; or, within the block, is encrypted or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Parts(archive)
    except _DAMAGED as error:
        raise CorpusError(f"is encrypted or not a readable {kind}: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # a compression, or a password
        raise CorpusError(f"is not a readable {kind}: {error}") from error


class _Plain:
    """Passes on names without namespaces, and refuses what documents do not need of XML."""

    def __init__(self, target: Target[Any], part: str) -> None:
        self._target = target
        self._part = part
        self.data = target.data
        self.close = target.close

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._target.start(_local(name), {_local(key): attributes[key] for key in attributes})

    def end(self, name: str) -> None:
        self._target.end(_local(name))

    def doctype(self, *_: object) -> None:
        raise CorpusError(f"{self._part}: has a document type declaration, which is not read")


def _local(name: str) -> str:
    return name.rpartition("}")[2]
