"""Examine and repair the jobs of a data directory: their tables, and the uploads that they name."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from index.directory.data_directory import locked
from index.doctor.findings import Finding, Remedy, require_damage
from index.errors import StoreError
from index.sqlite.connections import DATABASE_ERRORS, open_reader
from service.jobs.runner import JOBS_FILE, UPLOADS_DIRECTORY
from service.jobs.store import Job, JobStore, open_tables
from service.jobs.uploads import verify_upload

DAMAGED_JOBS = "jobs.damaged"  # a folder of what the repair set aside
_UPLOAD = "has no upload, or another than was received"
_PARTS = (JOBS_FILE, f"{JOBS_FILE}-wal", f"{JOBS_FILE}-shm", UPLOADS_DIRECTORY)


def examine_jobs(data: Path) -> tuple[Finding, ...]:
    """Examine the tables of jobs and the uploads of those that have not ended; a server may run."""
    path = data / JOBS_FILE
    if not path.exists():
        return ()
    try:
        with closing(open_reader(path)) as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            return (_lost(data, problems[0]),)
        found = [_examine(data, job) for job in _unfinished(path)]
    except (*DATABASE_ERRORS, StoreError, TypeError) as error:
        require_damage(path, error)
        return (_lost(data, str(error)),)
    return tuple(one for one in found if one is not None)


def repair_jobs(data: Path, findings: tuple[Finding, ...]) -> None:
    """Set damaged tables aside with the uploads that they named, and end jobs without an upload."""
    remedies = {one.remedy for one in findings}
    if not remedies:
        return
    with locked(data):
        if Remedy.SET_JOBS_ASIDE in remedies:
            _set_aside(data)
        if Remedy.END_JOB in remedies:
            with closing(open_tables(data / JOBS_FILE)) as connections:
                jobs = JobStore(connections)
                for job in jobs.unfinished():
                    if _examine(data, job) is not None:
                        jobs.end(job, "failed", "the upload is missing or damaged: send it again")


def _unfinished(path: Path) -> list[Job]:
    with closing(open_tables(path, read_only=True)) as connections:
        return JobStore(connections).unfinished()


def _examine(data: Path, job: Job) -> Finding | None:
    upload = data / UPLOADS_DIRECTORY / f"{job.id}.ndjson"
    if verify_upload(upload, job.digest):
        return None
    return Finding(JOBS_FILE, f"job {job.id} {_UPLOAD}", Remedy.END_JOB)


def _lost(data: Path, problem: str) -> Finding:
    """Say what is lost with the tables: how far jobs were, and all that has ended."""
    uploads = sorted(path.stem for path in (data / UPLOADS_DIRECTORY).glob("*.ndjson"))
    named = f"uploads that had not ended: {', '.join(uploads)}" if uploads else "no upload waits"
    return Finding(
        JOBS_FILE,
        f"is damaged ({problem}); stored documents are not affected, {named}",
        Remedy.SET_JOBS_ASIDE,
    )


def _set_aside(data: Path) -> None:
    aside = data / DAMAGED_JOBS
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name in _PARTS:
            with suppress(FileNotFoundError):
                (data / name).rename(aside / name)
        open_tables(data / JOBS_FILE).close()
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{aside}: cannot be written: {error}") from error
