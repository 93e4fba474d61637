"""Examine and repair the state of a collection: jobs, feedback, standing queries.

A damaged file is moved into a folder, for the operator, and the service begins a new one: it cannot
be rebuilt, and no stored document depends on it. PostgreSQL examines its files itself.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from index.directory.backup import STATE_FILE
from index.directory.data_directory import locked
from index.doctor import Finding, Remedy, require_damage
from index.errors import StoreError
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from index.store.checksums import file_problems
from service.feedback.store import FeedbackStore
from service.standing.store import StandingStore
from service.state import State, existing_state
from service.uploads.files import UPLOADS_DIRECTORY, verify_upload
from service.uploads.store import Job, JobStore


def examine_service_files(data: Path) -> Sequence[Finding]:
    """Examine the state of a data directory; a server may run.

    Raises:
        StorageError: it cannot be read for another reason than damage.
    """
    path = data / STATE_FILE
    problem: object = ""
    try:
        if path.exists():
            with closing(open_reader(path)) as connection:
                problem = "; ".join(file_problems(connection))
        if not problem:
            with existing_state(data) as state:
                return () if state is None else _read(data, state)
    except (*DATABASE_ERRORS, StoreError, KeyError, TypeError, ValueError) as error:
        require_damage(path, error)
        problem = error
    uploads = sorted(file.stem for file in (data / UPLOADS_DIRECTORY).glob("*.ndjson"))
    again = f", and send these uploads again: {', '.join(uploads)}" if uploads else ""
    damage = (
        f"is damaged ({problem}); stored documents are not affected, the feedback is lost: make "
        f"the standing queries again{again}"
    )
    return (Finding(STATE_FILE, damage, Remedy.MOVE_AWAY),)


def repair_service_files(data: Path, findings: Sequence[Finding]) -> None:
    """Move a damaged file into a folder, or end jobs without an upload.

    Raises:
        DataDirectoryInUseError: a server has the directory open and must be stopped first.
        StoreError: something cannot be written.
    """
    if not findings:
        return
    with locked(data):
        if any(finding.remedy is Remedy.MOVE_AWAY for finding in findings):
            _move_away(data)
            return
        with existing_state(data, read_only=False) as state:
            if state is not None:
                for job in _without_upload(data, state):
                    detail = "the upload is missing or damaged: send it again"
                    JobStore(state).end(job.id, "failed", detail)


def _move_away(data: Path) -> None:
    folder = data / f"{Path(STATE_FILE).stem}.damaged"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in (STATE_FILE, f"{STATE_FILE}-wal", f"{STATE_FILE}-shm", UPLOADS_DIRECTORY):
            with suppress(FileNotFoundError):
                (data / name).rename(folder / name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error}") from error


def _read(data: Path, state: State) -> list[Finding]:
    """Read everything; what raises is damaged."""
    for _ in FeedbackStore(state).all():
        pass
    StandingStore(state, max_queries=0).listed()
    problem = "has no upload, or another than was received"
    return [
        Finding("jobs", f"job {job.id} {problem}", Remedy.END_JOB)
        for job in _without_upload(data, state)
    ]


def _without_upload(data: Path, state: State) -> Iterator[Job]:
    """Yield the unfinished jobs whose upload is not what was received."""
    for job in JobStore(state).unfinished():
        if not verify_upload(data / UPLOADS_DIRECTORY / f"{job.id}.ndjson", job.digest):
            yield job
