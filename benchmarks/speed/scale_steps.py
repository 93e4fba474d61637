"""Searches beside inserts, and deletes, on an open data directory: the steps of the service.

A search is that of the index and the summaries of what was found; an insert is a durable
transaction followed by the index update. For changes, the CPU seconds of the working thread are
recorded as well, which other load on the machine affects little.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.common import interleave, percentiles, ratios, spread
from benchmarks.server.memory_curve import resident_megabytes
from benchmarks.server.server import started
from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory
from index.document import Document
from index.store.records import EncodedDocument

_STOPS_IN = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds to ready (wall clock and CPU), resident bytes, and seconds to stop."""

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
    """Start a server of each kind in turns, `rounds` times, and stop it as soon as it is ready."""

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


K = 10
ALONE, BESIDE = "alone", "beside inserts"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Load of a measurement.

    Attributes:
        searchers: threads that search one query after the other.
        seconds: of each round of each kind.
        rounds: number of rounds of both kinds, in turns.
        inserts_a_second: documents.
        together: documents of one insert.
    """

    searchers: int
    seconds: float
    rounds: int
    inserts_a_second: float
    together: int

    @property
    def calls(self) -> int:
        """Number of inserts of a round."""
        return int(self.seconds * self.inserts_a_second / self.together)

    @property
    def inserts(self) -> int:
        """Total number of inserted documents."""
        return self.rounds * self.calls * self.together


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds, and CPU seconds of this thread."""

    seconds: float
    processor: float


@dataclass(frozen=True, slots=True)
class _RoundResult:
    searches: list[float]
    inserts: list[Timing]
    inserted: int
    seconds: float


def measure_load(
    data: DataDirectory, queries: Float32, vectors: Float32, plan: LoadPlan
) -> dict[str, object]:
    """Search alone and beside inserts, in turns, and alone once more at the end.

    The inserts of a round make the collection larger, and with it every search after them slower.
    So a rate beside inserts is divided by the mean of the rates alone before and after it, which
    have half of the round's documents less and more. The ratio to the round before alone counts
    the growth as a cost of inserting; it is recorded, too.

    Args:
        data: an open data directory.
        queries: Float32[Q, dimension], used cyclically.
        vectors: Float32[N, dimension] to insert, N at least `plan.inserts`.
        plan: the load.
    """
    left = iter(range(0, len(vectors), plan.together))

    def runner(*, inserting: bool) -> Callable[[int], _RoundResult]:
        def run(_: int) -> _RoundResult:
            calls = range(plan.calls if inserting else 0)
            made = [_entries(vectors, next(left), plan) for _ in calls]
            with _searching(data, queries, plan.searchers) as searches:
                started = time.perf_counter()
                inserts = _insert(data, made, plan)
                time.sleep(max(0.0, started + plan.seconds - time.perf_counter()))
                seconds = time.perf_counter() - started
            return _RoundResult(searches, inserts, len(inserts) * plan.together, seconds)

        return run

    measured = interleave(
        {ALONE: runner(inserting=False), BESIDE: runner(inserting=True)}, plan.rounds
    )
    measured[ALONE].append(runner(inserting=False)(plan.rounds))
    rates = {kind: [len(one.searches) / one.seconds for one in measured[kind]] for kind in measured}
    before, after = rates[ALONE][:-1], rates[ALONE][1:]
    around = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
    slowest = {
        kind: [percentiles(one.searches)["p99"] for one in measured[kind]] for kind in measured
    }
    return {
        "searches_a_second": {kind: asdict(spread(some)) for kind, some in rates.items()},
        "searches_a_second_ratio": asdict(ratios(rates[BESIDE], around)),
        "searches_a_second_ratio_to_before": asdict(ratios(rates[BESIDE], before)),
        "search_seconds": {
            kind: percentiles([s for one in measured[kind] for s in one.searches])
            for kind in measured
        },
        "search_p99_ratio": asdict(ratios(slowest[BESIDE], slowest[ALONE][:-1])),
        "inserts_a_second": sum(one.inserted for one in measured[BESIDE])
        / sum(one.seconds for one in measured[BESIDE]),
        "insert": _figures([insert for one in measured[BESIDE] for insert in one.inserts]),
    }


def measure_deletes(
    data: DataDirectory, document_ids: Sequence[str], together: Sequence[str]
) -> dict[str, object]:
    """Delete documents one by one, and others in one call; durable and removed from the index."""

    def delete(ids: Sequence[str]) -> Timing:
        return _measure(lambda: data.index.apply(data.store.delete(ids)))

    return {
        "one": _figures([delete([one]) for one in document_ids]),
        "together": asdict(delete(together)),
        "deleted_together": len(together),
    }


def _measure(work: Callable[[], object]) -> Timing:
    started, computed = time.perf_counter(), time.thread_time()
    work()
    return Timing(time.perf_counter() - started, time.thread_time() - computed)


def _figures(timed: Sequence[Timing]) -> dict[str, dict[str, float]]:
    return {
        "seconds": percentiles([one.seconds for one in timed]),
        "processor": percentiles([one.processor for one in timed]),
    }


def one_word_entry(name: str, vector: Float32) -> EncodedDocument:
    """Return the encoded document for a document whose id is its text."""
    return EncodedDocument(Document(name, name), vector, Receipt(1, 1, 1, 0, 1))


@contextmanager
def _searching(data: DataDirectory, queries: Float32, threads: int) -> Iterator[list[float]]:
    """Search in threads for as long as the block runs; the list has the seconds of each."""
    ended = threading.Event()
    seconds: list[float] = []

    def search(first: int) -> None:
        for number in count(first, threads):
            if ended.is_set():
                return
            started = time.perf_counter()
            query = queries[number % len(queries)]
            found = data.index.search(query[np.newaxis], K)
            data.store.get(found.ids[0].tolist())
            seconds.append(time.perf_counter() - started)

    searchers = [threading.Thread(target=search, args=(number,)) for number in range(threads)]
    for one in searchers:
        one.start()
    try:
        yield seconds
    finally:
        ended.set()
        for one in searchers:
            one.join()


def _entries(vectors: Float32, first: int, plan: LoadPlan) -> list[EncodedDocument]:
    rows = range(first, first + plan.together)
    return [one_word_entry(f"new{row}", vectors[row]) for row in rows]


def _insert(
    data: DataDirectory, made: Sequence[Sequence[EncodedDocument]], plan: LoadPlan
) -> list[Timing]:
    """Insert at the times of the plan, or later; return the time of each insert."""
    timed: list[Timing] = []
    began = time.perf_counter()
    for number, entries in enumerate(made):
        due = began + number * plan.together / plan.inserts_a_second
        time.sleep(max(0.0, due - time.perf_counter()))
        if time.perf_counter() >= began + plan.seconds:  # too slow for the rate
            break
        timed.append(_measure(partial(_put, data, entries)))
    return timed


def _put(data: DataDirectory, entries: Sequence[EncodedDocument]) -> None:
    data.index.apply(data.store.put(entries))
