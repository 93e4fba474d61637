"""Jobs of servers that share a PostgreSQL: each is run by one server at a time.

Who runs a job has a lease on it, and renews it. The jobs of a server that died are taken by
another one when their leases have expired, by the clock of the database. Each lease of a job has a
number. Whatever is written for a job is written in a transaction that checks that no later lease
was given: a server that was paused stores nothing over the work of the next one.

Jobs of one client still run one after the other, on whichever server: none is taken while another
server runs one of them.

The upload of a job is in the database, in parts; the server that runs the job fetches it.
"""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from encoder.atomic_files import replace_durably
from index.errors import StoreError
from index.postgres.address import Database
from index.postgres.connections import PostgreSQLConnections, Session
from index.postgres.document_store import Check
from index.postgres.portable import PortableConnections, PortableSession
from service.jobs.idempotency import IdempotencyStore, KeyedResponse
from service.jobs.store import (
    COLUMNS,
    UNFINISHED,
    EndState,
    Job,
    JobStore,
    LeaseLostError,
    Step,
    Upload,
    end_job,
)
from service.jobs.tables import Connection, Tables

_PART_BYTES = 2**20

# The tables of `service.jobs.store`, as PostgreSQL makes them. A change of them changes the format
# of the store in `index.postgres.schema`.
_TABLES = """\
CREATE TABLE served (
    served_seconds double precision NOT NULL
);
INSERT INTO served VALUES (0);
CREATE TABLE jobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    state text NOT NULL,
    size bigint NOT NULL,
    digest bytea NOT NULL,
    client text NOT NULL,
    accepted bigint NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    line bigint NOT NULL DEFAULT 0,
    indexed bigint NOT NULL DEFAULT 0,
    unchanged bigint NOT NULL DEFAULT 0,
    truncated bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    detail text,
    created text NOT NULL,
    ended text,
    owner text,
    lease bigint NOT NULL DEFAULT 0,
    leased_until timestamptz
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE TABLE line_errors (
    job bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    line bigint NOT NULL,
    pointer text NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (job, line)
);
CREATE TABLE upload_parts (
    job bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,
    part integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (job, part)
);
ALTER TABLE upload_parts ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE responses (
    key text PRIMARY KEY,
    request bytea NOT NULL,
    status integer NOT NULL,
    location text,
    body bytea NOT NULL,
    served_seconds double precision NOT NULL
);
CREATE INDEX responses_by_age ON responses (served_seconds)"""

_LEASE = "owner = ?, leased_until = now() + make_interval(secs => ?)"
_FREE = "(owner IS NULL OR owner = ? OR leased_until < now())"
_BEGIN = f"""
UPDATE jobs SET state = 'running', detail = NULL, lease = lease + 1, {_LEASE}
WHERE number = ? AND {UNFINISHED} AND {_FREE} RETURNING lease, {COLUMNS}"""  # noqa: S608
_RUNNABLE = f"""
SELECT {COLUMNS} FROM jobs WHERE {UNFINISHED} AND client NOT IN (
    SELECT client FROM jobs WHERE {UNFINISHED} AND NOT {_FREE}
) ORDER BY number"""  # noqa: S608
_RENEW = f"""
UPDATE jobs SET {_LEASE} WHERE owner = ? AND {UNFINISHED}"""  # noqa: S608
_RELEASE = """
UPDATE jobs SET owner = NULL, leased_until = NULL WHERE owner = ?"""
# A lease cannot be given until the transaction that has read the last one is over.
_LAST_LEASE = """
SELECT lease FROM jobs WHERE number = ? FOR UPDATE"""
_PARTS = """
SELECT content FROM upload_parts WHERE job = ? AND part = ?"""
_FORGET_PARTS = f"""
DELETE FROM upload_parts WHERE job IN (SELECT number FROM jobs WHERE NOT {UNFINISHED})"""  # noqa: S608


def open_shared_tables(database: Database) -> Tables:
    """Open the tables of jobs in a PostgreSQL; create them if they are missing.

    Raises:
        StoreError: they cannot be used.
    """
    connections = PostgreSQLConnections(database.address)
    try:
        return PortableConnections(connections, "jobs", _TABLES)
    except BaseException:
        connections.close()
        raise


class SharedIdempotencyStore(IdempotencyStore):
    """The stored responses of servers that share a database; their age is by its clock."""

    def _read_start(self, connection: Connection) -> float:
        (seconds,) = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone()
        return float(seconds)


class SharedJobStore(JobStore):
    """The jobs of servers that share a database, as one of them sees and leases them."""

    def __init__(self, tables: Tables, uploads: Path, lease_seconds: float) -> None:
        """Lease jobs under a name of this process.

        Args:
            tables: of all servers.
            uploads: the folder of the uploads that this server has received, or fetched.
            lease_seconds: for which a job is leased; leases are renewed before.
        """
        super().__init__(tables)
        self.lease_seconds = lease_seconds
        self._uploads = uploads
        self._owner = uuid.uuid4().hex
        self._leases: dict[int, int] = {}  # the number of the last one by that of the job

    def runnable(self) -> list[Job]:
        """Return the unfinished jobs of the clients of which no other server runs one."""
        with self._connections.reading() as connection:
            return [Job(*row) for row in connection.execute(_RUNNABLE, (self._owner,))]

    def begin(self, job: Job) -> Job | None:
        """Take an unfinished job and return it; None if it has ended, or another server has it."""
        with self._connections.writing() as connection:
            values = (self._owner, self.lease_seconds, job.number, self._owner)
            row = connection.execute(_BEGIN, values).fetchone()
        if row is None:
            return None
        self._leases = {job.number: row[0]}  # a server runs one job at a time
        return Job(*row[1:])

    def fence(self, job: Job) -> Check:
        """Return a check that raises LeaseLostError when the lease of this server is over.

        One that has expired counts as long as no other server has taken the job.
        """
        lease = self._leases.get(job.number)

        def check(session: Session) -> None:
            _check_lease(PortableSession(session), job, lease)

        return check

    def advance(self, job: Job, step: Step) -> bool:
        """Record a step; return whether the job continues.

        Raises:
            LeaseLostError: another server has it now; nothing was recorded.
        """
        with self._connections.writing() as connection:
            _check_lease(connection, job, self._leases.get(job.number))
            return self._advance(connection, job, step)

    def pause(self, job: Job, detail: str) -> None:
        """Record that a job could not continue here, unless another server has it; any may try."""
        with suppress(LeaseLostError), self._connections.writing() as connection:
            _check_lease(connection, job, self._leases.get(job.number))
            self._pause(connection, job, detail)
        self.release()

    def end(self, job: Job, state: EndState, detail: str | None = None) -> bool:
        """Record how a job ended, and delete its upload; return False if it had ended before.

        Raises:
            LeaseLostError: another server has it now; nothing was recorded.
        """
        with self._connections.writing() as connection:
            _check_lease(connection, job, self._leases.get(job.number))
            ended = end_job(connection, job.id, state, detail)
        self._forget_parts()
        return ended

    def cancel(self, job_id: str) -> Job:
        """Cancel a job, and delete its upload."""
        job = super().cancel(job_id)
        self._forget_parts()
        return job

    def renew(self) -> None:
        """Renew the leases of this server."""
        with self._connections.writing() as connection:
            connection.execute(_RENEW, (self._owner, self.lease_seconds, self._owner))

    def release(self) -> None:
        """Give back the leases of this server."""
        with self._connections.writing() as connection:
            connection.execute(_RELEASE, (self._owner,))

    def fetch(self, job: Job, path: Path) -> None:
        """Write the upload of a job to a file, unless it is there.

        Raises:
            StoreError: it cannot be read or written.
        """
        if path.exists():
            return
        partial = path.with_suffix(".fetched")
        try:
            path.parent.mkdir(exist_ok=True)
            with partial.open("wb") as file:
                for part in self._parts(job):
                    file.write(part)
            replace_durably(partial, path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error}") from error

    def _insert(
        self, connection: Connection, upload: Upload, keyed: KeyedResponse | None, client: str
    ) -> Job:
        job = super()._insert(connection, upload, keyed, client)
        with (self._uploads / f"{upload.id}.ndjson").open("rb") as file:
            number = 0
            while content := file.read(_PART_BYTES):
                values = (job.number, number, content)
                connection.execute("INSERT INTO upload_parts VALUES (?, ?, ?)", values)
                number += 1
        return job

    def _parts(self, job: Job) -> Iterator[bytes]:
        number = 0
        while True:
            with self._connections.reading() as connection:
                row = connection.execute(_PARTS, (job.number, number)).fetchone()
            if row is None:
                return
            yield bytes(row[0])
            number += 1

    def _forget_parts(self) -> None:
        with self._connections.writing() as connection:
            connection.execute(_FORGET_PARTS)


def _check_lease(connection: Connection, job: Job, lease: int | None) -> None:
    row = connection.execute(_LAST_LEASE, (job.number,)).fetchone()
    if row is None or row[0] != lease:
        raise LeaseLostError
