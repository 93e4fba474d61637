"""Which documents are files of which folder: `folders.json` in a data directory.

It is written at the end of each run over a folder, so that the next one finds the files that are
gone. Without it none are found, and nothing else is missing.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from encoder.atomic_files import write_atomically
from index.corpus.reader import Corpus, FolderPart, FollowedFolder, file_names
from index.document import SkippedInput
from index.errors import CorpusError
from index.store.document_store import DocumentStore

FOLDERS_FILE = "folders.json"


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder that have been documents of a data directory.

    Attributes:
        folder: of the corpus; None where that is something else, which has no files that go.
        record: the file that has those of all folders.
    """

    folder: Path | None
    record: Path

    def gone(self, store: DocumentStore) -> list[str]:
        """Return the ids of the documents whose files are no longer there.

        A file that cannot be examined counts as there.
        """
        if self.folder is None:
            return []
        names = self._read().get(str(self.folder), ())
        gone = [name for name in names if _is_gone(self.folder / name)]
        return list(store.content_hashes(gone))

    def remember(self, corpus: Corpus, store: DocumentStore) -> None:
        """Write which stored documents are files of the folder, or were."""
        if self.folder is None:
            return
        folders = self._read()
        names = {*file_names(corpus), *folders.get(str(self.folder), ())}
        folders[str(self.folder)] = sorted(store.content_hashes(sorted(names)))
        write_atomically(self.record, json.dumps(folders, ensure_ascii=False))

    def _read(self) -> dict[str, list[str]]:
        try:
            folders: dict[str, list[str]] = json.loads(self.record.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CorpusError(f"{self.record}: is damaged; remove it: {error}") from error
        return folders


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def files_of(corpus: Corpus, data: Path) -> FolderFiles:
    """Return the files of a corpus that is a folder of a data directory."""
    path = corpus.path if isinstance(corpus, FollowedFolder | FolderPart) else corpus
    folder = path.resolve() if isinstance(path, Path) and path.is_dir() else None
    return FolderFiles(folder, data / FOLDERS_FILE)


def gone_remark(document_id: str, new_id: str | None, *, removed: bool) -> SkippedInput:
    """Say what became of a document whose file is gone, or has another name."""
    where = f"is now {new_id}" if new_id else "is gone"
    what = "its document is removed" if removed else "its document stays; --prune removes it"
    return SkippedInput(document_id, f"{where}; {what}", lost=False)
