"""What the formats share: the content of a file as it is read, and its limits."""

from dataclasses import dataclass
from pathlib import Path

from index.errors import CorpusError

MAX_FILE_BYTES = 64 * 2**20
MAX_TEXT_CHARACTERS = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FileText:
    """Title and text of a file."""

    title: str
    text: str


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        CorpusError: it is larger than `MAX_FILE_BYTES`.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CorpusError(f"is larger than {MAX_FILE_BYTES} bytes")
    return data
