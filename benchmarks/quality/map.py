"""Whether neighbours stay neighbours on the map of a corpus: python -m benchmarks.quality.map DATA.

Prints the share of the ten nearest documents of each document that are among its 10 and its 50
nearest on the map, the same for the first two principal components, and the seconds of the layout.
"""

import sys
import time
from pathlib import Path

import numpy as np

from encoder.arrays import Float32
from index.vectors.faiss.ivf import neighbours_of
from service.cli.opening import load, opened
from service.map import layout

SAMPLE = 2_000  # documents


def kept(vectors: Float32, places: Float32, k: int) -> float:
    """Return the share of the 10 nearest of vectors [N, D] among the k nearest of places [N, 2]."""
    near = neighbours_of(vectors, 10)
    chosen = np.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).astype(np.int64)
    shares = []
    for row in chosen.tolist():
        distances = np.square(places - places[row]).sum(axis=1)
        distances[row] = np.inf
        shares.append(np.isin(near[row], np.argpartition(distances, k)[:k]).mean())
    return float(np.mean(shares))


def main() -> None:
    """Measure the data directory of the command line."""
    data = Path(sys.argv[1])
    with opened(data, load(None, data=data).encoder, read_only=True) as directory:
        vectors = directory.store.read_changes(0, 2**62)[2]
    started = time.perf_counter()
    places = layout.lay_out(vectors, lambda _: None)
    seconds = time.perf_counter() - started
    centred = vectors - vectors.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    for name, found in (("map", places), ("principal components", plane)):
        shares = ", ".join(f"{kept(vectors, found, k):.2f} among {k}" for k in (10, 50))
        print(f"{name}: {shares}")
    print(f"{len(vectors)} documents, {seconds:.1f} s")


if __name__ == "__main__":
    main()
