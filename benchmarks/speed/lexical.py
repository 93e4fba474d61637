"""The searchable copy of the lexical index: what do opening, following and searching it cost?

    python -m benchmarks.speed.lexical
    python -m benchmarks.speed.lexical --size 1000 --size 100000

Documents are `benchmarks.articles`: about 2,500 words each, stored with short vectors. A
search by words is that of a stored document. The first ten documents are compared with those of
`search_all`, which scores every document that shares a term. Times are CPU time of the working
thread, which other load on the machine affects little; opening includes the checksums of the files.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.articles import ArticleModel, article_model, put_articles
from benchmarks.common import (
    SEED,
    Spread,
    commit,
    markdown_table,
    percentiles,
    publish,
    spread,
)
from encoder.arrays import Int64
from index.lexical.lexical_index import CANDIDATES
from index.lexical.segmented_index import LEXICAL_DIRECTORY
from index.store.document_store import SQLiteDocumentStore

SIZES = [1_000, 10_000]
FINGERPRINT = "0" * 64
DIMENSION = 8
QUERIES = 200
COMPARED = 20  # with all documents
WRITES = 200
ROUNDS = 3
K = 10


def main(
    size: Annotated[list[int] | None, typer.Option(min=100, help="Documents; repeatable.")] = None,
) -> None:
    """Measure the copy of the lexical index at several sizes."""
    source, sizes = commit(), size or SIZES
    results = {str(number): measure(number) for number in sizes}
    settings = {"sizes": sizes, "rounds": ROUNDS, "k": K, "threads": 1, "seed": SEED}
    publish("lexical", source, settings, results, table)


def measure(size: int) -> dict[str, Any]:
    """Store articles, then open, search, write and publish."""
    model = article_model(SEED, DIMENSION, DIMENSION)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.sqlite3")
        with closing(_open(path)) as store:
            put_articles(store, model, size)
            publishing = _timed(store.lexical.publish)
        figures: dict[str, Any] = {
            "publish_seconds": publishing,
            "bytes_a_document": _bytes_of_copy(path) / size,
            **_opening(path),
        }
        with closing(_open(path)) as store:
            figures |= _searching(store, size)
        return figures | _writing(path, model, size)


def _open(path: Path, *, read_only: bool = False) -> SQLiteDocumentStore:
    store = SQLiteDocumentStore(
        path,
        fingerprint=FINGERPRINT,
        dimension=DIMENSION,
        find_families=False,
        read_only=read_only,
    )
    store.lexical.catch_up()
    return store


def _timed(action: Callable[[], object]) -> float:
    started = time.thread_time()
    action()
    return time.thread_time() - started


def _opening(path: Path) -> dict[str, Any]:
    """Open the store with its files, and without: then all texts are counted again."""
    files, tables = [], []
    for _ in range(ROUNDS):
        files.append(_timed(lambda: _open(path).close()))
    directory = path.with_name(LEXICAL_DIRECTORY)
    kept = directory.rename(directory.with_name("kept"))
    for _ in range(ROUNDS):
        tables.append(_timed(lambda: _open(path).close()))
    rmtree(directory, ignore_errors=True)
    kept.rename(directory)
    return {
        "open_seconds": asdict(spread(files)),
        "open_without_files_seconds": asdict(spread(tables)),
    }


def _searching(store: SQLiteDocumentStore, size: int) -> dict[str, Any]:
    order = np.random.default_rng(SEED).permutation(size)[:QUERIES].tolist()
    found = store.find([f"article{number}" for number in order])
    ids = [document.vector_id for document in found.values()]
    seconds: dict[str, list[float]] = {"read": [], "candidates": [], "score": []}
    for again in (False, True):  # norms are computed in the first pass
        for vector_id in ids:
            for name, taken in _search(store, vector_id).items():
                if again:
                    seconds[name].append(taken)
    everything = store.select(None)
    shares = []
    for vector_id in ids[:COMPARED]:
        query = store.lexical.read_stored(vector_id)
        best = store.lexical.search(query, K).vector_ids
        exact = store.lexical.search_all(query, K, everything).vector_ids
        shares.append(float(np.isin(exact, best).mean()))
    return {
        "searches": {name: percentiles(some) for name, some in seconds.items()},
        "recall_at_10": float(np.mean(shares)),
    }


def _search(store: SQLiteDocumentStore, vector_id: int) -> dict[str, float]:
    lexical = store.lexical
    starts = [time.thread_time()]
    query = lexical.read_stored(vector_id)
    starts.append(time.thread_time())
    candidates: Int64 = lexical.candidates(query, CANDIDATES)
    starts.append(time.thread_time())
    lexical.score(query, candidates)
    starts.append(time.thread_time())
    return dict(zip(("read", "candidates", "score"), np.diff(starts).tolist(), strict=True))


def _writing(path: Path, model: ArticleModel, size: int) -> dict[str, Any]:
    """Write documents one by one, and follow them in another copy, as the writer's own does."""
    following, writing = [], []
    with closing(_open(path)) as store, closing(_open(path, read_only=True)) as reader:
        for number in range(size, size + WRITES):
            entry = model.article(number)
            writing.append(_timed(partial(store.put, [entry])))
            following.append(_timed(reader.lexical.catch_up))
    return {"put_seconds": percentiles(writing), "follow_seconds": percentiles(following)}


def _bytes_of_copy(path: Path) -> int:
    directory = path.with_name(LEXICAL_DIRECTORY)
    return sum(file.stat().st_size for file in directory.iterdir())


def _search_milliseconds(step: str, figures: Mapping[str, Any]) -> float:
    return 1e3 * float(figures["searches"][step]["p50"])


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    results = record["results"]
    header = ["", *(f"{int(size):,} documents" for size in results)]
    cells: dict[str, Callable[[Mapping[str, Any]], object]] = {
        "bytes of the files a document": lambda found: found["bytes_a_document"],
        "opening, s": lambda found: Spread(**found["open_seconds"]),
        "opening without the files, s": lambda found: Spread(**found["open_without_files_seconds"]),
        "publishing, s": lambda found: found["publish_seconds"],
        "a write, p50 ms": lambda found: 1e3 * found["put_seconds"]["p50"],
        "following it elsewhere, p50 ms": lambda found: 1e3 * found["follow_seconds"]["p50"],
        **{
            f"a search: {step}, p50 ms": partial(_search_milliseconds, step)
            for step in ("read", "candidates", "score")
        },
        "recall@10": lambda found: found["recall_at_10"],
    }
    rows = [[name, *map(cell, results.values())] for name, cell in cells.items()]
    return markdown_table(header, rows)


if __name__ == "__main__":
    typer.run(main)
