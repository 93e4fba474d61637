"""How long until a server answers: after a stop, after a kill, and without its lexical files?

From a warm page cache, and from a cold one, as after a restart of the machine.

    python -m benchmarks.server.starts
    python -m benchmarks.server.starts --size 1000 --keep FOLDER

Data directories of articles of real length, as `benchmarks.server.search` makes and keeps them.
"Ready" is the first 200 of `GET /readyz`, "whole" the first answer without degraded parts: until
then the lexical index is being made from the store. Cold: the system has dropped the files of the
data directory and of the checkpoint from its page cache; not those of Python and its packages.
Works on Linux alone.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import (
    Spread,
    commit,
    interleave,
    make_record,
    markdown_table,
    spread,
    write_record,
)
from benchmarks.server.search import articles_directory
from benchmarks.server.server import processor_seconds, resident_megabytes, started
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from index.lexical.lexical_index import LEXICAL_DIRECTORY

SIZES = [1_000, 10_000]
ROUNDS = 3
STOPS_IN = 120.0
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to ready and to whole, processor seconds and resident bytes when ready."""

    ready: float
    whole: float
    processor: float
    resident: float


def main(
    size: Annotated[list[int] | None, typer.Option(min=100, help="Documents; repeatable.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder where data directories are kept, and used again by later runs."),
    ] = None,
    without_lexical_files: Annotated[
        bool, typer.Option(help="Also without them; making them takes minutes at 100,000.")
    ] = True,
) -> None:
    """Measure starts of the real server."""
    source, checkpoint = commit(), load_checkpoint(DEFAULT_CHECKPOINT)
    sizes = size or SIZES
    with tempfile.TemporaryDirectory() as folder:
        results = {
            str(number): measure(keep or Path(folder), number, checkpoint, without_lexical_files)
            for number in sizes
        }
    settings = {"sizes": sizes, "rounds": ROUNDS, "checkpoint": checkpoint.name}
    record = make_record("starts", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    folder: Path, size: int, checkpoint: Checkpoint, remaking: bool = True
) -> dict[str, Any]:
    """Start a server on articles in turns, in several ways.

    Args:
        folder: of data directories.
        size: number of articles.
        checkpoint: that the server opens.
        remaking: whether one of the ways is without the lexical files.
    """
    data = articles_directory(folder, size, checkpoint)
    lexical = data / LEXICAL_DIRECTORY
    start(data, checkpoint, signal.SIGTERM)  # later ones find what it read in the page cache

    def after_a_stop(_: int) -> Start:
        return start(data, checkpoint, signal.SIGKILL)

    def after_a_kill(_: int) -> Start:
        return start(data, checkpoint, signal.SIGTERM)

    def without_lexical_files(_: int) -> Start:
        aside = data.with_name(f"{data.name}.lexical")
        lexical.rename(aside)
        try:
            return start(data, checkpoint, signal.SIGTERM)
        finally:
            shutil.rmtree(lexical, ignore_errors=True)
            aside.rename(lexical)

    def from_a_cold_disk(_: int) -> Start:
        evict(data)
        evict(checkpoint.directory)
        return start(data, checkpoint, signal.SIGTERM)

    kinds: dict[str, Callable[[int], Start]] = {
        "after a stop": after_a_stop,
        "after a kill": after_a_kill,
        **({"without the lexical files": without_lexical_files} if remaking else {}),
        "after a stop, from a cold disk": from_a_cold_disk,
    }
    measured = interleave(kinds, ROUNDS)
    names = list(Start.__dataclass_fields__)
    return {
        kind: {name: asdict(spread([getattr(start, name) for start in some])) for name in names}
        for kind, some in measured.items()
    }


def evict(folder: Path) -> None:
    """Let the system drop the files in a folder from its page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # what is not on the disk cannot be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def start(data: Path, checkpoint: Checkpoint, end: signal.Signals) -> Start:
    """Start a server on a data directory, wait until it is whole, and end it by a signal."""
    began = time.perf_counter()
    with started(data, checkpoint.directory) as server:
        ready = time.perf_counter() - began
        processor = processor_seconds(server.process.pid)
        resident = resident_megabytes(server.process.pid) * 2**20
        while server.get("/readyz")["degraded"]:
            time.sleep(_PAUSE)
        whole = time.perf_counter() - began
        server.process.send_signal(end)
        server.process.wait(STOPS_IN)
        return Start(ready, whole, processor, resident)


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    return markdown_table(
        ["documents", "start", "ready s", "whole s", "CPU s until ready", "memory MB"],
        [
            [
                f"{int(size):,}",
                kind,
                Spread(**figures["ready"]),
                Spread(**figures["whole"]),
                figures["processor"]["median"],
                figures["resident"]["median"] / 1e6,
            ]
            for size, kinds in record["results"].items()
            for kind, figures in kinds.items()
        ],
    )


if __name__ == "__main__":
    typer.run(main)
