"""Data directories of synthetic articles, put into the store without encoding."""

import time
from contextlib import closing
from pathlib import Path

from benchmarks.common import SEED
from benchmarks.synthetic.articles import article_model
from encoder.alignment.space import fit_space, sample_blocks
from index.directory.data_directory import DataDirectory, open_data_directory
from index.progress import SilentProgress

SAMPLED = 1_000  # documents that the alignment space is fitted to, none of them in the store
PUT_TOGETHER = 200


def open_articles(
    path: Path, fingerprint: str, dimension: int, *, read_only: bool
) -> DataDirectory:
    """Open a data directory of articles; families are not looked for."""
    return open_data_directory(
        path,
        fingerprint=fingerprint,
        dimension=dimension,
        read_only=read_only,
        find_families=False,
    )


def store_articles(
    path: Path, size: int, fingerprint: str, *, dimension: int, block_dimension: int
) -> float:
    """Fill a new data directory with `article0`, `article1` … and an alignment space.

    Returns:
        Seconds that it took.
    """
    model = article_model(SEED, block_dimension, dimension)
    sampled = (model.article(10**6 + number).blocks for number in range(SAMPLED))
    space = fit_space(sample_blocks([one.vectors for one in sampled if one is not None]))
    started = time.perf_counter()
    with closing(open_articles(path, fingerprint, dimension, read_only=False)) as data:
        data.store.alignment.start_with(space)
        for start in range(0, size, PUT_TOGETHER):
            numbers = range(start, min(start + PUT_TOGETHER, size))
            data.store.put([model.article(number) for number in numbers])
        data.store.refresh_titles(SilentProgress())
        data.index.rebuild()
        data.store.lexical.publish()
    return time.perf_counter() - started
