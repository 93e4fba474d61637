"""What an examination of a data directory finds."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from index.sqlite.connections import storage_error


class Remedy(Enum):
    """What helps against a finding, in the words of the command line."""

    REBUILD = "delete and rebuild all that follows from the documents"
    ENCODE = "encode again"
    REMOVE_DAMAGED = "remove them, and keep what can be read of them in damaged.jsonl"
    MOVE_AWAY = "move it into a folder whose name ends in .damaged, and begin a new one"
    END_JOB = "end the job as failed, send the upload again"
    DELETE = "delete it"
    RESTORE_BACKUP = "restore a backup"
    REINSTALL = "install it again"

    @property
    def repairable(self) -> bool:
        """Whether `repair` can do it: it needs nothing but the data directory and checkpoint."""
        return self not in (Remedy.RESTORE_BACKUP, Remedy.REINSTALL)


def require_damage(path: Path, error: Exception) -> None:
    """Check that an error is about damage, before it becomes a finding.

    Raises:
        StorageError: the disk failed, is full, or does not let the file be used: nothing is known
            of what is on it.
    """
    failure = storage_error(path, error)
    if failure is not None:
        raise failure from error


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        what: the file, or the part of the store.
        problem: what is wrong with it, in words.
        remedy: what helps.
        vector_ids: of the documents to encode again, or to remove.
    """

    what: str
    problem: str
    remedy: Remedy
    vector_ids: tuple[int, ...] = ()
