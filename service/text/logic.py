"""Files that clients send -> title and text, each read in a child process of its own."""

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from index.corpus.file_reader import FileReader, ReadingLimits
from index.corpus.formats.content import FileText
from index.errors import CorpusError
from service.errors import FieldError, InvalidInputError
from service.limits import Admission
from service.threads import lower_priority, run_in

# The media types that are read, and the suffix by which `index.corpus` knows each.
FILE_TYPES: Mapping[str, str] = {
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/epub+zip": ".epub",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/x-rst": ".rst",
    "text/plain": ".txt",
}
# Somebody waits for the answer, so they are lower than those of `longmatch index`.
LIMITS = ReadingLimits(memory_bytes=2**30, cpu_seconds=20, wait_seconds=40.0)
_AT_ONCE = 2
_WAITING = 8  # files held in memory at a time, those that are being read included
_STEM = "Sent"  # a file without any title has its name, and the file of a client has none


class SentFiles:
    """Reads files that clients send, a few at a time. Use it from the event loop only."""

    def __init__(self) -> None:
        """Read none yet."""
        self._places = Admission(_WAITING, "files")
        self._threads = ThreadPoolExecutor(_AT_ONCE, "file", lower_priority)

    async def read(self, content: bytes, kind: str, max_characters: int, client: str) -> FileText:
        """Read a file of a client; its title is "" where it has none.

        Raises:
            InvalidInputError: it is damaged, encrypted, without text or longer than that, or takes
                more time or memory than the limits.
        """
        with self._places.admit(client):
            try:
                found = await run_in(self._threads, self._read, content, FILE_TYPES[kind])
            except CorpusError as error:
                raise InvalidInputError([FieldError("#", f"the file {error}")]) from error
        if len(found.text) > max_characters:
            detail = f"the file has {len(found.text)} characters, more than {max_characters}"
            raise InvalidInputError([FieldError("#", detail, max_characters)])
        return found

    def close(self) -> None:
        """Read no more files; return when those that are being read are read."""
        self._threads.shutdown(cancel_futures=True)

    def _read(self, content: bytes, suffix: str) -> FileText:
        with tempfile.TemporaryDirectory(prefix="longmatch-") as folder:
            path = Path(folder) / f"{_STEM}{suffix}"
            path.write_bytes(content)
            # A child for each: nothing of one file is left where another one is read.
            with FileReader(LIMITS) as reader:
                found = reader.read(path)
        return replace(found, title="") if found.title == _STEM else found
