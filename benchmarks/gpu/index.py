"""What does a GPU gain for the index: training its lists, filling them, exact search, all pairs?

    python -m benchmarks.gpu.index --size 100000 --size 1000000 --work FOLDER --minutes 9

measures each size on the CPU and, where FAISS has one, on the GPU, in parts as
`benchmarks.gpu.encoding` does. Vectors are those of `benchmarks.speed.index`. Both results are
compared: recall@10 of the trained index, and the share of equal neighbours of exact search.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, markdown_table, spread, write_record
from benchmarks.gpu.hardware import describe_gpu
from benchmarks.gpu.parts import Part, run_parts
from benchmarks.speed.index import DIMENSION, sample_vectors
from encoder.arrays import Float32, Int64
from encoder.onnx_encoder import usable_cores
from evaluation.markdown import short_number
from index.search.pairs import TILE
from index.vectors import bulk
from index.vectors.faiss import gpu
from index.vectors.faiss.faiss_index import train_faiss_index
from index.vectors.lists import SAMPLE_PER_LIST, choose_nlist
from index.vectors.recall import share_found

BENCHMARK = "gpu-index"
SIZES = [100_000, 1_000_000]
NEIGHBOURS = 10
ADDED = 10_000  # vectors at a time
_QUERIES = 1_000
_CHECKED = 100
_TILES = 4


def main(
    work: Annotated[Path, typer.Option(help="What is kept between the parts.")],
    size: Annotated[list[int] | None, typer.Option(min=5_000, help="May be repeated.")] = None,
    device: Annotated[str, typer.Option(help="both, or cpu alone.")] = "both",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    minutes: Annotated[float, typer.Option(min=0.0, help="Of this run.")] = 9.0,
) -> None:
    """Measure the index on a GPU and on the CPU, or go on with it."""
    source = commit()
    if device not in ("both", "cpu"):
        raise typer.BadParameter(f"{device} is neither both nor cpu", param_hint="--device")
    if device == "both" and not gpu.gpu_is_used():
        raise typer.BadParameter("FAISS has no GPU here", param_hint="--device")
    devices = ["cpu"] if device == "cpu" else ["gpu", "cpu"]
    sizes = size or SIZES
    parts = [
        Part(f"index-{count}-{one}", partial(_measure, count, one, rounds))
        for count in sizes
        for one in devices
    ]
    results = run_parts(parts, work, minutes)
    settings = {
        "gpu": describe_gpu(),
        "devices": devices,
        "dimension": DIMENSION,
        "threads": usable_cores(),
        "sizes": sizes,
        "queries": _QUERIES,
        "k": NEIGHBOURS,
        "rounds": rounds,
    }
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    if device == "cpu":
        typer.echo("a rehearsal: no record is written")
    else:
        typer.echo(write_record(record))


def _measure(size: int, device: str, rounds: int, _: dict[str, Any]) -> dict[str, Any]:
    gpu.allow_gpu(device == "gpu")
    return measure(size, rounds)


def measure(size: int, rounds: int) -> dict[str, Any]:
    """Measure one size on the device that is allowed; times are seconds, medians of the rounds."""
    vectors, queries = sample_vectors(size)
    queries = np.tile(queries, (-(-_QUERIES // len(queries)), 1))[:_QUERIES]
    nlist = choose_nlist(size)
    sample = vectors[np.random.default_rng(1).permutation(size)[: nlist * SAMPLE_PER_LIST]]
    ids = np.arange(size, dtype=np.int64)
    trained, filled, index = [], [], train_faiss_index(sample[:1], 1)
    for _ in range(rounds):
        started = time.perf_counter()
        index = train_faiss_index(sample, nlist, "int8")
        trained.append(time.perf_counter() - started)
        started = time.perf_counter()
        for start in range(0, size, ADDED):
            index.change(ids[start : start + ADDED], vectors[start : start + ADDED])
        filled.append(time.perf_counter() - started)
    searched = [_seconds(lambda: bulk.nearest(queries, vectors, NEIGHBOURS)) for _ in range(rounds)]
    side = vectors[: min(TILE, size)]
    tiles = [_seconds(lambda: bulk.products(side, side)) for _ in range(_TILES * rounds)]
    scores, rows = bulk.nearest(queries, vectors, NEIGHBOURS)
    found = index.search(queries, NEIGHBOURS).ids
    cosines = np.einsum("qd,qkd->qk", queries, vectors[found])
    return {
        "nlist": nlist,
        "sample": len(sample),
        "training": spread(trained).median,
        "filling": spread(filled).median,
        "exact_search": spread(searched).median,
        "tile": spread(tiles).median,
        "recall": share_found(cosines, scores),
        "same_as_brute_force": _same(queries, vectors, rows),
    }


def _same(queries: Float32, vectors: Float32, rows: Int64) -> float:
    """Return the share of the neighbours of some queries that NumPy finds as well."""
    shares = []
    for query, found in zip(queries[:_CHECKED], rows, strict=False):
        exact = np.argpartition(-(vectors @ query), NEIGHBOURS)[:NEIGHBOURS]
        shares.append(len({*exact.tolist()} & {*found.tolist()}) / NEIGHBOURS)
    return float(np.mean(shares))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(record: dict[str, Any]) -> str:
    """Format a record as Markdown."""
    settings, rows = record["settings"], []
    for size in settings["sizes"]:
        for device in settings["devices"]:
            one = record["results"][f"index-{size}-{device}"]
            rows.append(
                [
                    f"{size:,}",
                    device,
                    f"{one['nlist']:,}",
                    *(short_number(one[name]) for name in ("training", "filling")),
                    short_number(one["exact_search"]),
                    short_number(1e3 * one["tile"]),
                    f"{one['recall']:.3f}",
                    f"{100 * one['same_as_brute_force']:.1f} %",
                ]
            )
    columns = ["vectors", "on", "lists", "training s", "filling s"]
    columns += [f"{settings['queries']:,} exact searches s", "tile of all pairs ms"]
    return markdown_table([*columns, "recall@10", "same neighbours as NumPy"], rows)


if __name__ == "__main__":
    typer.run(main)
