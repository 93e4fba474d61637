"""What does the second stage of a search cost, which aligns the sentence blocks of candidates?

    python -m benchmarks.speed.alignment
    python -m benchmarks.speed.alignment --size 1000 --size 100000 --keep /large/disk

Documents are `benchmarks.synthetic.articles`: about 2,500 words and 60 blocks each. They are
put into the store without encoding. Queries are stored documents; searches run in process, one
after the other, on one thread, with and without alignment in turns. Ratios are of the CPU time of
the working thread, which other load on the machine affects less than the clock.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
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
    percentiles,
    ratios,
    write_record,
)
from benchmarks.synthetic.articles import MEDIAN_BLOCKS, open_articles, store_articles
from encoder.alignment.space import (
    DIMENSION,
    MAX_BLOCKS,
)
from index.directory.data_directory import STORE_FILE, DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import AlignmentOptions, EncodedQuery, Mode, SearchOptions
from index.search.search import search

SIZES = [1_000, 10_000]
BLOCK_DIMENSION, DOCUMENT_DIMENSION = 384, 1_536
FINGERPRINT = "0" * 64  # of no checkpoint
CANDIDATES = 200
K = 10
ROUNDS = 5
QUERIES_A_ROUND = 40
REPEATS = 50
KERNEL_BLOCKS = (MEDIAN_BLOCKS, MAX_BLOCKS)
MODES: tuple[Mode, ...] = ("hybrid", "semantic")
ALIGNED = AlignmentOptions(CANDIDATES, budget_seconds=60.0)  # never cut short
RULE = LinearFusion(0.5, 0.5, 0.5, expected_slope=0.5, expected_intercept=0.1)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class SearchTiming:
    """One search: seconds by the clock, of the processor, and of each stage by the clock."""

    seconds: float
    processor: float
    stages: Mapping[str, float]


def main(
    size: Annotated[
        list[int] | None, typer.Option(min=2 * CANDIDATES, help="Documents. May be repeated.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder where data directories are kept, and used again by later runs."),
    ] = None,
) -> None:
    """Measure the alignment alone, and searches with and without it."""
    source = commit()
    sizes = size or SIZES
    with tempfile.TemporaryDirectory() as folder:
        searches = {
            str(number): _in_process(measure, keep or Path(folder), number) for number in sizes
        }
    settings = {
        "sizes": sizes,
        "threads": 1,
        "precision": "int8 codes, fp32 products",
        "dimension": {
            "alignment": DIMENSION, "blocks": BLOCK_DIMENSION, "documents": DOCUMENT_DIMENSION
        },
        "candidates": CANDIDATES,
        "k": K,
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "repeats": REPEATS,
        "seed": SEED,
    }  # fmt: skip
    record = make_record("alignment", source, settings, {"searches": searches})
    typer.echo(table(record))
    write_record(record)


def _in_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a new process, whose NumPy has one thread."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read when NumPy is imported
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(function, *arguments).result()


def measure(folder: Path, size: int) -> dict[str, Any]:
    """Fill a data directory in the folder, unless a former run did, and measure it."""
    path = folder / f"articles-{size}"
    build = {}
    if not (path / STORE_FILE).exists():
        sizes = {"dimension": DOCUMENT_DIMENSION, "block_dimension": BLOCK_DIMENSION}
        build["build_seconds"] = store_articles(path, size, FINGERPRINT, **sizes)
    with closing(open_articles(path, FINGERPRINT, DOCUMENT_DIMENSION, read_only=True)) as data:
        queries = _queries(data, size)
        return {
            **build,
            **_measure_searches(data, queries),
        }


def _queries(data: DataDirectory, size: int) -> list[EncodedQuery]:
    """Return stored documents, read as the service reads them before a search by id."""
    count = min(ROUNDS * QUERIES_A_ROUND, size)
    chosen = np.random.default_rng(SEED).choice(size, count, replace=False).tolist()
    queries = []
    for stored in data.store.find([f"article{number}" for number in chosen]).values():
        _, vectors = data.store.vectors([stored.vector_id])
        title, text = stored.document.title, stored.document.text
        queries.append(EncodedQuery(text, vectors[0], title, vector_id=stored.vector_id))
    return queries


def _timed(call: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    started, processor = time.perf_counter(), time.thread_time()
    result = call()
    return (time.perf_counter() - started, time.thread_time() - processor), result


def _figures(timings: Sequence[tuple[float, float]]) -> dict[str, dict[str, float]]:
    seconds, processor = zip(*timings, strict=True)
    return {"seconds": percentiles(seconds), "processor": percentiles(processor)}


def _measure_searches(data: DataDirectory, queries: Sequence[EncodedQuery]) -> dict[str, Any]:
    """Search by each mode with and without alignment, in turns."""
    variants = {
        _name(mode, alignment): SearchOptions(top_k=K, mode=mode, alignment=alignment)
        for mode in MODES
        for alignment in (None, ALIGNED)
    }

    def runner(options: SearchOptions) -> Callable[[int], list[SearchTiming]]:
        return lambda number: [_search(data, query, options) for query in queries[number::ROUNDS]]

    for options in variants.values():
        _search(data, queries[0], options)  # reads frequencies and titles
    measured = interleave({name: runner(options) for name, options in variants.items()}, ROUNDS)
    medians = {
        name: [median([timing.processor for timing in some]) for some in rounds]
        for name, rounds in measured.items()
    }
    return {
        "search": {name: _search_figures(rounds) for name, rounds in measured.items()},
        "aligned_to_not": {
            mode: asdict(ratios(medians[_name(mode, ALIGNED)], medians[_name(mode, None)]))
            for mode in MODES
        },
    }


def _name(mode: Mode, alignment: AlignmentOptions | None) -> str:
    return mode if alignment is None else f"{mode}, aligned"


def _search(data: DataDirectory, query: EncodedQuery, options: SearchOptions) -> SearchTiming:
    def call() -> Any:
        nothing = ScoreCalibrator(None, None, None)
        return search(data, query, options, fusion=RULE, calibrator=nothing, among=None)

    (seconds, processor), answer = _timed(call)
    return SearchTiming(seconds, processor, answer.seconds)


def _search_figures(rounds: Sequence[Sequence[SearchTiming]]) -> dict[str, Any]:
    timings = [timing for some in rounds for timing in some]
    return {
        **_figures([(timing.seconds, timing.processor) for timing in timings]),
        "stages": {
            stage: percentiles([timing.stages[stage] for timing in timings])
            for stage in timings[0].stages
        },
    }


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    searches = record["results"]["searches"]
    stages = ("lexical", "search", "align", "fetch")
    return "\n\n".join(
        [
            markdown_table(
                [
                    *("search", "p50 ms", "of the processor", "p99 ms"),
                    *("of the processor", *(f"{stage} p50 ms" for stage in stages)),
                ],
                [
                    [
                        f"{int(size):,} documents, {name}",
                        *_p50(figures),
                        *(1e3 * figures[clock]["p99"] for clock in ("seconds", "processor")),
                        *(_stage(figures["stages"], stage) for stage in stages),
                    ]
                    for size, measured in searches.items()
                    for name, figures in measured["search"].items()
                ],
            ),
            markdown_table(
                ["documents", *(f"{mode} aligned, ratio" for mode in MODES)],
                [
                    [
                        f"{int(size):,}",
                        *(Spread(**figures["aligned_to_not"][mode]) for mode in MODES),
                    ]
                    for size, figures in searches.items()
                ],
            ),
        ]
    )


def _p50(figures: Mapping[str, Any]) -> list[float]:
    return [1e3 * figures[clock]["p50"] for clock in ("seconds", "processor")]


def _stage(stages: Mapping[str, Any], stage: str) -> float | str:
    return 1e3 * stages[stage]["p50"] if stage in stages else ""


if __name__ == "__main__":
    typer.run(main)
