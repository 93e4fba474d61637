"""A corpus in a folder, in the format that `longmatch lab train` finds: texts, links, splits."""

import gzip
import hashlib
import io
import json
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaluation.judgements import PARTS
from index.document import Document


def unit_hash(key: str) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b(key.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def part_by_hash(keys: Iterable[str], of: str, shares: Sequence[float]) -> dict[str, str]:
    """Return the part of each key: train, valid and test have these shares, in hash order."""
    order = sorted(keys, key=lambda key: unit_hash(f"{of} {key}"))
    ends = [round(sum(shares[:count]) * len(order)) for count in (1, 2)]
    return {key: PARTS[bisect_right(ends, place)] for place, key in enumerate(order)}


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes `output` at the end, or is removed on an error."""
    unfinished = output.with_name(output.name + ".partial")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    unfinished.replace(output)


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines with gzip; equal records make an equal file."""
    with (
        path.open("wb") as file,
        # Without a time and a name in its head, equal content is an equal file.
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        for record in records:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def record_of(document: Document) -> dict[str, Any]:
    """Return a document as a record."""
    record: dict[str, Any] = {"id": document.id, "title": document.title, "text": document.text}
    return record | ({"metadata": dict(document.metadata)} if document.metadata else {})


def write_splits(folder: Path, parts: Mapping[str, str]) -> None:
    """Write the part of each id as splits.tsv."""
    lines = (f"{name}\t{part}\n" for name, part in parts.items())
    (folder / "splits.tsv").write_text("".join(lines), encoding="utf-8")


def write_judgements(folder: Path, judgements: Iterable[tuple[str, str, int]]) -> None:
    """Write (query, document, relevance) as qrels.tsv."""
    with (folder / "qrels.tsv").open("w", encoding="utf-8") as stream:
        for query, document, relevance in judgements:
            stream.write(f"{query}\t0\t{document}\t{relevance}\n")


def write_pairs(path: Path, pairs: Iterable[tuple[str, str, bool]]) -> None:
    """Write (source, target, label) as JSON Lines."""
    with path.open("w", encoding="utf-8") as stream:
        for source, target, label in pairs:
            record = {"source": source, "target": target, "label": int(label)}
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


LEARNED = "learned.txt"
TRAINING = "training"  # the folder of a checkpoint with the reports of its training


def write_learned(folder: Path, texts: Iterable[str]) -> None:
    """Write which texts of queries of feedback are learned from, as their SHA-256 in hex."""
    (folder / LEARNED).write_text("".join(f"{text}\n" for text in sorted(texts)), encoding="utf-8")


def read_learned(folder: Path) -> set[str] | None:
    """Read what `write_learned` wrote; None if it wrote nothing."""
    path = folder / LEARNED
    return set(path.read_text(encoding="utf-8").split()) if path.is_file() else None


def write_counts(folder: Path, counts: Mapping[str, Any]) -> None:
    """Write what a folder holds as counts.json."""
    (folder / "counts.json").write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
