"""What do backup, restore, doctor, the store digest and row checksums cost?

    python -m benchmarks.speed.backup --documents 10000

Texts and vectors are random; a document has as many words and sentence blocks as an article.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, markdown_table, write_record
from encoder.blocks import Receipt
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from index.directory.backup import restore_backup, verify_backup, write_backup
from index.directory.data_directory import STORE_FILE, DataDirectory, open_data_directory
from index.directory.file_digest import verify_digest, write_digest
from index.doctor.examine import Sampling, examine
from index.document import Document
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.sqlite.connections import vector_id_list
from index.store.records import EncodedDocument
from index.store.rows import SUMMARIES

WORDS, BLOCKS = 2_000, 40
VOCABULARY = 50_000
BATCH = 100
READ, REPEATS = 100, 50


def main(
    documents: Annotated[
        int, typer.Option(min=1_000, help="Number of documents to store.")
    ] = 10_000,
    folder: Annotated[Path | None, typer.Option(help="Folder on the disk to measure.")] = None,
) -> None:
    """Fill a data directory, measure, and write the result."""
    source = commit()
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        results = measure(Path(name), checkpoint, documents)
    settings = {"documents": documents, "words": WORDS, "blocks": BLOCKS}
    record = make_record("backup", source, settings, results)
    write_record(record)
    typer.echo(table(record))


def measure(folder: Path, checkpoint: Checkpoint, documents: int) -> dict[str, float]:
    """Return seconds, megabytes and microseconds by name."""
    data = folder / "data"
    with closing(opened(data, checkpoint)) as directory:
        fill(directory, documents)
        reads = measure_reads(directory)
    store = data / STORE_FILE
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / 1e6
    results = {"megabytes": size, **reads}
    with closing(opened(data, checkpoint)):
        results["snapshot"] = seconds(lambda: write_backup(data, folder / "b", checkpoint))
        archive = folder / "b.tar"
        results["snapshot to one file"] = seconds(lambda: write_backup(data, archive, checkpoint))
    results["verification"] = seconds(lambda: verify_backup(folder / "b"))
    results["restore"] = seconds(lambda: restore_backup(folder / "b", folder / "new", checkpoint))
    sampling = Sampling(0, None, SilentProgress())
    results["doctor"] = seconds(lambda: examine(folder / "new", checkpoint, sampling))
    results["digest at closing"] = seconds(lambda: write_digest(store))
    results["digest at opening"] = seconds(lambda: verify_digest(store))
    return results


def measure_reads(directory: DataDirectory) -> dict[str, float]:
    """Return the time to read 100 summaries, with and without checksums."""
    ids = np.random.default_rng(1).choice(directory.store.changes_since(0).added, READ).tolist()
    with closing(sqlite3.connect(directory.path / STORE_FILE)) as connection:

        def bare() -> None:
            connection.execute(SUMMARIES, (vector_id_list(ids),)).fetchall()

        return {
            "read of 100 summaries, bare": microseconds(bare),
            "read of 100 summaries, checked": microseconds(lambda: directory.store.get(ids)),
        }


def opened(data: Path, checkpoint: Checkpoint) -> DataDirectory:
    """Open the directory as the server does."""
    return open_data_directory(
        data, fingerprint=checkpoint.fingerprint, dimension=checkpoint.dimension
    )


def fill(directory: DataDirectory, documents: int) -> None:
    """Put documents of random words with Zipf-distributed frequencies."""
    random = np.random.default_rng(1)
    dimension = directory.store.dimension
    for start in range(0, documents, BATCH):
        entries = []
        for number in range(start, min(start + BATCH, documents)):
            words = np.minimum(random.zipf(1.2, WORDS), VOCABULARY)
            text = " ".join(f"word{one}" for one in words.tolist())
            blocks = BlockVectors(
                np.array([[50 * n, 50 * n + 49] for n in range(BLOCKS)]), unit(random, BLOCKS, 384)
            )
            receipt = Receipt(WORDS, WORDS, BLOCKS, 0, WORDS)
            document = Document(f"d{number}", text, f"Title {number}", {"number": number})
            entries.append(
                EncodedDocument(document, unit(random, 1, dimension)[0], receipt, blocks)
            )
        directory.store.put(entries)
    directory.index.catch_up()
    directory.index.publish()


def unit(random: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Sample unit vectors [count, width]."""
    vectors = random.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    call()
    return round(time.perf_counter() - started, 3)


def microseconds(call: Callable[[], object]) -> float:
    """Return the median of many calls."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return round(median(times) * 1e6, 1)


def table(record: dict[str, Any]) -> str:
    """Format a record as Markdown."""
    results = record["results"]
    reads = [[name, f"{results[name]} µs"] for name in results if name.startswith("read of")]
    others = [
        [name, f"{value} s"]
        for name, value in results.items()
        if name != "megabytes" and not name.startswith("read of")
    ]
    header = f"{record['settings']['documents']} documents, {results['megabytes']:.0f} MB"
    return markdown_table([header, "time"], [*others, *reads])


if __name__ == "__main__":
    typer.run(main)
