"""A real PostgreSQL for tests, in a folder of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.kit.programs import require_program
from tests.kit.waiting import wait_until

SERVER_USER = "postgres"  # of Debian's package; PostgreSQL never runs as root
DATABASE_USER = "longmatch"


class PostgreSQLServer:
    """A server that listens on a socket in a folder only."""

    def __init__(self, folder: Path) -> None:
        self._user = SERVER_USER if os.geteuid() == 0 else None
        self._folder = folder
        self._data = folder / "data"
        if self._user:
            shutil.chown(folder, self._user)
        options = ("-U", DATABASE_USER, "-A", "trust", "-E", "UTF8", "-N")
        _run(self._user, "initdb", "-D", self._data, *options)

    @property
    def url(self) -> str:
        return f"postgresql://{DATABASE_USER}@/postgres?host={self._folder}"

    def start(self) -> None:
        options = f"-c listen_addresses= -k {self._folder} -c fsync=off"
        log = self._folder / "log"
        _run(self._user, "pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        _run(self._user, "pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def processes(self) -> list[int]:
        """Return the ids of all processes of the server, that of the first one first."""
        server = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return [server, *map(int, children)]

    def kill(self) -> None:
        """Kill every process of the server with SIGKILL, and wait until they are gone."""
        processes = self.processes()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        wait_until(lambda: not any(map(_is_running, processes)), "the server does not die")
        # Where nothing reaps them they are zombies, which a new server takes for a running one.
        (self._data / "postmaster.pid").unlink()
        for lock in self._folder.glob(".s.PGSQL.*.lock"):
            lock.unlink()

    def create_database(self, name: str, *options: str) -> str:
        """Create a database, and return its address."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {' '.join(options)}".encode())
        return self.url.replace("/postgres?", f"/{name}?")


@contextmanager
def run_postgresql() -> Iterator[PostgreSQLServer]:
    """Run a server until the end of the context."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the path of a socket is short
    try:
        server = PostgreSQLServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """One server of the whole session, which no test stops; each uses schemas of its own."""
    with run_postgresql() as server:
        yield server


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL."""
    # Debian keeps the programs of each version of the server out of the path.
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return str(require_program(name, os.pathsep.join([*reversed(folders), os.environ["PATH"]])))


def _run(user: str | None, name: str, *arguments: object) -> None:
    command = [program(name), *map(str, arguments)]
    subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
