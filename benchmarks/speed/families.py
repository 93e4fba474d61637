"""Are copies and versions found, without false positives, and what does it cost ingest?

A planted corpus (`planted_families`) is encoded and put into two stores, one of which finds
families, in rounds. Recall of a kind: the share of its documents that are in one family with the
original. Precision: of the pairs of documents in one found family, the share that belong together.
The slowdown is processor time of encoding and putting with families, by that without, in the same
round.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import (
    SEED,
    Spread,
    commit,
    corpus_name,
    make_record,
    markdown_table,
    ratios,
    read_documents,
    split_evenly,
    write_record,
)
from benchmarks.synthetic.planted_families import PLANTED, PlantedDocument, plant
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.sqlite.block_vectors import block_vectors_of
from index.store.document_store import SQLiteDocumentStore
from index.store.records import EncodedDocument

ROUNDS = 5
HOSTS = 35
DOCUMENTS = 140


def main(
    corpus: Annotated[Path | None, typer.Option(help="Python's documentation by default.")] = None,
    documents: Annotated[int, typer.Option(help="Documents sampled from it.")] = DOCUMENTS,
    hosts: Annotated[int, typer.Option(min=2, help="Documents with copies and versions.")] = HOSTS,
) -> None:
    """Measure precision and recall of families, and the slowdown of ingest."""
    source = commit()
    settings = {"corpus": corpus_name(corpus), "hosts": hosts, "rounds": ROUNDS}
    planted = plant(read_documents(corpus, documents), hosts, SEED)
    results = measure(planted)
    record = make_record("families", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(planted: Sequence[PlantedDocument]) -> dict[str, Any]:
    """Put a planted corpus into stores with and without families, in rounds."""
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    encoder, tokenizer = OnnxEncoder(checkpoint), BlockTokenizer(checkpoint)
    encoder.warm_up()
    seconds: dict[str, list[float]] = {"encode": [], "with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            name: SQLiteDocumentStore(
                Path(tempfile.mkdtemp(dir=folder), "store.sqlite3"),
                fingerprint=encoder.fingerprint,
                dimension=encoder.dimension,
                find_families=name == "with",
            )
            for name in ("with", "without")
        }
        for part in split_evenly([len(entry.document.text) for entry in planted], ROUNDS):
            some = [planted[place] for place in sorted(part)]
            started = time.process_time()
            entries = _encode(some, tokenizer, encoder)
            seconds["encode"].append(time.process_time() - started)
            for name, store in stores.items():
                started = time.process_time()
                for first in range(0, len(entries), 16):
                    store.put(entries[first : first + 16])
                seconds[name].append(time.process_time() - started)
        found = stores["with"].families.of_ids([entry.document.id for entry in planted])
        for store in stores.values():
            store.close()
    totals = {
        name: [a + b for a, b in zip(seconds["encode"], seconds[name], strict=True)]
        for name in stores
    }
    return {
        **compare_families(planted, found),
        "documents": len(planted),
        "encode_seconds": sum(seconds["encode"]),
        "put_to_without": asdict(ratios(seconds["with"], seconds["without"])),
        "ingest_to_without": asdict(ratios(totals["with"], totals["without"])),
    }


def compare_families(
    planted: Sequence[PlantedDocument], found: Mapping[str, int]
) -> dict[str, Any]:
    """Compare found families, as numbers by id, with the planted ones."""
    wrong = Counter[tuple[str, str]]()
    pairs = 0
    for entry, other in combinations(planted, 2):
        number = found.get(entry.document.id)
        if number is None or number != found.get(other.document.id):
            continue
        pairs += 1
        if entry.family != other.family:
            wrong[min(entry.kind, other.kind), max(entry.kind, other.kind)] += 1
    recall = {}
    for kind in PLANTED:
        some = [entry for entry in planted if entry.kind == kind]
        hits = [
            entry.document.id in found and found[entry.document.id] == found.get(entry.family)
            for entry in some
        ]
        recall[kind] = sum(hits) / len(hits)
    return {
        "pairs": pairs,
        "precision": 1 - wrong.total() / max(1, pairs),
        "wrong": {" - ".join(kinds): number for kinds, number in sorted(wrong.items())},
        "recall": recall,
    }


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    results = record["results"]
    rows: list[list[str | float | Spread]] = [
        [f"recall, {kind}", f"{value:.3f}"] for kind, value in results["recall"].items()
    ]
    rows += [
        [f"precision of {results['pairs']} pairs", f"{results['precision']:.3f}"],
        ["ingest, ratio to that without", Spread(**results["ingest_to_without"])],
        ["putting alone, ratio", Spread(**results["put_to_without"])],
    ]
    return markdown_table(["families", "measured"], rows)


def _encode(
    planted: Sequence[PlantedDocument], tokenizer: BlockTokenizer, encoder: OnnxEncoder
) -> list[EncodedDocument]:
    blocks = [tokenizer(entry.document.text) for entry in planted]
    encoded = encoder.encode(blocks)
    return [
        EncodedDocument(entry.document, vector, read.receipt, block_vectors_of(read, rows))
        for entry, read, vector, rows in zip(
            planted, blocks, encoded.document_vectors, encoded.block_vectors, strict=True
        )
    ]


if __name__ == "__main__":
    typer.run(main)
