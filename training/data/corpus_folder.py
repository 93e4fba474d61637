"""A corpus in a folder, in the format that `longmatch lab train` finds: texts, links, splits."""

import gzip
import hashlib
import io
import json
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.judgements import PARTS, Pair
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


@dataclass(frozen=True, slots=True)
class DataSet:
    """The content of a corpus folder.

    Attributes:
        documents: read while the folder is written, so that they may be larger than the memory.
        pairs: by part, train, valid or test; "" where their documents decide.
        judgements: (query, document, relevance).
        queries: that are no documents.
        parts: of documents, or of queries that are no documents; read after the documents.
        left_out: how much was left out, by reason.
    """

    documents: Iterable[Document]
    pairs: Mapping[str, Sequence[Pair]] = field(default_factory=dict)
    judgements: Sequence[tuple[str, str, int]] = ()
    queries: Sequence[Document] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)


def write_corpus(folder: Path, content: DataSet) -> int:
    """Write corpus.jsonl.gz, and of queries, pairs, qrels and splits the files of what is there.

    Equal content makes equal files.

    Returns:
        The number of documents.
    """
    documents = _write_records(folder / "corpus.jsonl.gz", content.documents)
    if content.queries:
        _write_records(folder / "queries.jsonl.gz", content.queries)
    for part, pairs in content.pairs.items():
        records = (
            {"source": pair.source, "target": pair.target, "label": int(pair.label)}
            for pair in pairs
        )
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        _write_lines(folder / (f"pairs.{part}.jsonl" if part else "pairs.jsonl"), lines)
    _write_lines(folder / "splits.tsv", (f"{name}\t{part}" for name, part in content.parts.items()))
    judged = (f"{query}\t0\t{name}\t{relevance}" for query, name, relevance in content.judgements)
    _write_lines(folder / "qrels.tsv", judged)
    return documents


def _write_records(path: Path, documents: Iterable[Document]) -> int:
    """Write documents as JSON Lines with gzip; return how many."""
    number = 0
    with (
        path.open("wb") as file,
        # Without a time and a name in its head, equal content is an equal file.
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        for document in documents:
            record = {"id": document.id, "title": document.title, "text": document.text}
            metadata = {"metadata": dict(document.metadata)} if document.metadata else {}
            stream.write(json.dumps(record | metadata, ensure_ascii=False) + "\n")
            number += 1
    return number


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file, or none where there is no line."""
    content = "".join(f"{line}\n" for line in lines)
    if content:
        path.write_text(content, encoding="utf-8")


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
