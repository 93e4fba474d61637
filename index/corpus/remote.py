"""Files and folders in another place than this machine's disk, such as S3, through fsspec.

JSON Lines are read as they arrive. A file of any other kind is copied to the disk while it is read,
one at a time, because its reader is a process without network that wants to seek.
"""

import io
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index.corpus.sql import without_password
from index.errors import CorpusError
from index.optional_dependencies import require_extra

_BUFFER_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file or a folder of a file system of fsspec; `open_remote` finds it by its URL.

    Attributes:
        system: the file system, `fsspec.AbstractFileSystem`.
        path: of the file in it.
    """

    system: Any
    path: str

    def __str__(self) -> str:
        return without_password(self.system.unstrip_protocol(self.path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @contextmanager
    def open(self, mode: str) -> Iterator[io.BufferedIOBase]:
        """Open it for reading; `mode` is "rb", as of a path.

        Raises:
            OSError: it cannot be read, also later.
        """
        try:
            with self.system.open(self.path, mode) as file:
                yield io.BufferedReader(file, _BUFFER_BYTES)
        except (OSError, EOFError, zlib.error, MemoryError):
            raise
        except Exception as error:  # each file system has errors of its own
            raise OSError(_reason(error)) from error

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Have a copy of it on the disk during a block, under its name.

        Raises:
            CorpusError: it cannot be read, or the disk does not take it.
        """
        with tempfile.TemporaryDirectory(prefix="longmatch-") as folder:
            copy = Path(folder, self.name)
            with _reported(self):
                self.system.get_file(self.path, str(copy))
            yield copy

    def is_folder(self) -> bool:
        """Return whether it is a folder; CorpusError if the place does not answer."""
        with _reported(self):
            return bool(self.system.isdir(self.path))

    def files_below(self, suffixes: Sequence[str]) -> "dict[str, RemoteFile]":
        """Return the files of these kinds in a folder at any depth, by their names within it.

        Hidden files and folders are left out. In the order of the names.

        Raises:
            CorpusError: the folder cannot be listed.
        """
        with _reported(self):
            paths = sorted(self.system.find(self.path))
        named = {path.removeprefix(self.path).lstrip("/"): path for path in paths}
        return {
            name: RemoteFile(self.system, path)
            for name, path in named.items()
            if name.lower().endswith(tuple(suffixes)) and "/." not in f"/{name}"
        }


def open_remote(url: str) -> RemoteFile:
    """Return what a URL leads to, `s3://bucket/corpus.jsonl`: a file or a folder, which must exist.

    Raises:
        CorpusError: there is nothing, it cannot be read, or the URL is of no known kind.
    """
    require_extra("remote", "reading by URL", "fsspec")
    import fsspec

    name = without_password(url)
    with _reported(name):
        system, path = fsspec.core.url_to_fs(url)
        found = system.exists(path)
    if not found:
        raise CorpusError(f"{name}: there is no such file or folder")
    return RemoteFile(system, path.rstrip("/"))


@contextmanager
def _reported(file: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each file system has errors of its own, ImportError among them
        raise CorpusError(f"{file}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return without_password(" ".join(str(error).split()) or type(error).__name__)
