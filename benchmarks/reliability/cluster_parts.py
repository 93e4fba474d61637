"""The processes of a cluster on this machine, each started again when it has ended.

A PostgreSQL, a Milvus Lite in a process of its own, and servers that share both; and
`longmatch index --on ray` beside them, which writes to both as well.
"""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.tools.milvus import MilvusServer

from tests.tools.postgresql import PostgreSQLServer, run_postgresql
from tests.tools.process_fixtures import COMMAND, Server, environment, free_port
from tests.tools.ray_processes import encoders

NODES = 2
ENCODERS = 2
_LOOK_SECONDS = 0.1  # after which a supervisor notices that a process has ended
_ATTEMPTS = 20  # to finish a corpus, while parts of the cluster are killed
_SETTINGS = {
    "LONGMATCH_WORDS": "milvus",
    "LONGMATCH_VECTORS_SECONDS": "2",
    "LONGMATCH_STORE_SECONDS": "5",
    "LONGMATCH_MAINTENANCE_SECONDS": "1",
    "LONGMATCH_LOG_LEVEL": "warning",
}


class Node:
    """A server of the cluster, which a supervisor starts again as soon as it has ended."""

    def __init__(self, data: Path, variables: Mapping[str, str]) -> None:
        self._port = free_port()
        self._command = [*COMMAND, "serve", "--data", str(data), "--port", str(self._port)]
        self._variables = variables
        self._log = data.with_suffix(".log")
        self._ended = threading.Event()
        self._process = self._start()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    @property
    def server(self) -> Server:
        """The process that runs now."""
        return Server(self._process, f"http://127.0.0.1:{self._port}", self._log)

    @property
    def log(self) -> str:
        """What its processes have said."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process for good."""
        self._ended.set()
        self._supervisor.join()
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, env={**self._variables}, stdout=log, stderr=log)

    def _supervise(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            if self._process.poll() is not None:
                self._process = self._start()


class IndexJob:
    """`longmatch index --on ray` of one corpus; the command is repeated until it ends well."""

    def __init__(self, corpus: Path, data: Path, variables: Mapping[str, str]) -> None:
        options = ("--on", "ray", "--actors", str(ENCODERS), "--threads", "1")
        self._command = [*COMMAND, "index", str(corpus), "--data", str(data), *options]
        self._command += ["--actor-cpus", "0.5"]
        self._variables = variables
        self._log = data.with_suffix(".log")
        self.attempts = 0
        self._process = self._start()

    @property
    def log(self) -> str:
        """What its processes have said."""
        return self._log.read_text(errors="replace")

    def encoders(self) -> list[int]:
        """Return the processes that encode for it."""
        return encoders(self._process.pid)

    def has_ended(self) -> bool:
        """Return whether the command has ended, well or not."""
        return self._process.poll() is not None

    def kill(self) -> bool:
        """Kill the driver; return whether it ran."""
        self._process.kill()
        return self._process.wait() == -signal.SIGKILL

    def finish(self) -> None:
        """Wait for the end of the command, and repeat it until it ends well.

        Raises:
            RuntimeError: it does not; the message has its log.
        """
        while self._process.wait():
            if self.attempts == _ATTEMPTS:
                raise RuntimeError(self.log)
            time.sleep(_LOOK_SECONDS)
            self._process = self._start()

    def close(self) -> None:
        """Kill it, if it runs."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.attempts += 1
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, env={**self._variables}, stdout=log, stderr=log)


class Cluster:
    """The parts of a cluster; `open_cluster` starts them."""

    def __init__(self, folder: Path, checkpoint: Path, database: PostgreSQLServer) -> None:
        self.folder = folder
        self.database = database
        self.milvus = MilvusServer(folder / "milvus")
        self.milvus.start()
        self._variables = environment(checkpoint) | _SETTINGS
        self._variables |= {"LONGMATCH_STORE": database.url, "LONGMATCH_VECTORS": self.milvus.url}
        self.nodes = [Node(folder / f"node-{n}", self._variables) for n in range(NODES)]

    def index(self, corpus: Path) -> IndexJob:
        """Begin to index a corpus on Ray, in a data directory of its own."""
        return IndexJob(corpus, self.folder / "indexer", self._variables)

    def restart_database(self) -> None:
        """Kill every process of the PostgreSQL, and start it again."""
        self.database.kill()
        self.database.start()

    def restart_milvus(self) -> None:
        """Kill the process that holds Milvus Lite, and start it again."""
        self.milvus.kill()
        self.milvus.start()

    def wait_until_well(self, seconds: float) -> float:
        """Wait until every server is ready and nothing is degraded; return the seconds.

        Raises:
            RuntimeError: one is not, in this time; the message has what it says and its log.
        """
        began = time.monotonic()
        for node in self.nodes:
            said = wait_for(lambda node=node: _wellness(node.server), began + seconds)
            if said is not None:
                raise RuntimeError(f"{said}\n{node.log[-3000:]}")
        return time.monotonic() - began

    def close(self) -> None:
        """Kill everything but the database."""
        for node in self.nodes:
            node.close()
        self.milvus.kill()


@contextmanager
def open_cluster(folder: Path, checkpoint: Path) -> Iterator[Cluster]:
    """Run a cluster until the end of the block."""
    with ExitStack() as opened:
        database = opened.enter_context(run_postgresql())
        cluster = Cluster(folder, checkpoint, database)
        opened.callback(cluster.close)
        cluster.wait_until_well(120)
        yield cluster


def wait_for(problem: Callable[[], Any], deadline: float) -> Any:
    """Wait until there is no problem; return None, or the one of the deadline."""
    while (said := problem()) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return said


def _wellness(server: Server) -> object:
    """Return what is not well with a server; None if all is."""
    try:
        status, said = server.request("GET", "/readyz", timeout=10)
    except OSError as error:
        return error
    return None if status == 200 and not said["degraded"] else said
