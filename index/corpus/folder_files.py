"""Which documents are files of which folder, and how these were when they were read:
`folders.sqlite3` in a data directory.

It is written at the end of each run over a folder, or over a part of it, so that the next one reads
only what has changed and finds the files that are gone. Without it all is read and nothing found
gone: the store decides what is new. A record counts only while the store has the document that the
file became.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from index.corpus.formats.files import readable_suffixes
from index.corpus.formats.ocr import languages
from index.corpus.reader import Corpus, Folder
from index.document import Document, SkippedInput, printable
from index.progress import Progress
from index.sqlite.connections import translated_errors
from index.store.document_store import DocumentStore

FOLDERS_FILE = "folders.sqlite3"
# A state is the JSON of a `_State`; NULL where the file must be read.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    folder TEXT NOT NULL, name TEXT NOT NULL, state TEXT, PRIMARY KEY (folder, name)
) WITHOUT ROWID"""
_ALL = """
SELECT name, state FROM files WHERE folder = ?"""
_NAMED = """
SELECT name, state FROM files WHERE folder = ?1 AND name = ?2 UNION ALL
SELECT name, state FROM files WHERE folder = ?1 AND name > ?2 || '/' AND name < ?2 || '0'"""
# Within this of a change, another one may leave size and times as they are: the clock of some file
# systems is as coarse.
_SETTLED_NS = 2_000_000_000


class _State(NamedTuple):
    """A file as it was when it was read.

    Attributes:
        stat: what the file system says of it; empty where it had changed a moment before.
        reading: the `_reading` that it was read by.
        remarks: what was said of it, each with whether something was lost.
        stored: the number of `DocumentStore.states` of its document.
    """

    stat: list[int]
    reading: str
    remarks: Sequence[tuple[str, bool]]
    stored: int = 0


Items = Sequence[Document | SkippedInput]  # a document with what is said of its file, or only that


class FolderFiles:
    """The files of a folder that have been documents of a data directory.

    Attributes:
        unchanged: how many of them need not be read.
    """

    def __init__(
        self, corpus: Corpus, data: Path, store: DocumentStore, progress: Progress
    ) -> None:
        """Read what is known of the files of a corpus; nothing, if that is not a folder."""
        path = corpus.path if isinstance(corpus, Folder) else corpus
        self._folder = path.resolve() if isinstance(path, Path) and path.is_dir() else None
        self._names = corpus.names if isinstance(corpus, Folder) else None
        self._store, self._progress = store, progress
        self._record = data / FOLDERS_FILE
        self._known = self._read()  # by the name of a file; None where it must be read
        self._stored = store.states(list(self._known))
        self._new: dict[str, tuple[bytes, _State] | None] = {}  # each with the hash of its text
        self.unchanged = 0

    def gone(self) -> list[str]:
        """Return the ids of the documents whose files are no longer there.

        A file that cannot be examined counts as there.
        """
        return [name for name in self._stored if self._folder and _is_gone(self._folder / name)]

    def read(self, name: str, read: Callable[[], Items]) -> Items:
        """Read a file, or return what was said of it if it is as it was when it was read."""
        if self._folder is None:
            return read()
        stat = _stat(self._folder / name)
        state = self._known.get(name)
        stored = self._stored.get(name, (b"", 0))[1]
        if stat and state and state[:2] == (stat, _reading()) and state.stored == stored:
            self.unchanged += 1
            self._progress.advanced(1)
            return [SkippedInput(printable(name), *remark) for remark in state.remarks]
        items = read()
        said = [(item.reason, item.lost) for item in items if isinstance(item, SkippedInput)]
        hashes = [item.content_hash for item in items if isinstance(item, Document)]
        self._new[name] = (hashes[0], _State(stat, _reading(), said)) if hashes else None
        return items

    def remember(self) -> None:
        """Write which stored documents are files of the folder, or were, and how these were read.

        All that was read has been stored, but for texts that cannot be.
        """
        if self._folder is None:
            return
        names = self._known.keys() | self._new.keys()
        stored = self._store.states(list(names))
        rows = []
        for name in self._new.keys() & stored.keys():
            content_hash, number = stored[name]
            new = self._new[name]
            same = new and new[0] == content_hash
            state = json.dumps(new[1]._replace(stored=number)) if new and same else None
            rows.append((str(self._folder), name, state))
        gone = [(str(self._folder), name) for name in self._known.keys() - stored.keys()]
        with self._open() as files:
            files.executemany("DELETE FROM files WHERE folder = ? AND name = ?", gone)
            files.executemany("REPLACE INTO files VALUES (?, ?, ?)", rows)

    def _read(self) -> dict[str, _State | None]:
        """Return what is known of the files of this folder, or of this part of it."""
        if self._folder is None:
            return {}
        folder = str(self._folder)
        with self._open() as files:
            rows = list(files.execute(_ALL, (folder,))) if self._names is None else []
            for name in self._names or ():
                # No document has a lone surrogate.
                rows += files.execute(_NAMED, (folder, name.encode(errors="replace").decode()))
        return {name: _State(*json.loads(state)) if state else None for name, state in rows}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction; raises StoreError."""
        with translated_errors(self._record), closing(sqlite3.connect(self._record)) as files:
            files.execute(_SCHEMA)
            with files:
                yield files


@cache
def _reading() -> str:
    """Return what the text of a file depends on besides the file: its readers."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    code = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return f"{code[:16]} {' '.join(readable_suffixes())} {languages()}"


def _stat(path: Path) -> list[int]:
    """Return what changes with a file; nothing where it has changed a moment ago, or is gone."""
    try:
        found = path.stat()
    except OSError:  # reading it says why
        return []
    times = (found.st_mtime_ns, found.st_ctime_ns)
    settled = time.time_ns() - max(times) > _SETTLED_NS
    return [found.st_size, *times] if settled else []


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def gone_remark(document_id: str, new_id: str | None, *, removed: bool) -> SkippedInput:
    """Say what became of a document whose file is gone, or has another name."""
    where = f"is now {new_id}" if new_id else "is gone"
    what = "its document is removed" if removed else "its document stays; --prune removes it"
    return SkippedInput(document_id, f"{where}; {what}", lost=False)
