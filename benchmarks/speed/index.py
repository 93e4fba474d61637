"""How large, fast and exact is the index, and what does a larger nprobe buy?

Vectors are synthetic: a seeded mixture of clusters of very different sizes in a space of few
dimensions, embedded in as many as document vectors have, with a little noise in all of them, at
unit norm. Queries are points from the same mixture and are not in the index. Each size is measured
in a separate process, so memory and thread pools start fresh.

Recall@10 is against exact search by NumPy: the share of the 10 found whose score is at least the
10th best score, so any of several equal neighbours counts.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
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
    publish,
    ratios,
    spread,
)
from benchmarks.server.server import resident_megabytes
from encoder.arrays import Float32
from encoder.onnx_encoder import usable_cores
from index.vectors.faiss.faiss_index import FaissIndex, train_faiss_index
from index.vectors.lists import SAMPLE_PER_LIST, choose_nlist, default_nprobe
from index.vectors.recall import share_found
from index.vectors.vector_index import Precision

SIZES = [5_000, 50_000, 200_000]
DIMENSION = 1_536  # of the checkpoints that ship
PRECISION: Precision = "int8"  # the default of an index
LATENT_DIMENSION = 32
CLUSTERS = 1_000
SPREAD_IN_CLUSTER = 1.0  # as much as between the centres: cells overlap
NOISE = 0.02
K = 10
ROUNDS = 5
QUERIES_A_ROUND = 40
ADDED_TOGETHER = 1_024  # as the live index adds them


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One nprobe in one round: seconds of the median query, share of the neighbours found."""

    seconds: float
    recall: float


def main(
    size: Annotated[list[int] | None, typer.Option(min=5_000, help="May be repeated.")] = None,
    dimension: Annotated[int, typer.Option(min=LATENT_DIMENSION, help="Of a vector.")] = DIMENSION,
) -> None:
    """Measure building, searching, and recall@10 by nprobe."""
    source = commit()
    context = multiprocessing.get_context("spawn")
    results = {}
    for vectors in size or SIZES:
        with ProcessPoolExecutor(1, mp_context=context) as process:
            results[str(vectors)] = process.submit(measure, vectors, dimension).result()
    settings = {
        "dimension": dimension,
        "threads": {"building": usable_cores(), "searching": 1},
        "precision": PRECISION,
        "sizes": size or SIZES,
        "clusters": CLUSTERS,
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "k": K,
    }
    publish("index", source, settings, results, table)


def measure(size: int, dimension: int) -> dict[str, Any]:
    """Measure an index of `size` vectors; in a fresh process, for its memory."""
    vectors, queries = sample_vectors(size, dimension)
    exact = best_scores(vectors, queries)
    before = resident_megabytes(os.getpid())
    index, built = build_index(vectors)
    resident = resident_megabytes(os.getpid()) - before
    del vectors
    return {
        "nlist": index.nlist,
        "default_nprobe": default_nprobe(index.nlist),
        "resident_bytes_a_vector": resident * 2**20 / size,
        **built,
        "by_nprobe": _search(index, queries, exact),
    }


def sample_vectors(size: int, dimension: int = DIMENSION) -> tuple[Float32, Float32]:
    """Sample vectors Float32[size, dimension] and queries Float32[Q, dimension], unit norm."""
    chance = np.random.default_rng(SEED)
    centres = chance.standard_normal((CLUSTERS, LATENT_DIMENSION), dtype=np.float32)
    shares = chance.dirichlet(np.full(CLUSTERS, 0.5))
    basis = np.linalg.qr(chance.standard_normal((dimension, LATENT_DIMENSION)))[0].T
    count = size + ROUNDS * QUERIES_A_ROUND
    points = centres[chance.choice(CLUSTERS, count, p=shares)]
    points += SPREAD_IN_CLUSTER * chance.standard_normal(points.shape, dtype=np.float32)
    vectors: Float32 = points @ basis.astype(np.float32)
    vectors += NOISE * chance.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:size].copy(), vectors[size:].copy()


def best_scores(vectors: Float32, queries: Float32) -> Float32:
    """Return the K best cosines of each query Float32[Q, K], in any order, by exact search."""
    return np.stack([np.partition(vectors @ query, -K)[-K:] for query in queries])


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    results: dict[str, Any] = record["results"]
    sizes: dict[str, Callable[[dict[str, Any]], object]] = {
        "lists": lambda figures: figures["nlist"],
        "train s": lambda figures: figures["train_seconds"],
        "add s": lambda figures: figures["add_seconds"],
        "nprobe": lambda figures: figures["default_nprobe"],
        "search p50 ms": lambda figures: 1e3 * _at_default(figures)["seconds"]["median"],
        "recall@10": lambda figures: f"{_at_default(figures)['recall_at_10']:.3f}",
        "bytes a vector": lambda figures: figures["resident_bytes_a_vector"],
    }
    first = markdown_table(
        ["vectors", *sizes],
        [
            [f"{int(size):,}", *(get(figures) for get in sizes.values())]
            for size, figures in results.items()
        ],
    )
    second = markdown_table(
        ["vectors", "nprobe", "recall@10", "search p50 ms", "times as fast as exact"],
        [
            [
                f"{int(size):,}",
                nprobe + (" (default)" if int(nprobe) == figures["default_nprobe"] else ""),
                f"{point['recall_at_10']:.3f}",
                1e3 * point["seconds"]["median"],
                Spread(**point["times_as_fast_as_exact"]),
            ]
            for size, figures in results.items()
            for nprobe, point in figures["by_nprobe"].items()
        ],
    )
    settings = record["settings"]
    return f"{settings['dimension']:,} dimensions, {settings['precision']}\n\n{first}\n\n{second}"


def build_index(
    vectors: Float32, precision: Precision = PRECISION
) -> tuple[FaissIndex, dict[str, float]]:
    """Build an index as the live one is built; also return the seconds of training and adding."""
    nlist = choose_nlist(len(vectors))
    started = time.perf_counter()
    sample_size = min(len(vectors), nlist * SAMPLE_PER_LIST)
    sample = np.random.default_rng(SEED).choice(len(vectors), sample_size, replace=False)
    index = train_faiss_index(vectors[sample], nlist, precision)
    trained = time.perf_counter()
    for start in range(0, len(vectors), ADDED_TOGETHER):
        some = vectors[start : start + ADDED_TOGETHER]
        index.change(np.arange(start, start + len(some), dtype=np.int64), some)
    return index, {
        "train_seconds": trained - started,
        "add_seconds": time.perf_counter() - trained,
    }


def _search(index: FaissIndex, queries: Float32, exact: Float32) -> dict[str, Any]:
    """Search one query a call, as the service does, at a range of nprobe."""
    powers = [1 << power for power in range(index.nlist.bit_length())]
    nprobes = sorted({*powers, default_nprobe(index.nlist), index.nlist})

    def runner(nprobe: int) -> Callable[[int], RoundResult]:
        def run(number: int) -> RoundResult:
            some = range(number * QUERIES_A_ROUND, (number + 1) * QUERIES_A_ROUND)
            seconds, found = [], []
            for query in some:
                started = time.perf_counter()
                result = index.search(queries[query : query + 1], K, nprobe=nprobe)
                seconds.append(time.perf_counter() - started)
                found.append(share_found(result.scores, exact[query : query + 1]))
            return RoundResult(median(seconds), float(np.mean(found)))

        return run

    measured = interleave({str(nprobe): runner(nprobe) for nprobe in nprobes}, ROUNDS)
    exhaustive = [turn.seconds for turn in measured[str(index.nlist)]]
    return {
        nprobe: {
            "recall_at_10": float(np.mean([turn.recall for turn in some])),
            "seconds": asdict(spread([turn.seconds for turn in some])),
            "times_as_fast_as_exact": asdict(ratios(exhaustive, [turn.seconds for turn in some])),
        }
        for nprobe, some in measured.items()
    }


def _at_default(figures: dict[str, Any]) -> dict[str, Any]:
    point: dict[str, Any] = figures["by_nprobe"][str(figures["default_nprobe"])]
    return point


if __name__ == "__main__":
    typer.run(main)
