"""Examine and repair the files of the service: jobs, feedback, standing queries.

A damaged file is moved into a folder, for the operator, and the service begins a new one: it cannot
be rebuilt, and no stored document depends on it.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from index.directory.data_directory import locked
from index.doctor.examine import Finding, Remedy, require_damage
from index.errors import StoreError
from index.sqlite.connections import DATABASE_ERRORS, SQLiteConnections, open_reader
from service.feedback.store import FEEDBACK_FILE, open_feedback
from service.jobs.runner import JOBS_FILE, UPLOADS_DIRECTORY
from service.jobs.store import Job, JobStore, open_tables
from service.jobs.uploads import verify_upload
from service.standing.store import STANDING_FILE, QueryStore, open_standing_tables


@dataclass(frozen=True, slots=True)
class _File:
    """A database of the service.

    Attributes:
        name: of the file.
        read: reads what is in it; raises where that is damaged.
        advice: what is lost with it, and what the operator can do.
        folder: that belongs to it, and is moved with it.
    """

    name: str
    read: Callable[[Path], Sequence[Finding]]
    advice: Callable[[Path], str]
    folder: str = ""


def examine_service_files(data: Path) -> tuple[Finding, ...]:
    """Examine the files of the service in a data directory; a server may run.

    Raises:
        StorageError: a file cannot be read for another reason than damage.
    """
    return tuple(finding for file in _FILES for finding in _examine(data, file))


def repair_service_files(data: Path, findings: Sequence[Finding]) -> None:
    """Move damaged files into folders, and end jobs without an upload.

    Raises:
        DataDirectoryInUseError: a server has the directory open and must be stopped first.
        StoreError: something cannot be written.
    """
    found = {(finding.what, finding.remedy) for finding in findings}
    if not found:
        return
    with locked(data):
        for file in _FILES:
            if (file.name, Remedy.MOVE_AWAY) in found:
                _move_away(data, file)
        if (JOBS_FILE, Remedy.END_JOB) in found:
            with closing(open_tables(data / JOBS_FILE)) as connections:
                jobs = JobStore(connections)
                for job in _without_upload(data, connections):
                    jobs.end(job, "failed", "the upload is missing or damaged: send it again")


def _examine(data: Path, file: _File) -> Sequence[Finding]:
    path = data / file.name
    if not path.exists():
        return ()
    try:
        with closing(open_reader(path)) as connection:
            (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if problem == "ok":
            return file.read(data)
    except (*DATABASE_ERRORS, StoreError, KeyError, TypeError, ValueError) as error:
        require_damage(path, error)
        problem = error
    damage = f"is damaged ({problem}); stored documents are not affected, {file.advice(data)}"
    return (Finding(file.name, damage, Remedy.MOVE_AWAY),)


def _move_away(data: Path, file: _File) -> None:
    folder = data / f"{Path(file.name).stem}.damaged"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in (file.name, f"{file.name}-wal", f"{file.name}-shm", file.folder):
            if name:
                with suppress(FileNotFoundError):
                    (data / name).rename(folder / name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error}") from error


def _read_jobs(data: Path) -> list[Finding]:
    with closing(open_tables(data / JOBS_FILE, read_only=True)) as connections:
        return [
            Finding(
                JOBS_FILE,
                f"job {job.id} has no upload, or another than was received",
                Remedy.END_JOB,
            )
            for job in _without_upload(data, connections)
        ]


def _without_upload(data: Path, connections: SQLiteConnections) -> Iterator[Job]:
    """Yield the unfinished jobs whose upload is not what was received."""
    for job in JobStore(connections).unfinished():
        if not verify_upload(data / UPLOADS_DIRECTORY / f"{job.id}.ndjson", job.digest):
            yield job


def _jobs_advice(data: Path) -> str:
    uploads = sorted(path.stem for path in (data / UPLOADS_DIRECTORY).glob("*.ndjson"))
    return f"send these uploads again: {', '.join(uploads)}" if uploads else "no upload waits"


def _read_feedback(data: Path) -> Sequence[Finding]:
    with closing(open_feedback(data, read_only=True)) as feedback:
        for _ in feedback.all():
            pass
    return ()


def _read_standing(data: Path) -> Sequence[Finding]:
    with closing(open_standing_tables(data / STANDING_FILE, read_only=True)) as connections:
        QueryStore(connections, max_queries=0, max_bytes=0, max_events=0).every()
    return ()


_FILES = (
    _File(JOBS_FILE, _read_jobs, _jobs_advice, UPLOADS_DIRECTORY),
    _File(FEEDBACK_FILE, _read_feedback, lambda data: "the feedback is lost"),
    _File(STANDING_FILE, _read_standing, lambda data: "make the standing queries again"),
)
