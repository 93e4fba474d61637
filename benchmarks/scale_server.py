"""How long the real server takes from its start to ready, and how much memory it has then."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import interleave
from benchmarks.memory_curve import resident_megabytes
from benchmarks.server_process import started

_STOPS_IN = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to ready, of all and of the processor, resident bytes, and seconds of the end."""

    ready: float
    processor: float
    resident: float
    stop: float


@dataclass(frozen=True, slots=True)
class Kind:
    """A data directory to start a server on, and whether the server is killed afterwards."""

    data: Path
    kill: bool


def measure_starts(
    kinds: Mapping[str, Kind], checkpoint: Path, rounds: int
) -> dict[str, list[Start]]:
    """Start a server of each kind in turns, `rounds` times, and end it as soon as it is ready."""

    def start(kind: Kind) -> Callable[[int], Start]:
        return lambda _: _start(kind, checkpoint)

    return interleave({name: start(kind) for name, kind in kinds.items()}, rounds)


def _start(kind: Kind, checkpoint: Path) -> Start:
    began = time.perf_counter()
    with started(kind.data, checkpoint) as server:
        ready = time.perf_counter()
        processor = processor_seconds(server.process.pid)
        resident = resident_megabytes(server.process.pid) * 2**20
        server.process.send_signal(signal.SIGKILL if kind.kill else signal.SIGTERM)
        server.process.wait(_STOPS_IN)
        return Start(ready - began, processor, resident, time.perf_counter() - ready)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
