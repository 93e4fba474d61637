"""The real server as a process, for benchmarks that measure it from outside."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from index.document import Document

_COMMAND = [sys.executable, "-c", "from service.cli.main import main; main()"]
_START_SECONDS = 300  # a large collection is read from a cold disk


@dataclass(frozen=True, slots=True)
class Server:
    """A running `longmatch serve` on this machine."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> Any:
        """Return the JSON at a path.

        Raises:
            OSError: not found, or no response.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def metrics(self) -> dict[str, float]:
        """Return every sample of /metrics, by its name with labels.

        Raises:
            OSError: no response.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}


@contextmanager
def serving(documents: Sequence[Document], checkpoint: Path, folder: Path) -> Iterator[Server]:
    """Index documents under `folder` and serve them; the server is killed at the end.

    Raises:
        subprocess.CalledProcessError: indexing failed.
        RuntimeError: the server does not start; the message has its log.
    """
    corpus, data = folder / "corpus.jsonl", folder / "data"
    with corpus.open("w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(asdict(document)) + "\n")
    index = [*_COMMAND, "index", str(corpus), "--data", str(data)]
    subprocess.run(index, cwd=ROOT, env=_environment(checkpoint), check=True)
    with started(data, checkpoint) as server:
        yield server


@contextmanager
def started(
    data: Path, checkpoint: Path, more: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Serve a data directory, with `more` variables; the server is killed at the end.

    Raises:
        RuntimeError: the server does not start; the message has its log.
    """
    log, port = data.with_name(f"{data.name}.log"), _free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_COMMAND, "serve", "--data", str(data), "--port", str(port)],
            cwd=ROOT,
            env=_environment(checkpoint) | {"LONGMATCH_LOG_LEVEL": "warning"} | dict(more or {}),
            stdout=output,
            stderr=output,
        )
    server = Server(process, port)
    try:
        if not _becomes_ready(server):
            raise RuntimeError(f"the server does not start:\n{log.read_text()}")
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def sampled_memory(pid: int, every: float = 1.0) -> Iterator[list[tuple[float, float]]]:
    """Sample seconds and resident megabytes of a process for as long as the context is open."""
    curve: list[tuple[float, float]] = []
    ended = threading.Event()

    def sample() -> None:
        started = time.monotonic()
        while not ended.is_set():
            curve.append((round(time.monotonic() - started, 2), round(resident_megabytes(pid), 1)))
            ended.wait(every)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield curve
    finally:
        ended.set()
        thread.join()


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process; works on Linux alone, as what follows."""
    return _kilobytes(f"/proc/{pid}/status", "VmRSS:") / 1024


def private_megabytes(pid: int) -> float:
    """Return the memory that a process shares with no other one."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", "Private_") / 1024


def _kilobytes(path: str, prefix: str) -> int:
    lines = Path(path).read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(prefix))


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment(checkpoint: Path) -> dict[str, str]:
    # The environment of the user must not change the measurement.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LONGMATCH_")}
    return kept | {"LONGMATCH_ENCODER": str(checkpoint.resolve())}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _becomes_ready(server: Server) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            server.get("/readyz")
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
