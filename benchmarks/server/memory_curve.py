"""The memory of another process over time: sampled, judged, picture."""

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median

# Memory is flat when the median of the last third of a run is at most this many times the median
# of its second third. The first third is warm-up.
FLAT = 1.03

Curve = list[tuple[float, float]]  # seconds, megabytes

_COLUMNS, _ROWS = 72, 12


@contextmanager
def sampled_memory(pid: int, every: float = 1.0) -> Iterator[Curve]:
    """Sample the resident memory of a process for as long as the context is open."""
    curve: Curve = []
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
    """Return the resident memory of a process.

    Raises:
        RuntimeError: no such process.
    """
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    kilobytes = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if not kilobytes.strip():
        raise RuntimeError(f"process {pid} is gone")
    return int(kilobytes) / 1024


def growth(sizes: Sequence[float]) -> float:
    """Return the median of the last third over the median of the second third; see `FLAT`.

    Raises:
        ValueError: fewer than three samples.
    """
    third = len(sizes) // 3
    if not third:
        raise ValueError(f"{len(sizes)} samples have no thirds")
    return median(sizes[-third:]) / median(sizes[-2 * third : -third])


def plot(curve: Curve, path: Path) -> str:
    """Plot a curve to `path` if matplotlib is installed; otherwise return a text plot."""
    if find_spec("matplotlib") is None:
        return as_text(curve)
    figure = import_module("matplotlib.figure").Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot([moment for moment, _ in curve], [size for _, size in curve])
    axes.set(xlabel="seconds", ylabel="resident megabytes")
    axes.set_ylim(bottom=0)
    figure.savefig(path, metadata={"Software": None})
    return f"the memory curve: {path.name}"


def as_text(curve: Curve) -> str:
    """Plot a curve with characters, from zero to its maximum."""
    last, highest = curve[-1][0], max(size for _, size in curve)
    rows = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for moment, size in curve:
        column = round(moment / last * (_COLUMNS - 1)) if last else 0
        rows[round((1 - size / highest) * (_ROWS - 1))][column] = "*"
    picture = "\n".join("|" + "".join(row).rstrip() for row in rows)
    return f"{highest:,.0f} MB at the top, {last:.0f} s at the right\n{picture}\n+{'-' * _COLUMNS}"
