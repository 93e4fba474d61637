"""What the benchmarks share: documents, rounds, percentiles, the record of a run."""

import json
import os
import platform
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from encoder.onnx_encoder import usable_cores
from index.corpus.demo import write_stdlib_corpus
from index.corpus.reader import read_corpus
from index.document import Document

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
SEED = 1
# Thread pools spin for a moment after their last call, on the cores that the next one needs.
_PAUSE_SECONDS = 0.3
_PACKAGES = (
    "longmatch", "numpy", "onnxruntime", "onnxruntime-gpu", "tokenizers", "sentencex", "faiss-cpu",
    "faiss-gpu-cu12", "fastapi", "uvicorn", "torch", "transformers", "sentence-transformers",
    "optimum-onnx",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a measure over the rounds, its lowest and its highest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)}-{_short(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """Summarise one value a round.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no round was measured")
    return Spread(median(values), min(values), max(values))


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Summarise `of / to`, divided round by round: what slows a whole round cancels out."""
    return spread([a / b for a, b in zip(of, to, strict=True)])


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 by nearest rank, so that each is a value that occurred.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("nothing was measured")
    points = np.percentile(values, [50, 95, 99], method="inverted_cdf")
    return dict(zip(("p50", "p95", "p99"), points.tolist(), strict=True))


def interleave(
    contestants: Mapping[str, Callable[[int], T]],
    rounds: int,
    *,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, list[T]]:
    """Run the contestants in turns, A B C A B C …, and return what each gave in each round.

    A shared machine is slow for minutes at a time: who runs alone in such a minute looks slow.
    """
    outcomes: dict[str, list[T]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, run in contestants.items():
            pause(_PAUSE_SECONDS)
            outcomes[name].append(run(number))
    return outcomes


def deal(sizes: Sequence[int], hands: int) -> list[list[int]]:
    """Deal items into hands of about equal number and total size; return their positions.

    Raises:
        ValueError: there are fewer items than hands.
    """
    if not 1 <= hands <= len(sizes):
        raise ValueError(f"{len(sizes)} documents cannot be dealt into {hands} rounds")
    dealt: list[list[int]] = [[] for _ in range(hands)]
    largest_first = sorted(range(len(sizes)), key=lambda item: (-sizes[item], item))
    for turn, item in enumerate(largest_first):
        lap, place = divmod(turn, hands)
        dealt[place if lap % 2 == 0 else hands - 1 - place].append(item)
    return dealt


def read_documents(corpus: Path | None, limit: int) -> list[Document]:
    """Draw documents of a corpus, or of the standard library's documentation, always the same.

    Raises:
        CorpusError: the corpus cannot be read.
    """
    if corpus is None:
        with tempfile.TemporaryDirectory() as folder:
            rendered = Path(folder, "stdlib.jsonl")
            write_stdlib_corpus(rendered)
            return read_documents(rendered, limit)
    documents = [item for item in read_corpus(corpus) if isinstance(item, Document)]
    return random.Random(SEED).sample(documents, min(limit, len(documents)))


def corpus_name(corpus: Path | None) -> str:
    """Name a corpus without saying where on this machine it lies."""
    if corpus is None:
        return f"standard library of Python {platform.python_version()}"
    return "/".join(corpus.resolve().parts[-2:])


def hardware() -> dict[str, str | int | float]:
    """Say what computes here: processor, cores that may be used, memory, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets of the processor as Linux names them; elsewhere none."""
    return frozenset(_cpu_information("flags").split())


def versions() -> dict[str, str]:
    """Return the versions of Python and of those packages, of interest here, that are there."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit of this source tree; with "+" after it when files differ from it."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=False)
    return head.stdout.strip()[:12] + ("+" if changes.stdout else "")


def make_record(
    benchmark: str, source: str, settings: Mapping[str, Any], results: Any
) -> dict[str, Any]:
    """Make the record of a run.

    Args:
        benchmark: its name.
        source: `commit()` as it was when the run began.
        settings: threads, precisions, sizes: whatever decides the results.
        results: what was measured, as JSON can hold it.
    """
    return {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source,
        "hardware": hardware(),
        "versions": versions(),
        "settings": dict(settings),
        "results": results,
    }


def write_record(record: Mapping[str, Any]) -> Path:
    """Write a record under `benchmarks/results` and return its path."""
    date = datetime.fromisoformat(record["date"])
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{record['benchmark']}-{date:%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out a table; floats are shortened, all columns but the first are right-aligned."""
    cells = [list(header), *([_short(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        for row in (cells[0], rule, *cells[1:])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(value: object) -> str:
    """Show a number with the three digits that such a measurement is good for."""
    if not isinstance(value, float):
        return str(value)
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cpu_model() -> str:
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return _cpu_information("model name") or platform.processor() or platform.machine()


def _cpu_information(field: str) -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""
