"""What do vectors in fp16 and int8 save in the index, and what do they cost in recall and time?

    python -m benchmarks.speed.precision
    python -m benchmarks.speed.precision --size 20000
    python -m benchmarks.speed.precision --store longmatch-data/store.sqlite3

Vectors and queries are those of `benchmarks.speed.index`, or the vectors of a document store, of
which 200 are the queries. Building and loading are measured in separate processes, so that each has
its own memory. Searches of all precisions are timed in one process, in turns.

Recall@10 is against exact search over the fp32 vectors, by the exact cosines of what was found, as
the lists find it (default nprobe) and without lists (all are visited).
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, get_args

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
from benchmarks.server.memory_curve import resident_megabytes
from benchmarks.speed.index import K, best_scores, build_index, sample_vectors
from encoder.arrays import Float32, Int64
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from index.directory.data_directory import open_data_directory
from index.lexical.lexical_index import CANDIDATES
from index.store.schema import read_space
from index.vectors.faiss.faiss_index import FaissIndex, load_faiss_index
from index.vectors.lists import default_nprobe
from index.vectors.recall import exact_cosines, share_found
from index.vectors.vector_index import Precision

SIZE = 100_000
ROUNDS = 5
QUERIES_A_ROUND = 40
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ADDED_TOGETHER = 10  # as an insert of ten documents does


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Seconds of the median query for as many candidates as a match takes, and of an insert."""

    search: float
    insert: float


def main(
    size: Annotated[int, typer.Option(min=5_000, help="Number of synthetic vectors.")] = SIZE,
    dimension: Annotated[int | None, typer.Option(help="By default, as shipped.")] = None,
    store: Annotated[Path | None, typer.Option(help="A store, instead of synthetic.")] = None,
) -> None:
    """Measure memory, file, recall and time of every precision."""
    source = commit()
    dimension = dimension or load_checkpoint(DEFAULT_CHECKPOINT).dimension
    context = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {one: Path(folder, one) for one in PRECISIONS}
        for one, file in files.items():
            results[one] = {}
            for step in (measure_building, measure_loading):  # each with a memory of its own
                with ProcessPoolExecutor(1, mp_context=context) as process:
                    some = (one, file, size, dimension, store)
                    results[one] |= process.submit(step, *some).result()
        vectors, queries = read_or_sample(size, dimension, store)
        for name, figures in measure_searches(vectors, queries, files).items():
            results[name] |= figures
    settings = {
        "vectors": "of a store" if store else "synthetic",
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "k": K,
        "candidates": CANDIDATES,
    }
    record = make_record("precision", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def read_or_sample(size: int, dimension: int, store: Path | None) -> tuple[Float32, Float32]:
    """Return vectors Float32[N, D] and queries Float32[Q, D], no query among the vectors."""
    if store is None:
        return sample_vectors(size, dimension)
    space = read_space(store)
    data = open_data_directory(
        store.parent, fingerprint=space.fingerprint, dimension=space.dimension, read_only=True
    )
    _, vectors = data.store.vectors(data.store.changes_since(0).added)
    data.close()
    order = np.random.default_rng(SEED).permutation(len(vectors))
    queries = ROUNDS * QUERIES_A_ROUND
    return vectors[order[queries:]], vectors[order[:queries]]


def measure_building(
    precision: Precision, file: Path, size: int, dimension: int, store: Path | None
) -> dict[str, float]:
    """Measure building an index and its memory then, and write it to a file."""
    vectors, _ = read_or_sample(size, dimension, store)
    before = resident_megabytes(os.getpid())
    index, built = build_index(vectors, precision)
    resident = resident_megabytes(os.getpid()) - before
    index.save(file)
    return {
        "vectors": len(index),
        "dimension": index.dimension,
        "nlist": index.nlist,
        "nprobe": default_nprobe(index.nlist),
        "built_bytes_a_vector": resident * 2**20 / len(index),
        "file_bytes_a_vector": file.stat().st_size / len(index),
        **built,
    }


def measure_loading(precision: Precision, file: Path, *_: object) -> dict[str, float]:
    """Measure loading the file and the memory of an index that was loaded."""
    before, started = resident_megabytes(os.getpid()), time.perf_counter()
    index = load_faiss_index(file, precision)
    seconds = time.perf_counter() - started
    resident = resident_megabytes(os.getpid()) - before
    return {"load_seconds": seconds, "loaded_bytes_a_vector": resident * 2**20 / len(index)}


def measure_searches(
    vectors: Float32, queries: Float32, files: Mapping[Precision, Path]
) -> dict[str, dict[str, Any]]:
    """Time searches and inserts of each precision in turns, and measure their recall."""
    exact = best_scores(vectors, queries)
    indexes = {one: load_faiss_index(file, one) for one, file in files.items()}
    runners = {one: _runner(index, queries) for one, index in indexes.items()}
    figures: dict[str, dict[str, Any]] = {
        one: _accuracy(index, vectors, queries, exact) for one, index in indexes.items()
    }
    measured = interleave(runners, ROUNDS)
    fp32 = measured["fp32"]
    for name, some in measured.items():
        searches, inserts = [one.search for one in some], [one.insert for one in some]
        figures[name] |= {
            "search_seconds": asdict(spread(searches)),
            "search_to_fp32": asdict(ratios(searches, [one.search for one in fp32])),
            "insert_seconds": asdict(spread(inserts)),
            "insert_to_fp32": asdict(ratios(inserts, [one.insert for one in fp32])),
        }
    return figures


def _accuracy(
    index: FaissIndex, vectors: Float32, queries: Float32, exact: Float32
) -> dict[str, float]:
    def read(ids: Int64) -> tuple[Int64, Float32]:
        return ids, vectors[ids]

    def recall(nprobe: int) -> float:
        found = index.search(queries, K, nprobe=nprobe)
        return share_found(exact_cosines(queries, found.ids, read), exact)

    found = index.search(queries, K, nprobe=index.nlist)
    errors = np.abs(found.scores - exact_cosines(queries, found.ids, read))
    return {
        "recall_at_10": recall(default_nprobe(index.nlist)),
        "recall_at_10_all_lists": recall(index.nlist),
        "mean_error": float(errors.mean()),
        "largest_error": float(errors.max()),
    }


def _runner(index: FaissIndex, queries: Float32) -> Callable[[int], RoundResult]:
    def run(number: int) -> RoundResult:
        some = queries[number * QUERIES_A_ROUND : (number + 1) * QUERIES_A_ROUND]
        searches = []
        for query in some:
            started = time.perf_counter()
            index.search(query[np.newaxis], CANDIDATES)
            searches.append(time.perf_counter() - started)
        inserts = []
        for start in range(0, QUERIES_A_ROUND, ADDED_TOGETHER):
            ids = len(index) + np.arange(ADDED_TOGETHER, dtype=np.int64)
            new = some[start : start + ADDED_TOGETHER]
            started = time.perf_counter()
            index.change(ids, new)
            inserts.append(time.perf_counter() - started)
        first = len(index) - QUERIES_A_ROUND
        added = np.arange(first, len(index), dtype=np.int64)
        index.change(added[:0], queries[:0], removed=added)
        return RoundResult(median(searches), median(inserts))

    return run


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    rows: dict[str, Callable[[dict[str, Any]], object]] = {
        "memory, bytes a vector": lambda one: one["loaded_bytes_a_vector"],
        "after building": lambda one: one["built_bytes_a_vector"],
        "file": lambda one: one["file_bytes_a_vector"],
        "recall@10": lambda one: f"{one['recall_at_10']:.4f}",
        "without lists": lambda one: f"{one['recall_at_10_all_lists']:.4f}",
        "error of a cosine, mean": lambda one: f"{one['mean_error']:.0e}",
        "largest": lambda one: f"{one['largest_error']:.0e}",
        "search ms": lambda one: 1e3 * one["search_seconds"]["median"],
        "search, ratio": lambda one: Spread(**one["search_to_fp32"]),
        "ten added, ratio": lambda one: Spread(**one["insert_to_fp32"]),
        "train s": lambda one: one["train_seconds"],
        "load s": lambda one: one["load_seconds"],
    }
    results: dict[str, Any] = record["results"]
    first = next(iter(results.values()))
    size = f"{first['vectors']:,} vectors of {first['dimension']:,} dimensions"
    body = markdown_table(
        ["precision", *rows],
        [[name, *(get(one) for get in rows.values())] for name, one in results.items()],
    )
    return f"{size}, {record['settings']['vectors']}\n\n{body}"


if __name__ == "__main__":
    typer.run(main)
