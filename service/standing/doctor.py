"""Examine and repair the tables of standing queries of a data directory."""

from contextlib import closing, suppress
from pathlib import Path

from index.directory.data_directory import locked
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import StoreError
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from service.standing.store import STANDING_FILE, QueryStore, open_standing_tables

DAMAGED_STANDING = "standing.damaged"  # ending of the files that the repair set aside
_SUFFIXES = ("", "-wal", "-shm")


def examine_standing(data: Path) -> tuple[Finding, ...]:
    """Examine the tables of standing queries; a server may run."""
    path = data / STANDING_FILE
    if not path.exists():
        return ()
    try:
        with closing(open_reader(path)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            return (_lost(problems[0]),)
        with closing(open_standing_tables(path, read_only=True)) as connections:
            QueryStore(connections, max_queries=0).every()
    except (*DATABASE_ERRORS, StoreError, KeyError, TypeError, ValueError) as error:
        require_damage(path, error)
        return (_lost(str(error)),)
    return ()


def repair_standing(data: Path, findings: tuple[Finding, ...]) -> None:
    """Set damaged tables aside; a server then starts with none.

    Raises:
        StoreError: something cannot be written.
    """
    if not findings:
        return
    with locked(data):
        try:
            for suffix in _SUFFIXES:
                with suppress(FileNotFoundError):
                    (data / f"{STANDING_FILE}{suffix}").replace(
                        data / f"{DAMAGED_STANDING}{suffix}"
                    )
        except OSError as error:
            raise StoreError(f"{data / STANDING_FILE}: cannot be moved: {error}") from error


def _lost(problem: str) -> Finding:
    return Finding(
        STANDING_FILE,
        f"is damaged ({problem}); stored documents are not affected, standing queries are lost",
        Remedy.SET_STANDING_ASIDE,
    )
