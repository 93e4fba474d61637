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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from index.corpus.formats.content import MAX_FILE_BYTES
from index.corpus.formats.files import readable_suffixes
from index.corpus.formats.ocr import languages
from index.corpus.reader import WHOLE, Corpus, FolderPart, FollowedFolder, file_names
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
_NAMED = """
SELECT name, state FROM files WHERE folder = ?1 AND name = ?2 UNION ALL
SELECT name, state FROM files WHERE folder = ?1 AND name > ?3 AND name < ?4"""
# Within this of a change, another one may leave size and times as they are: the clock of some file
# systems is as coarse.
_SETTLED_NS = 2_000_000_000


class _State(NamedTuple):
    """A file as it was when it was read.

    Attributes:
        stat: what the file system says of it; empty where it had changed a moment before.
        digest: SHA-256 of its bytes.
        text: SHA-256 of the text of its document.
        stored: the number of `DocumentStore.states` of its document.
        reading: the `_reading` that it was read by.
        remarks: what was said of it, each with whether something was lost.
    """

    stat: list[int]
    digest: str
    reading: str
    text: str = ""
    stored: int = 0
    remarks: Sequence[tuple[str, bool]] = ()


# By the name of a file; None where it must be read.
_States = dict[str, _State | None]


class FolderFiles:
    """The files of a folder that have been documents of a data directory.

    Attributes:
        unchanged: how many of them need not be read.
    """

    def __init__(
        self, corpus: Corpus, data: Path, store: DocumentStore, progress: Progress
    ) -> None:
        """Read what is known of the files of a corpus; nothing, if that is not a folder."""
        path = corpus.path if isinstance(corpus, FollowedFolder | FolderPart) else corpus
        self._folder = path.resolve() if isinstance(path, Path) and path.is_dir() else None
        self._names = corpus.names if isinstance(corpus, FolderPart) else {WHOLE}
        self._corpus, self._store, self._progress = corpus, store, progress
        self._record = data / FOLDERS_FILE
        self._known = self._read()
        self._stored = store.states(list(self._known))
        self._now: dict[str, _State] = {}
        self._last: _State | None = None
        self.unchanged = 0

    def gone(self) -> list[str]:
        """Return the ids of the documents whose files are no longer there.

        A file that cannot be examined counts as there.
        """
        return [name for name in self._stored if self._folder and _is_gone(self._folder / name)]

    def remarks(self, name: str, path: Path) -> Sequence[SkippedInput] | None:
        """Return what was said of a file that is as it was when it was read, else None."""
        self._last = None
        state = self._known.get(name)
        if state and self._stored.get(name, (b"", 0))[1] != state.stored:
            state = None
        try:
            stat = _stat(path)
            if not (state and stat and stat == state.stat):
                self._last = _State(stat, _digest(path), _reading())
        except OSError:  # reading it says why
            return None
        if state is None or (self._last and self._last.digest != state.digest):
            return None
        self._now[name] = state._replace(stat=stat)
        self.unchanged += 1
        self._progress.advanced(1)
        return [SkippedInput(printable(name), *remark) for remark in state.remarks]

    def add(self, document: Document, remarks: Sequence[SkippedInput]) -> None:
        """Take what the file that was last asked for has become, and what is said of it."""
        if self._last:
            said = [(remark.reason, remark.lost) for remark in remarks]
            text = document.content_hash.hex()
            self._now[document.id] = self._last._replace(text=text, remarks=said)

    def remember(self) -> None:
        """Write which stored documents are files of the folder, or were, and how these were read.

        All that was added has been stored, but for texts that cannot be.
        """
        if self._folder is None:
            return
        states = dict.fromkeys(file_names(self._corpus)) | self._known | self._now
        stored = self._store.states(list(states))
        rows = []
        for name, (content_hash, number) in stored.items():
            state = states[name]
            same = state and state.text == content_hash.hex()
            now = json.dumps(state._replace(stored=number)) if state and same else None
            rows.append((str(self._folder), name, now))
        gone = [(str(self._folder), name) for name in self._known.keys() - stored.keys()]
        with self._open() as files:
            files.executemany("DELETE FROM files WHERE folder = ? AND name = ?", gone)
            files.executemany("REPLACE INTO files VALUES (?, ?, ?)", rows)

    def _read(self) -> _States:
        """Return what is known of the files of this folder, or of this part of it."""
        found: _States = {}
        if self._folder is None:
            return found
        with self._open() as files:
            for name in self._names:
                name = name.encode(errors="replace").decode()  # no document has a lone surrogate
                below = ("", "\U0010ffff") if name == WHOLE else (f"{name}/", f"{name}0")
                for known, text in files.execute(_NAMED, (str(self._folder), name, *below)):
                    state = _State(*json.loads(text)) if text else None
                    found[known] = state if state and state.reading == _reading() else None
        return found

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
    """Return what changes with a file, or nothing where it has changed a moment ago."""
    found = path.stat()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    settled = time.time_ns() - max(times) > _SETTLED_NS
    return [found.st_size, *times, found.st_ino] if settled else []


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of as much as is read of it."""
    if not path.is_file():  # opening a pipe would wait for a writer
        return ""
    with path.open("rb") as file:
        return sha256(file.read(MAX_FILE_BYTES + 1)).hexdigest()


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
