"""A real PostgreSQL for tests, in a folder of its own."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.kit.programs import require_program

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
        subprocess.run(["cp", "-a", _new_cluster(self._user), self._data], check=True)

    @property
    def url(self) -> str:
        return f"postgresql://{DATABASE_USER}@/postgres?host={self._folder}"

    def start(self) -> None:
        options = f"-c listen_addresses= -k {self._folder} -c fsync=off"
        log = self._folder / "log"
        _run(self._user, "pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        _run(self._user, "pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")


@cache
def _new_cluster(user: str | None) -> Path:
    """Return the data of a server that never ran, to be copied: making them takes a second."""
    folder = Path(tempfile.mkdtemp(prefix="pg-new-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder)
    if user:
        shutil.chown(folder, user)
    options = ("-U", DATABASE_USER, "-A", "trust", "-E", "UTF8", "-N")
    _run(user, "initdb", "-D", folder / "data", *options)
    return folder / "data"


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


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL."""
    # Debian keeps the programs of each version of the server out of the path.
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return str(require_program(name, os.pathsep.join([*reversed(folders), os.environ["PATH"]])))


def _run(user: str | None, name: str, *arguments: object) -> None:
    command = [program(name), *map(str, arguments)]
    subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
