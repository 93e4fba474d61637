"""What does a search take in each engine that can hold the vectors, and how much does it find?

FAISS in int8 and in fp32, in this process, and a Milvus: Milvus Lite by default, in this process,
too, or the server that --milvus names. All hold the same synthetic vectors, sampled as in
`benchmarks.speed.index`, and are searched in the same rounds with the number of lists to visit that
a new index chooses by itself. Times are of one query per call, by the clock: a Milvus works in
threads or processes of its own. FAISS and NumPy use one thread.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from index.vectors.backends import FAISS_BACKENDS, Backend
from index.vectors.milvus.connection import parse_milvus_url
from index.vectors.milvus.engine import open_milvus
from threadpoolctl import threadpool_limits

from benchmarks.common import (
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
from index.vectors.lists import SAMPLE_PER_LIST, choose_nprobe
from index.vectors.recall import share_found
from index.vectors.vector_index import VectorIndex

VECTORS = 20_000
ROUNDS = 5
QUERIES_A_ROUND = 40
ADDED_TOGETHER = 1_000
TARGET = 0.95
REFERENCE = "faiss-fp32"


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One engine in one round: seconds of the median query, share of the neighbours found."""

    seconds: float
    recall: float


def main(
    vectors: Annotated[int, typer.Option(min=5_000, help="Number of vectors.")] = VECTORS,
    milvus: Annotated[
        str | None, typer.Option(help="URL of a Milvus server; by default, Milvus Lite.")
    ] = None,
) -> None:
    """Measure adding, searching and changing in each engine."""
    source = commit()
    settings = {
        "vectors": vectors,
        "dimension": index.DIMENSION,
        "threads": 1,
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "k": index.K,
    }
    with threadpool_limits(1):
        name = "engines-server" if milvus else "engines"
        record = make_record(name, source, settings, measure(vectors, milvus))
    typer.echo(table(record))
    write_record(record)


def measure(count: int, milvus: str | None) -> dict[str, Any]:
    """Measure every engine over so many vectors."""
    vectors, queries = index.sample_vectors(count)
    exact = index.best_scores(vectors, queries)
    with tempfile.TemporaryDirectory() as folder:
        address = parse_milvus_url(milvus or f"milvus://{folder}/lite.db")
        with closing(open_milvus(address, Path(folder), read_only=False)) as engine:
            name = f"milvus {engine.connection.version}"
            backends = {
                "faiss-int8": FAISS_BACKENDS["int8"],
                REFERENCE: FAISS_BACKENDS["fp32"],
                name: engine.backend,
            }
            results = _measure_all(backends, vectors, queries, exact)
            engine.drop_others([])
    return results


def _measure_all(
    backends: Mapping[str, Backend], vectors: Float32, queries: Float32, exact: Float32
) -> dict[str, Any]:
    runners: dict[str, Callable[[int], RoundResult]] = {}
    results: dict[str, Any] = {}
    for name, backend in backends.items():
        started = time.perf_counter()
        made = _filled(backend, vectors)
        seconds = time.perf_counter() - started

        def recall(nprobe: int, made: VectorIndex = made) -> float:
            first = slice(QUERIES_A_ROUND)
            found = made.search(queries[first], index.K, nprobe=nprobe)
            return share_found(found.scores, exact[first])

        nprobe, _ = choose_nprobe(made.nlist, TARGET, recall)
        runners[name] = _runner(made, nprobe, queries, exact)
        results[name] = {"nlist": made.nlist, "nprobe": nprobe, "build_seconds": seconds}
        results[name]["change_seconds"] = _change_seconds(made, vectors)
    measured = interleave(runners, ROUNDS)
    base = [one.seconds for one in measured[REFERENCE]]
    for name, some in measured.items():
        seconds_of = [one.seconds for one in some]
        results[name]["recall_at_10"] = float(np.mean([one.recall for one in some]))
        results[name]["searching"] = asdict(spread(seconds_of))
        results[name]["to_reference"] = asdict(ratios(seconds_of, base))
    return results


def _filled(backend: Backend, vectors: Float32) -> VectorIndex:
    nlist = backend.choose_nlist(len(vectors))
    made = backend.train(vectors[: nlist * SAMPLE_PER_LIST], nlist)
    for start in range(0, len(vectors), ADDED_TOGETHER):
        ids = np.arange(start, min(start + ADDED_TOGETHER, len(vectors)))
        made.change(ids, vectors[ids])
    backend.settle(made)
    return made


def _change_seconds(made: VectorIndex, vectors: Float32) -> float:
    """Return the median time to add a vector and to remove it again, as one change each."""
    added = np.array([len(vectors)])
    seconds = []
    for row in range(QUERIES_A_ROUND):
        started = time.perf_counter()
        made.change(added, vectors[row : row + 1])
        made.change(added[:0], vectors[:0], removed=added)
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _runner(
    made: VectorIndex, nprobe: int, queries: Float32, exact: Float32
) -> Callable[[int], RoundResult]:
    def run(number: int) -> RoundResult:
        seconds, found = [], []
        for row in range(number * QUERIES_A_ROUND, (number + 1) * QUERIES_A_ROUND):
            started = time.perf_counter()
            result = made.search(queries[row : row + 1], index.K, nprobe=nprobe)
            seconds.append(time.perf_counter() - started)
            found.append(share_found(result.scores, exact[row : row + 1]))
        return RoundResult(median(seconds), float(np.mean(found)))

    return run


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    return markdown_table(
        [
            *("engine", "lists", "visited", "recall@10", "search ms", "ratio to FAISS fp32"),
            *("add and remove one, ms", "build s"),
        ],
        [
            [
                name,
                one["nlist"],
                one["nprobe"],
                f"{one['recall_at_10']:.3f}",
                1e3 * one["searching"]["median"],
                Spread(**one["to_reference"]),
                1e3 * one["change_seconds"],
                one["build_seconds"],
            ]
            for name, one in record["results"].items()
        ],
    )


if __name__ == "__main__":
    typer.run(main)
