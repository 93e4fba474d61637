"""Examine and repair the feedback of a data directory."""

import shutil
from contextlib import closing, suppress
from pathlib import Path

from index.directory.data_directory import locked
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import StoreError
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from service.feedback.store import FEEDBACK_FILE, open_feedback

DAMAGED_FEEDBACK = "feedback.damaged"  # a folder of what the repair set aside
_PARTS = (FEEDBACK_FILE, f"{FEEDBACK_FILE}-wal", f"{FEEDBACK_FILE}-shm")


def examine_feedback(data: Path) -> tuple[Finding, ...]:
    """Examine the file, and every text in it; a server may run."""
    path = data / FEEDBACK_FILE
    if not path.exists():
        return ()
    try:
        with closing(open_reader(path)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            return (_damaged(problems[0]),)
        with closing(open_feedback(data, read_only=True)) as feedback:
            for _ in feedback.all():
                pass
    except (*DATABASE_ERRORS, StoreError, TypeError, ValueError) as error:
        require_damage(path, error)
        return (_damaged(str(error)),)
    return ()


def repair_feedback(data: Path, findings: tuple[Finding, ...]) -> None:
    """Set a damaged file aside.

    Raises:
        StoreError: something cannot be written.
    """
    if not findings:
        return
    aside = data / DAMAGED_FEEDBACK
    with locked(data):
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            for name in _PARTS:
                with suppress(FileNotFoundError):
                    (data / name).rename(aside / name)
        except OSError as error:
            raise StoreError(f"{aside}: cannot be written: {error}") from error
        open_feedback(data).close()


def _damaged(problem: str) -> Finding:
    return Finding(
        FEEDBACK_FILE,
        f"is damaged ({problem}); stored documents are not affected",
        Remedy.SET_FEEDBACK_ASIDE,
    )
