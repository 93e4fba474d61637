"""What does a collection of 100,000 documents cost, and what do inserts do to searches?

    python -m benchmarks.speed.scale
    python -m benchmarks.speed.scale --documents 20000

The real server opens the data directory: documents of one word with vectors of the
dimension of the shipped checkpoint, synthetic, clustered as in `benchmarks.speed.index`. Searches
and inserts go through the store and the live index by the steps of the service, without HTTP and
without encoding, which would hide them. Restarts and memory are those of `longmatch serve`. The
disk space of texts, words and block vectors of an article is measured on fewer documents.
"""

import tempfile
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    SEED,
    Spread,
    commit,
    make_record,
    markdown_table,
    spread,
    write_record,
)
from benchmarks.speed import backup, filters
from benchmarks.speed.index import sample_vectors
from benchmarks.speed.scale_steps import (
    ALONE,
    BESIDE,
    Kind,
    LoadPlan,
    measure_deletes,
    measure_load,
    measure_starts,
    one_word_entry,
)
from encoder.arrays import Float32
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import usable_cores
from index.directory.data_directory import SNAPSHOTS_DIRECTORY, STORE_FILE, DataDirectory
from index.vectors.snapshot import INDEX_FILE, current_generation
from service.threads import limit_numpy_threads, set_switch_interval

DOCUMENTS = 100_000
ARTICLES = 1_000
STARTS = 3
DELETED = 200
DELETED_TOGETHER = 1_000
REPLAYED_SHARE = 0.1  # largest share that maintenance leaves unpublished


def main(
    documents: Annotated[int, typer.Option(min=5_000, help="Number of documents.")] = DOCUMENTS,
    searchers: Annotated[int, typer.Option(min=1, help="Threads that search.")] = usable_cores(),
    seconds: Annotated[float, typer.Option(help="Of each round of searches.")] = 6.0,
    rounds: Annotated[int, typer.Option(min=1, help="Of searches beside inserts.")] = 7,
    inserts: Annotated[float, typer.Option(help="Documents a second.")] = 500.0,
    together: Annotated[int, typer.Option(min=1, help="Documents of one insert.")] = 10,
) -> None:
    """Fill a data directory, measure, and write the result."""
    source = commit()
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    plan = LoadPlan(searchers, seconds, rounds, inserts, together)
    set_switch_interval()  # as in the process of the server
    limit_numpy_threads()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), checkpoint, documents, plan)
    settings = {
        "documents": documents,
        "dimension": checkpoint.dimension,
        "articles": ARTICLES,
        "starts": STARTS,
        "deleted": DELETED,
        "seed": SEED,
        "load": asdict(plan),
    }
    record = make_record("scale", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(folder: Path, checkpoint: Checkpoint, documents: int, plan: LoadPlan) -> dict[str, Any]:
    """Measure everything over this many documents in a new folder."""
    replayed = round(REPLAYED_SHARE * documents) - 1
    points, queries = sample_vectors(documents + plan.inserts + replayed, checkpoint.dimension)
    vectors, new, last = np.split(points, [documents, documents + plan.inserts])
    path = folder / "data"
    results: dict[str, Any] = {}
    with closing(backup.opened(path, checkpoint)) as data:
        results |= _fill_and_filter(data, vectors, queries)
        results["load"] = measure_load(data, queries, new, plan)
        names = [f"d{row}" for row in range(DELETED + DELETED_TOGETHER)]
        results["delete"] = measure_deletes(data, names[:DELETED], names[DELETED:])
        data.index.publish()
        data.store.lexical.publish()  # as the maintenance of a server does
    results["disk_bytes"] = _disk_bytes(path)
    results["starts"] = _starts(path, checkpoint.directory, "")
    with closing(backup.opened(path, checkpoint)) as data:
        results["documents_at_start"] = len(data.store)
        _put_unpublished(data, last)
    results["starts"] |= _starts(path, checkpoint.directory, f", {replayed:,} changes to replay")
    results["article"] = _articles(folder / "articles", checkpoint)
    return results


def _fill_and_filter(data: DataDirectory, vectors: Float32, queries: Float32) -> dict[str, Any]:
    numbers = filters.filter_numbers(vectors)
    put = filters.put_all(data, vectors, numbers)
    started = time.perf_counter()
    data.index.rebuild()
    return {
        "put_seconds": put,
        "train_seconds": time.perf_counter() - started,
        "nlist": data.index.nlist,
        "nprobe": data.index.nprobe,
        "filters": filters.measure_filters(data, vectors, queries, numbers),
    }


def _put_unpublished(data: DataDirectory, vectors: Float32) -> None:
    """Put documents after the last snapshot: the next start replays them."""
    for start in range(0, len(vectors), filters.PUT_TOGETHER):
        rows = range(start, min(start + filters.PUT_TOGETHER, len(vectors)))
        data.store.put([one_word_entry(f"last{row}", vectors[row]) for row in rows])


def _starts(data: Path, checkpoint: Path, suffix: str) -> dict[str, Any]:
    """Start the server on a data directory after a clean stop, and after a kill."""
    kinds = {
        f"without documents{suffix}": Kind(data.with_name("empty"), kill=False),
        f"after a stop{suffix}": Kind(data, kill=True),
        f"after a kill{suffix}": Kind(data, kill=False),  # the next finds it closed
    }
    if suffix:
        kinds = {name: kind for name, kind in kinds.items() if kind.data == data}
    return {
        name: {
            "ready": asdict(spread([one.ready for one in some])),
            "processor": asdict(spread([one.processor for one in some])),
            "resident": asdict(spread([one.resident for one in some])),
            "stop": asdict(spread([one.stop for one in some])),
        }
        for name, some in measure_starts(kinds, checkpoint, STARTS).items()
    }


def _disk_bytes(data: Path) -> dict[str, int]:
    """Return the bytes of the closed store and of the current index generation."""
    snapshots = data / SNAPSHOTS_DIRECTORY
    return {
        "store": (data / STORE_FILE).stat().st_size,
        "index": (snapshots / current_generation(snapshots) / INDEX_FILE).stat().st_size,
        "in all": sum(path.stat().st_size for path in data.rglob("*") if path.is_file()),
    }


def _articles(data: Path, checkpoint: Checkpoint) -> dict[str, float]:
    """Return what a document of the words and sentence blocks of an article takes in the store."""
    with closing(backup.opened(data, checkpoint)) as directory:
        started = time.perf_counter()
        backup.fill(directory, ARTICLES)
        seconds = time.perf_counter() - started
    return {
        "words": backup.WORDS,
        "blocks": backup.BLOCKS,
        "put_seconds": seconds / ARTICLES,
        "store_bytes": (data / STORE_FILE).stat().st_size / ARTICLES,
    }


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    results = record["results"]
    parts = [
        markdown_table(["what", "number"], _rows(record["settings"], results)),
        markdown_table(
            ["start", "ready s", "of the processor s", "end s", "resident MB"],
            [
                [
                    name,
                    *(Spread(**one[field]) for field in ("ready", "processor")),
                    *(one["stop"]["median"], one["resident"]["median"] / 1e6),
                ]
                for name, one in results["starts"].items()
            ],
        ),
        filters.filter_table(results["filters"]),
    ]
    return "\n\n".join(parts)


def _rows(settings: dict[str, Any], results: dict[str, Any]) -> list[list[object]]:
    load, delete, disk = results["load"], results["delete"], results["disk_bytes"]
    starts, count = list(results["starts"].values()), results["documents_at_start"]
    memory = (starts[1]["resident"]["median"] - starts[0]["resident"]["median"]) / count
    article = results["article"]
    return [
        ["documents, dimension", f"{settings['documents']:,}, {settings['dimension']:,}"],
        ["lists, of them visited", f"{results['nlist']:,}, {results['nprobe']}"],
        ["put all, s", results["put_seconds"]],
        ["train and publish, s", results["train_seconds"]],
        ["memory, bytes a document", memory],
        ["store, bytes a document", disk["store"] / count],
        ["one index generation, bytes a document", disk["index"] / count],
        [f"store, bytes an article of {article['words']:,} words", article["store_bytes"]],
        ["put an article, ms", 1e3 * article["put_seconds"]],
        ["delete p50, p99 ms", _milliseconds(delete["one"]["seconds"])],
        ["of it the processor", _milliseconds(delete["one"]["processor"])],
        [f"delete {delete['deleted_together']:,} at once, ms", 1e3 * delete["together"]["seconds"]],
        ["of it the processor", 1e3 * delete["together"]["processor"]],
        *(
            [f"search {kind}: p50, p99 ms", _milliseconds(load["search_seconds"][kind])]
            for kind in (ALONE, BESIDE)
        ),
        *(
            [f"searches a second {kind}", Spread(**load["searches_a_second"][kind])]
            for kind in (ALONE, BESIDE)
        ),
        ["searches a second, ratio", Spread(**load["searches_a_second_ratio"])],
        ["the same to the round before alone", Spread(**load["searches_a_second_ratio_to_before"])],
        ["search p99, ratio", Spread(**load["search_p99_ratio"])],
        ["inserts a second", load["inserts_a_second"]],
        ["insert p50, p99 ms", _milliseconds(load["insert"]["seconds"])],
        ["of it the processor", _milliseconds(load["insert"]["processor"])],
    ]


def _milliseconds(seconds: dict[str, float]) -> str:
    return f"{1e3 * seconds['p50']:.3g}, {1e3 * seconds['p99']:.3g}"


if __name__ == "__main__":
    typer.run(main)
