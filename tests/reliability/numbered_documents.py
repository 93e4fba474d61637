"""Documents of the reliability checks: a name and a version determine text and vector."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.store.records import EncodedDocument

DIMENSION = 16
FINGERPRINT = "f" * 64
_WORDS = ("river", "stone", "music", "winter", "letter", "engine", "forest", "harbour")
_RECEIPT = Receipt(tokens=4, tokens_read=4, blocks=1, blocks_left_out=0, tokens_encoded=4)


def vector_of(name: str, version: int) -> Float32:
    """Return the unit vector Float32[DIMENSION] of a version of a document."""
    seed = hashlib.sha256(f"{name} {version}".encode()).digest()[:8]
    return random_unit_vector(np.random.default_rng(int.from_bytes(seed)))


def random_unit_vector(random: np.random.Generator) -> Float32:
    """Sample a unit vector Float32[DIMENSION]."""
    sample = random.normal(size=DIMENSION)
    unit: Float32 = (sample / np.linalg.norm(sample)).astype(np.float32)
    return unit


def entry_of(name: str, version: int) -> EncodedDocument:
    """Return the encoded document for a version of a document; its metadata has the version."""
    words = f"{name} {version} {_WORDS[version % len(_WORDS)]} {_WORDS[version // 8 % len(_WORDS)]}"
    return EncodedDocument(
        Document(name, words, "", {"version": version}), vector_of(name, version), _RECEIPT
    )


def fill(data: DataDirectory, names: Sequence[str], version: int = 0) -> None:
    """Put one version of each name, and train and publish an index of them."""
    for start in range(0, len(names), 1_000):
        data.store.put([entry_of(name, version) for name in names[start : start + 1_000]])
    data.index.catch_up()
    data.index.rebuild()


def open_numbered(path: Path) -> DataDirectory:
    """Open a data directory of such documents."""
    return open_data_directory(
        path,
        fingerprint=FINGERPRINT,
        dimension=DIMENSION,
        index_precision="fp32",  # scores are compared with brute force, as exactly as can be
    )


def contents(data: DataDirectory) -> tuple[dict[str, int], int]:
    """Return the version of each document in the store, and the number of duplicates."""
    ids = data.store.log.added_after(0)[1].tolist()
    found = [data.store.get(ids[start : start + 1_000]) for start in range(0, len(ids), 1_000)]
    versions: dict[str, int] = {}
    twice = 0
    for summary in (summary for part in found for summary in part.values()):
        twice += summary.id in versions
        versions[summary.id] = int(summary.metadata["version"])
    return versions, twice


def index_problems(
    data: DataDirectory, names: Iterable[str], versions: dict[str, int]
) -> list[str]:
    """Compare the index with the store, and search it for these documents.

    Returns:
        Descriptions of the problems; empty if there are none.
    """
    index, store = data.index, data.store
    problems = []
    if not len(index) == len(store) == int(index._live.index.list_sizes().sum()) == len(versions):
        problems.append(f"{len(index)} vectors, {len(store)} documents, {len(versions)} expected")
    if index.sequence != store.sequence:
        problems.append(f"the index is at {index.sequence}, the store at {store.sequence}")
    for name in names:
        found = index.search(vector_of(name, versions[name])[None], 2, nprobe=index.nlist)
        nearest = store.get([int(found.ids[0, 0])])
        if [summary.id for summary in nearest.values()] != [name] or found.scores[0, 0] < 1 - 1e-5:
            problems.append(f"{name} is not found by its own vector")
        if found.scores[0, 1] > 1 - 1e-5:
            problems.append(f"{name} is found twice")
    return problems
