"""A real PostgreSQL for tests, in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools.programs import require_program

SERVER_USER = "postgres"  # of Debian's package; PostgreSQL never runs as root
DATABASE_USER = "longmatch"


@contextmanager
def serve_postgresql() -> Iterator[str]:
    """Run a server that listens on a socket in a folder only; gives its address."""
    user = SERVER_USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the path of a socket is short
    try:
        if user:
            shutil.chown(folder, user)
        data, log = folder / "data", folder / "log"
        options = f"-c listen_addresses= -k {folder} -c fsync=off"
        _run(user, "initdb", "-D", data, "-U", DATABASE_USER, "-A", "trust", "-E", "UTF8", "-N")
        _run(user, "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            yield f"postgresql://{DATABASE_USER}@/postgres?host={folder}"
        finally:
            _run(user, "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def _run(user: str | None, program: str, *arguments: object) -> None:
    # Debian keeps the programs of each version of the server out of the path.
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    found = require_program(program, os.pathsep.join([*reversed(folders), os.environ["PATH"]]))
    command = [found, *map(str, arguments)]
    subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
