"""Shared by the benchmarks: documents, rounds, percentiles, and the record of a run."""

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
# Thread pools spin for a moment after their last call and occupy the cores of the next variant.
_PAUSE_SECONDS = 0.3
_PACKAGES = (
    "longmatch", "numpy", "onnxruntime", "onnxruntime-gpu", "tokenizers", "sentencex", "faiss-cpu",
    "faiss-gpu", "fastapi", "uvicorn", "torch", "transformers", "sentence-transformers",
    "optimum-onnx",
)  # fmt: skip


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table; floats are shortened, all but the first column right-aligned."""
    cells = [list(header), *([short_number(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        for row in (cells[0], rule, *cells[1:])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_number(value: object) -> str:
    """Format a number with three significant digits, and anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a measure over the rounds, its lowest and its highest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{short_number(self.median)} ({short_number(self.low)}-{short_number(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """Summarise the values of all rounds.

    Raises:
        ValueError: `values` is empty.
    """
    if not values:
        raise ValueError("no round was measured")
    return Spread(median(values), min(values), max(values))


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Summarise `of / to`, divided round by round, so that a slow round cancels out."""
    return spread([a / b for a, b in zip(of, to, strict=True)])


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 by nearest rank, so that each is a value that occurred.

    Raises:
        ValueError: `values` is empty.
    """
    if not values:
        raise ValueError("nothing was measured")
    points = np.percentile(values, [50, 95, 99], method="inverted_cdf")
    return dict(zip(("p50", "p95", "p99"), points.tolist(), strict=True))


def interleave(
    variants: Mapping[str, Callable[[int], T]],
    rounds: int,
    *,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, list[T]]:
    """Run the variants in turns, A B C A B C …, and return the results of each, one per round.

    A shared machine can be slow for minutes at a time; interleaving spreads that over all variants.
    """
    outcomes: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(rounds):
        for name, run in variants.items():
            pause(_PAUSE_SECONDS)
            outcomes[name].append(run(number))
    return outcomes


def split_evenly(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Split items into parts of about equal number and total size; return their positions.

    Raises:
        ValueError: fewer items than parts.
    """
    if not 1 <= parts <= len(sizes):
        raise ValueError(f"{len(sizes)} documents cannot be split into {parts} rounds")
    split: list[list[int]] = [[] for _ in range(parts)]
    largest_first = sorted(range(len(sizes)), key=lambda item: (-sizes[item], item))
    for turn, item in enumerate(largest_first):
        pass_, place = divmod(turn, parts)
        split[place if pass_ % 2 == 0 else parts - 1 - place].append(item)
    return split


def checked(checks: Mapping[str, bool]) -> str:
    """Format what passed and what failed as a list."""
    return "\n".join(
        f"* {'passed' if passed else 'FAILED'}: {name}" for name, passed in checks.items()
    )


def read_documents(corpus: Path | None, limit: int) -> list[Document]:
    """Sample documents of a corpus, or of the standard library's documentation, with a fixed seed.

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
    """Return the name of a corpus without the path to it."""
    if corpus is None:
        return f"standard library of Python {platform.python_version()}"
    return "/".join(corpus.resolve().parts[-2:])


def hardware() -> dict[str, str | int | float]:
    """Describe the hardware: processor, usable cores, memory, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets of the processor as Linux names them; empty on other systems."""
    return frozenset(_cpu_information("flags").split())


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant installed packages."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit of this source tree, with "+" appended when there are local changes."""
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
        source: `commit()` at the start of the run.
        settings: everything that affects the results: threads, precisions, sizes.
        results: the measurements, JSON-serialisable.
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


def publish(
    benchmark: str,
    source: str,
    settings: Mapping[str, Any],
    results: Any,
    table: Callable[[dict[str, Any]], str],
) -> None:
    """Make the record of a run, print it by `table`, and write it; see `make_record`."""
    record = make_record(benchmark, source, settings, results)
    print(table(record))
    write_record(record)


def ask_worker(process: "subprocess.Popen[str]", question: Any) -> dict[str, Any]:
    """Send a line of JSON to a worker, and read its answer; one call at a time.

    Raises:
        RuntimeError: the worker has ended.
    """
    assert process.stdin is not None, "started with pipes"
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    return read_answer(process)


def read_answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Read a line of JSON that a worker writes; raises as `ask_worker`."""
    assert process.stdout is not None, "started with pipes"
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"{process.args!r}: the worker ended with status {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


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
