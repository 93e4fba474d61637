"""What does a metadata filter cost, and does it find what exact search among the selected finds?

Documents are one word long and their vectors synthetic, sampled as in `benchmarks.speed.index`, in
fewer dimensions. They are in a real store with metadata, so a filter is evaluated as in the
service. Two kinds of filter select the same shares: `scattered`, on a random number, and
`clustered`, on the rank of the document by similarity to one direction, so the selected documents
are in few lists, for most queries not the nearest ones.

Recall@10 is against exact search by NumPy among the selected documents. Times are of one query per
call, in CPU time of the working thread, which other load on the machine affects little: evaluating
the filter in SQLite for the first time after a write, reading it from memory the next time, and
searching. Ratios are to the search without a filter, in the same round.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
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
    make_record,
    markdown_table,
    ratios,
    spread,
    write_record,
)
from benchmarks.speed import index
from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.store.filters import Bound, Range
from index.store.records import EncodedDocument
from index.vectors.recall import exact_cosines, share_found

DOCUMENTS = 100_000
DIMENSION = 64
SHARES = {"50 %": 0.5, "10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
KINDS = ("scattered", "clustered")
UNFILTERED = "unfiltered"
K = 10
ROUNDS = 5
QUERIES_A_ROUND = 40
FIRST_A_ROUND = 5
PUT_TOGETHER = 1_000


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One filter in one round: seconds of the median query, share of the neighbours found.

    `first` and `again` are those of the filter, after a write and after a query like it.
    """

    first: float
    again: float
    searching: float
    recall: float


def main(
    documents: Annotated[int, typer.Option(min=5_000, help="Number of documents.")] = DOCUMENTS,
) -> None:
    """Measure filters of falling selectivity: recall@10, and time beside no filter."""
    source = commit()
    settings = {
        "documents": documents,
        "dimension": DIMENSION,
        "threads": 1,
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "k": K,
    }
    record = make_record("filters", source, settings, measure(documents))
    typer.echo(table(record))
    write_record(record)


def measure(documents: int) -> dict[str, Any]:
    """Measure every filter over this many documents."""
    vectors, queries = sample_vectors(documents)
    numbers = filter_numbers(vectors)
    with tempfile.TemporaryDirectory() as folder:
        data = open_data_directory(
            Path(folder, "data"), fingerprint="0" * 64, dimension=vectors.shape[1]
        )
        seconds = put_all(data, vectors, numbers)
        data.index.rebuild()
        filters = measure_filters(data, vectors, queries, numbers)
        nlist = data.index.nlist
        data.close()
    return {"nlist": nlist, "put_seconds": seconds, "filters": filters}


def measure_filters(
    data: DataDirectory, vectors: Float32, queries: Float32, numbers: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure every filter over the documents of `put_all`, and the search without one."""
    runners: dict[str, Callable[[int], RoundResult]] = {
        UNFILTERED: _runner(data, queries, None, index.best_scores(vectors, queries))
    }
    for kind in KINDS:
        for share in SHARES.values():
            bound = Bound(round(share * len(vectors)), inclusive=False)
            chosen = numbers[kind] < bound.value
            exact = index.best_scores(vectors[chosen], queries)
            where = Range(f"/{kind}", high=bound)
            runners[_name(kind, share)] = _runner(data, queries, where, exact)
    measured = interleave(runners, ROUNDS)
    return {name: _figures(some, measured[UNFILTERED]) for name, some in measured.items()}


def sample_vectors(documents: int) -> tuple[Float32, Float32]:
    """Sample vectors Float32[documents, DIMENSION] and queries Float32[Q, DIMENSION], unit norm."""
    vectors, queries = index.sample_vectors(documents)
    basis = np.linalg.qr(
        np.random.default_rng(SEED).standard_normal((vectors.shape[1], DIMENSION))
    )[0].astype(np.float32)
    vectors, queries = vectors @ basis, queries @ basis
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return vectors, queries


def filter_numbers(vectors: Float32) -> dict[str, Any]:
    """Return, for each kind of filter, a number from 0 to N - 1 for each of N documents."""
    chance = np.random.default_rng(SEED)
    direction = chance.standard_normal(vectors.shape[1], dtype=np.float32)
    near = np.empty(len(vectors), dtype=np.int64)
    near[np.argsort(-(vectors @ direction))] = np.arange(len(vectors))
    return {"scattered": chance.permutation(len(vectors)), "clustered": near}


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    return filter_table(record["results"]["filters"])


def filter_table(filters: Mapping[str, Any]) -> str:
    """Format what `measure_filters` returned."""
    return markdown_table(
        [
            *("selected", "recall@10", "first filter ms", "next ms", "search ms"),
            *("search, ratio", "next + search, ratio", "first + search, ratio"),
        ],
        [
            [
                name,
                f"{one['recall_at_10']:.3f}",
                1e3 * one["first"]["median"],
                1e3 * one["again"]["median"],
                1e3 * one["searching"]["median"],
                Spread(**one["searching_to_unfiltered"]),
                Spread(**one["again_to_unfiltered"]),
                Spread(**one["first_to_unfiltered"]),
            ]
            for name, one in filters.items()
        ],
    )


def _name(kind: str, share: float) -> str:
    shown = next(name for name, one in SHARES.items() if one == share)
    return f"{shown} {kind}"


def put_all(data: DataDirectory, vectors: Float32, numbers: Mapping[str, Any]) -> float:
    """Put a document of one word for each vector, with its numbers; return the seconds."""
    started = time.perf_counter()
    for start in range(0, len(vectors), PUT_TOGETHER):
        data.store.put(
            [
                EncodedDocument(
                    Document(
                        f"d{row}", f"d{row}", "", {kind: int(numbers[kind][row]) for kind in KINDS}
                    ),
                    vectors[row],
                    Receipt(1, 1, 1, 0, 1),
                )
                for row in range(start, min(start + PUT_TOGETHER, len(vectors)))
            ]
        )
    return time.perf_counter() - started


def _runner(
    data: DataDirectory, queries: Float32, where: Range | None, exact: Float32
) -> Callable[[int], RoundResult]:
    def run(number: int) -> RoundResult:
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
        return RoundResult(median(first), median(again), median(searching), float(np.mean(found)))

    return run


def _first(data: DataDirectory, where: Range | None) -> float:
    data.store.delete([])  # a write that changes nothing
    started = time.thread_time()
    if where is not None:
        data.store.select(where)
    return time.thread_time() - started


def _figures(measured: list[RoundResult], unfiltered: list[RoundResult]) -> dict[str, Any]:
    base = [one.searching for one in unfiltered]
    return {
        "recall_at_10": float(np.mean([one.recall for one in measured])),
        "first": asdict(spread([one.first for one in measured])),
        "again": asdict(spread([one.again for one in measured])),
        "searching": asdict(spread([one.searching for one in measured])),
        "searching_to_unfiltered": asdict(ratios([one.searching for one in measured], base)),
        "again_to_unfiltered": asdict(
            ratios([one.again + one.searching for one in measured], base)
        ),
        "first_to_unfiltered": asdict(
            ratios([one.first + one.searching for one in measured], base)
        ),
    }


if __name__ == "__main__":
    typer.run(main)
