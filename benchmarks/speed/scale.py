"""What does a collection of 100,000 documents cost, and what do inserts do to searches?

    python -m benchmarks.speed.scale
    python -m benchmarks.speed.scale --documents 10000

The real server opens the data directory: documents of one word with vectors of the dimension of the
shipped checkpoint, synthetic, clustered as in `benchmarks.speed.index`. Searches and inserts go
through the store and the live index by the steps of the service, without HTTP and without encoding,
which would hide them: a search is that of the index and the summaries of what was found, an insert
a durable transaction followed by the update of the index. Starts are those of `longmatch serve`.

Two kinds of filter select the same shares: `scattered`, on a random number, and `clustered`, on the
rank of the document by similarity to one direction, so that the selected documents are in few
lists, for most queries not the nearest ones. Recall@10 is against exact search by NumPy among the
selected documents. Times of filters are CPU time of the working thread, which other load on the
machine affects little: evaluating the filter in SQLite for the first time after a write, reading it
from memory the next time, and searching. Ratios are to the search without a filter, in the same
round.
"""

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    SEED,
    Spread,
    commit,
    interleave,
    markdown_table,
    percentiles,
    publish,
    ratios,
    spread,
)
from benchmarks.server.server import processor_seconds, resident_megabytes, started
from benchmarks.speed.index import ROUNDS, best_scores, sample_vectors
from encoder.arrays import Float32
from encoder.blocks import Receipt
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import usable_cores
from index.directory.data_directory import (
    SNAPSHOT_FILE,
    STORE_FILE,
    DataDirectory,
    open_data_directory,
)
from index.document import Document
from index.store.filters import Bound, Range
from index.store.records import EncodedDocument
from index.vectors.recall import exact_cosines, share_found
from service.threads import limit_numpy_threads, set_switch_interval

DOCUMENTS = 100_000
STARTS = 3
STOP_SECONDS = 120.0
DELETED, DELETED_TOGETHER = 200, 1_000
REPLAYED_SHARE = 0.1  # largest share that maintenance leaves unpublished
PUT_TOGETHER = 1_000
K = 10
SHARES = {"50 %": 0.5, "10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
KINDS = ("scattered", "clustered")
UNFILTERED = "unfiltered"
QUERIES_A_ROUND, FIRST_A_ROUND = 40, 5
ALONE, INSERTING = "alone", "beside inserts"


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
class LoadRound:
    """Seconds of each search, timings of each insert, and seconds of the round."""

    searches: list[float]
    inserts: list[Timing]
    seconds: float


@dataclass(frozen=True, slots=True)
class FilterRound:
    """One filter in one round: seconds of the median query, share of the neighbours found.

    `first` and `again` are those of the filter, after a write and after a query like it.
    """

    first: float
    again: float
    searching: float
    recall: float


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until a server is ready, processor seconds and resident bytes then."""

    ready: float
    processor: float
    resident: float


def main(
    documents: Annotated[int, typer.Option(min=10_000, help="Number of documents.")] = DOCUMENTS,
    searchers: Annotated[int, typer.Option(min=1, help="Threads that search.")] = usable_cores(),
    seconds: Annotated[float, typer.Option(help="Of each round of searches.")] = 6.0,
    rounds: Annotated[int, typer.Option(min=1, help="Of searches beside inserts.")] = 7,
    inserts: Annotated[float, typer.Option(help="Documents a second.")] = 500.0,
    together: Annotated[int, typer.Option(min=1, help="Documents of one insert.")] = 10,
) -> None:
    """Fill a data directory, measure, and write the result."""
    source = commit()
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    plan = LoadPlan(searchers, seconds, rounds, inserts, together)
    set_switch_interval()  # as in the process of the server
    limit_numpy_threads()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), checkpoint, documents, plan)
    settings = {
        "documents": documents,
        "dimension": checkpoint.dimension,
        "starts": STARTS,
        "deleted": DELETED,
        "seed": SEED,
        "load": asdict(plan),
    }
    publish("scale", source, settings, results, table)


def measure(folder: Path, checkpoint: Checkpoint, documents: int, plan: LoadPlan) -> dict[str, Any]:
    """Measure everything over this many documents in a new folder."""
    replayed = round(REPLAYED_SHARE * documents) - 1
    points, queries = sample_vectors(documents + plan.inserts + replayed, checkpoint.dimension)
    vectors, new, last = np.split(points, [documents, documents + plan.inserts])
    path = folder / "data"
    with closing(_opened(path, checkpoint)) as data:
        results = _fill_and_filter(data, vectors, queries)
        results["load"] = _measure_load(data, queries, new, plan)
        results["delete"] = _measure_deletes(data)
        data.index.publish()
        data.store.lexical.publish()  # as the maintenance of a server does
    results["disk_bytes"] = _disk_bytes(path)
    results["starts"] = _starts(path, checkpoint, "")
    with closing(_opened(path, checkpoint)) as data:
        results["documents_at_start"] = len(data.store)
        _put(data, "last", last)  # after the last snapshot: the next start replays them
    results["starts"] |= _starts(path, checkpoint, f", {replayed:,} changes to replay")
    return results


def _opened(data: Path, checkpoint: Checkpoint) -> DataDirectory:
    return open_data_directory(
        data, fingerprint=checkpoint.fingerprint, dimension=checkpoint.dimension
    )


def _entry(
    name: str, vector: Float32, metadata: Mapping[str, int] | None = None
) -> EncodedDocument:
    document = Document(name, name, "", dict(metadata or {}))
    return EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1))


def _put(
    data: DataDirectory,
    prefix: str,
    vectors: Float32,
    numbers: Mapping[str, Any] | None = None,
) -> None:
    """Put documents named by a prefix and their row, with the numbers of their row as metadata."""
    for first in range(0, len(vectors), PUT_TOGETHER):
        rows = range(first, min(first + PUT_TOGETHER, len(vectors)))
        data.store.put(
            [
                _entry(
                    f"{prefix}{row}",
                    vectors[row],
                    {name: int(some[row]) for name, some in (numbers or {}).items()},
                )
                for row in rows
            ]
        )


def _fill_and_filter(data: DataDirectory, vectors: Float32, queries: Float32) -> dict[str, Any]:
    chance = np.random.default_rng(SEED)
    near = np.empty(len(vectors), dtype=np.int64)
    direction = chance.standard_normal(vectors.shape[1], dtype=np.float32)
    near[np.argsort(-(vectors @ direction))] = np.arange(len(vectors))
    numbers = {"scattered": chance.permutation(len(vectors)), "clustered": near}
    started = time.perf_counter()
    _put(data, "d", vectors, numbers)
    put = time.perf_counter()
    data.index.catch_up()
    data.index.rebuild()
    return {
        "put_seconds": put - started,
        "train_seconds": time.perf_counter() - put,
        "nlist": data.index.nlist,
        "nprobe": data.index.manifest.nprobe,
        "filters": _measure_filters(data, vectors, queries, numbers),
    }


def _measure_filters(
    data: DataDirectory, vectors: Float32, queries: Float32, numbers: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure every filter, and the search without one."""
    runners = {UNFILTERED: _filter_runner(data, queries, None, best_scores(vectors, queries))}
    for kind in KINDS:
        for name, share in SHARES.items():
            bound = Bound(round(share * len(vectors)), inclusive=False)
            exact = best_scores(vectors[numbers[kind] < bound.value], queries)
            where = Range(f"/{kind}", high=bound)
            runners[f"{name} {kind}"] = _filter_runner(data, queries, where, exact)
    measured = interleave(runners, ROUNDS)
    return {name: _filter_figures(some, measured[UNFILTERED]) for name, some in measured.items()}


def _filter_runner(
    data: DataDirectory, queries: Float32, where: Range | None, exact: Float32
) -> Callable[[int], FilterRound]:
    def run(number: int) -> FilterRound:
        again, searching, found = [], [], []
        first = [_first(data, where) for _ in range(FIRST_A_ROUND)]
        for query in range(number * QUERIES_A_ROUND, (number + 1) * QUERIES_A_ROUND):
            started = time.thread_time()
            among = None if where is None else data.store.select(where)
            filtered = time.thread_time()
            result = data.index.search(queries[query : query + 1], K, among=among)
            searching.append(time.thread_time() - filtered)
            again.append(filtered - started)
            cosines = exact_cosines(queries[query : query + 1], result.ids, data.store.vectors)
            found.append(share_found(cosines, exact[query : query + 1]))
        return FilterRound(median(first), median(again), median(searching), float(np.mean(found)))

    return run


def _first(data: DataDirectory, where: Range | None) -> float:
    data.store.delete([])  # a write that changes nothing
    started = time.thread_time()
    if where is not None:
        data.store.select(where)
    return time.thread_time() - started


def _filter_figures(
    measured: Sequence[FilterRound], unfiltered: Sequence[FilterRound]
) -> dict[str, Any]:
    base = [turn.searching for turn in unfiltered]
    first, again, searching = (
        [getattr(turn, name) for turn in measured] for name in ("first", "again", "searching")
    )
    return {
        "recall_at_10": float(np.mean([turn.recall for turn in measured])),
        "first": asdict(spread(first)),
        "again": asdict(spread(again)),
        "searching": asdict(spread(searching)),
        "searching_to_unfiltered": asdict(ratios(searching, base)),
        "again_to_unfiltered": asdict(ratios(np.add(again, searching).tolist(), base)),
        "first_to_unfiltered": asdict(ratios(np.add(first, searching).tolist(), base)),
    }


def _measure_load(
    data: DataDirectory, queries: Float32, vectors: Float32, plan: LoadPlan
) -> dict[str, object]:
    """Search alone and beside inserts, in turns, and alone once more at the end.

    The inserts of a round make the collection larger, and with it every search after them slower.
    So a rate beside inserts is divided by the mean of the rates alone before and after it, which
    have half of the round's documents less and more.
    """
    first_rows = iter(range(0, len(vectors), plan.together))

    def runner(calls: int) -> Callable[[int], LoadRound]:
        def run(_: int) -> LoadRound:
            starts = [next(first_rows) for _ in range(calls)]
            batches = [
                [_entry(f"new{row}", vectors[row]) for row in range(first, first + plan.together)]
                for first in starts
            ]
            with _searching(data, queries, plan.searchers) as searches:
                started = time.perf_counter()
                inserts = _insert(data, batches, plan)
                time.sleep(max(0.0, started + plan.seconds - time.perf_counter()))
                return LoadRound(searches, inserts, time.perf_counter() - started)

        return run

    measured = interleave({ALONE: runner(0), INSERTING: runner(plan.calls)}, plan.rounds)
    measured[ALONE].append(runner(0)(plan.rounds))
    rates = {
        kind: [len(turn.searches) / turn.seconds for turn in turns]
        for kind, turns in measured.items()
    }
    slowest = {
        kind: [percentiles(turn.searches)["p99"] for turn in turns]
        for kind, turns in measured.items()
    }
    before, after = rates[ALONE][:-1], rates[ALONE][1:]
    inserts = [insert for turn in measured[INSERTING] for insert in turn.inserts]
    return {
        "searches_a_second": {kind: asdict(spread(some)) for kind, some in rates.items()},
        "searches_a_second_ratio": asdict(
            ratios(rates[INSERTING], (np.add(before, after) / 2).tolist())
        ),
        "search_seconds": {
            kind: percentiles([seconds for turn in turns for seconds in turn.searches])
            for kind, turns in measured.items()
        },
        "search_p99_ratio": asdict(ratios(slowest[INSERTING], slowest[ALONE][:-1])),
        "inserts_a_second": len(inserts)
        * plan.together
        / sum(turn.seconds for turn in measured[INSERTING]),
        "insert": _change_figures(inserts),
    }


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
            found = data.index.search(queries[number % len(queries)][np.newaxis], K)
            data.store.get(found.ids[0].tolist())
            seconds.append(time.perf_counter() - started)

    searchers = [threading.Thread(target=search, args=(number,)) for number in range(threads)]
    for searcher in searchers:
        searcher.start()
    try:
        yield seconds
    finally:
        ended.set()
        for searcher in searchers:
            searcher.join()


def _insert(
    data: DataDirectory, batches: Sequence[Sequence[EncodedDocument]], plan: LoadPlan
) -> list[Timing]:
    """Insert at the times of the plan, or later; return the time of each insert."""
    timings: list[Timing] = []
    began = time.perf_counter()
    for number, entries in enumerate(batches):
        due = began + number * plan.together / plan.inserts_a_second
        time.sleep(max(0.0, due - time.perf_counter()))
        if time.perf_counter() >= began + plan.seconds:  # too slow for the rate
            break
        timings.append(_time_change(data, partial(data.store.put, entries)))
    return timings


def _measure_deletes(data: DataDirectory) -> dict[str, object]:
    """Delete documents one by one, and others in one call; durable and removed from the index."""

    def delete(first: int, number: int) -> Timing:
        names = [f"d{row}" for row in range(first, first + number)]
        return _time_change(data, partial(data.store.delete, names))

    return {
        "one": _change_figures([delete(row, 1) for row in range(DELETED)]),
        "together": asdict(delete(DELETED, DELETED_TOGETHER)),
        "deleted_together": DELETED_TOGETHER,
    }


def _time_change(data: DataDirectory, change: Callable[[], Any]) -> Timing:
    started, computed = time.perf_counter(), time.thread_time()
    data.index.apply(change())
    return Timing(time.perf_counter() - started, time.thread_time() - computed)


def _change_figures(timings: Sequence[Timing]) -> dict[str, dict[str, float]]:
    return {
        "seconds": percentiles([timing.seconds for timing in timings]),
        "processor": percentiles([timing.processor for timing in timings]),
    }


def _starts(data: Path, checkpoint: Checkpoint, suffix: str) -> dict[str, Any]:
    """Start the server on a data directory after a clean stop, and after a kill."""

    def starting(path: Path, end: signal.Signals) -> Callable[[int], Start]:
        return lambda _: _start(path, checkpoint, end)

    kinds = {
        f"after a stop{suffix}": starting(data, signal.SIGKILL),
        f"after a kill{suffix}": starting(data, signal.SIGTERM),  # the next finds it closed
    }
    if not suffix:
        kinds = {"without documents": starting(data.with_name("empty"), signal.SIGTERM), **kinds}
    return {
        kind: {
            name: asdict(spread([getattr(turn, name) for turn in turns]))
            for name in ("ready", "processor", "resident")
        }
        for kind, turns in interleave(kinds, STARTS).items()
    }


def _start(data: Path, checkpoint: Checkpoint, end: signal.Signals) -> Start:
    """Start a server on a data directory, wait until it is whole, and end it by a signal."""
    began = time.perf_counter()
    with started(data, checkpoint.directory) as server:
        ready = time.perf_counter() - began
        processor = processor_seconds(server.process.pid)
        resident = resident_megabytes(server.process.pid) * 2**20
        while server.get("/readyz")["degraded"]:
            time.sleep(0.02)
        server.process.send_signal(end)
        server.process.wait(STOP_SECONDS)
        return Start(ready, processor, resident)


def _disk_bytes(data: Path) -> dict[str, int]:
    """Return the bytes of the closed store and of the snapshot of the index."""
    return {
        "store": (data / STORE_FILE).stat().st_size,
        "index": (data / SNAPSHOT_FILE).stat().st_size,
    }


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    results = record["results"]
    starts = markdown_table(
        ["start", "ready s", "of the processor s", "resident MB"],
        [
            [
                name,
                *(Spread(**figures[field]) for field in ("ready", "processor")),
                figures["resident"]["median"] / 1e6,
            ]
            for name, figures in results["starts"].items()
        ],
    )
    ratio = ("searching_to_unfiltered", "again_to_unfiltered", "first_to_unfiltered")
    filters = markdown_table(
        [
            *("selected", "recall@10", "first filter ms", "next ms", "search ms"),
            *("search, ratio", "next + search, ratio", "first + search, ratio"),
        ],
        [
            [
                name,
                f"{figures['recall_at_10']:.3f}",
                *(1e3 * figures[step]["median"] for step in ("first", "again", "searching")),
                *(Spread(**figures[step]) for step in ratio),
            ]
            for name, figures in results["filters"].items()
        ],
    )
    numbers = markdown_table(["what", "number"], _rows(record["settings"], results))
    return "\n\n".join([numbers, starts, filters])


def _rows(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[list[object]]:
    load, delete, disk = results["load"], results["delete"], results["disk_bytes"]
    documents = results["documents_at_start"]
    empty, full, *_ = (start["resident"]["median"] for start in results["starts"].values())
    return [
        ["documents, dimension", f"{settings['documents']:,}, {settings['dimension']:,}"],
        ["lists, of them visited", f"{results['nlist']:,}, {results['nprobe']}"],
        ["put all, s", results["put_seconds"]],
        ["train and publish, s", results["train_seconds"]],
        ["memory, bytes a document", (full - empty) / documents],
        ["store, bytes a document", disk["store"] / documents],
        ["one index generation, bytes a document", disk["index"] / documents],
        ["delete p50, p99 ms", _milliseconds(delete["one"]["seconds"])],
        ["of it the processor", _milliseconds(delete["one"]["processor"])],
        [f"delete {delete['deleted_together']:,} at once, ms", 1e3 * delete["together"]["seconds"]],
        ["of it the processor", 1e3 * delete["together"]["processor"]],
        *(
            [f"search {kind}: p50, p99 ms", _milliseconds(load["search_seconds"][kind])]
            for kind in (ALONE, INSERTING)
        ),
        *(
            [f"searches a second {kind}", Spread(**load["searches_a_second"][kind])]
            for kind in (ALONE, INSERTING)
        ),
        ["searches a second, ratio", Spread(**load["searches_a_second_ratio"])],
        ["search p99, ratio", Spread(**load["search_p99_ratio"])],
        ["inserts a second", load["inserts_a_second"]],
        ["insert p50, p99 ms", _milliseconds(load["insert"]["seconds"])],
        ["of it the processor", _milliseconds(load["insert"]["processor"])],
    ]


def _milliseconds(seconds: Mapping[str, float]) -> str:
    return f"{1e3 * seconds['p50']:.3g}, {1e3 * seconds['p99']:.3g}"


if __name__ == "__main__":
    typer.run(main)
