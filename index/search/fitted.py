"""What was fitted to vectors, in files of JSON: dataclasses, with a format and a fingerprint."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Self

from encoder.atomic_files import write_atomically
from encoder.fitted import fields_of, parse, version_of
from index.errors import StoreError


@dataclass(frozen=True, slots=True)
class Fitted:
    """The content of a file in a data directory.

    Attributes:
        fingerprint: of the vectors that it was fitted to.
    """

    FILE: ClassVar[str]
    FORMAT: ClassVar[int]
    AGAIN: ClassVar[str]  # what makes the file again

    fingerprint: str

    @property
    def version(self) -> str:
        """A short digest of the content."""
        return version_of(asdict(self))

    def write(self, directory: Path) -> None:
        """Write the file into a data directory, whole or not at all."""
        content = {"version": self.version, **fields_of(self, self.FORMAT)}
        write_atomically(directory / self.FILE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path, fingerprint: str) -> Self | None:
        """Read the file of a data directory; None if it does not exist.

        Raises:
            StoreError: the file is damaged, has another format, or is of vectors of another
                `fingerprint`.
        """
        path = directory / cls.FILE
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            found, content = parse(data, cls, cls.FORMAT)
        except ValueError as error:
            raise StoreError(f"{path}: is damaged: {error}; {cls.AGAIN} or delete it") from error
        if content.get("version") != found.version:
            raise StoreError(f"{path}: does not match its version: {cls.AGAIN} or delete it")
        if found.fingerprint != fingerprint:
            raise StoreError(
                f"{path}: was made for vectors {found.fingerprint[:12]}, not for "
                f"{fingerprint[:12]}: {cls.AGAIN} or delete it"
            )
        return found
