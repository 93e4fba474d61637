"""Small corpora in files, and what reading them gives."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from index.corpus.reader import Corpus, read_corpus
from index.document import Document, SkippedInput

TOPIC_WORDS = (
    "river", "stone", "music", "winter", "letter", "engine", "forest", "harbour", "bridge"
)  # fmt: skip
TOPICS = {
    "river": "The river carries cold water to the sea, {} of its kind.",
    "music": "A violin plays the slow part of the concert number {} again.",
}


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_linked_corpus(folder: Path) -> Path:
    """Write 24 documents of one to nine sentences into a new folder, linked by twos."""
    random = np.random.default_rng(4)
    records = []
    for number in range(24):
        topics = random.choice(TOPIC_WORDS, size=1 + number % 9)
        text = " ".join(f"The {word} is there." for word in topics)
        records.append({"id": f"d{number}", "text": f"{text} Own{number}."})
    write(folder / "corpus.jsonl", json_lines(records))
    links = "".join(f"d{number}\td{number + 1}\t1\n" for number in range(0, 24, 2))
    write(folder / "qrels.tsv", "query-id\tcorpus-id\tscore\n" + links)
    return folder


def json_lines(records: Iterable[object]) -> str:
    """Return records as JSON Lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def write_pairs(path: Path, pairs: Iterable[tuple[str, str, int]]) -> Path:
    """Write labelled pairs: source, target and label of each."""
    path.write_text(json_lines({"source": a, "target": b, "label": label} for a, b, label in pairs))
    return path


def documents(corpus: Corpus) -> list[Document]:
    """Return the documents that are read of a corpus."""
    return [item for item in read_corpus(corpus) if isinstance(item, Document)]


def refusals(corpus: Corpus) -> dict[str, str]:
    """Return the reason of each skipped input of a corpus, by where it is."""
    items = list(read_corpus(corpus))
    return {
        item.where: item.reason for item in items if isinstance(item, SkippedInput) and item.lost
    }


def ids(corpus: Corpus) -> list[str]:
    """Return the ids of a corpus of which nothing is skipped."""
    assert refusals(corpus) == {}
    return [document.id for document in documents(corpus)]


def write_topics(path: Path, count: int) -> Path:
    """Write documents d0, d1, and so on, each of twelve sentences on three topics at random."""
    random = np.random.default_rng(4)
    with path.open("w") as file:
        for number in range(count):
            topics = random.choice(TOPIC_WORDS, size=3)
            text = " ".join(f"The {word} is there." for word in random.choice(topics, size=12))
            file.write(json.dumps({"id": f"d{number}", "text": f"{text} Own{number}."}) + "\n")
    return path


def write_two_topics(folder: Path, parts: Sequence[str], paired: Sequence[str]) -> Path:
    """Write a corpus of two topics as benchmarks read it, with splits, links and pairs.

    Args:
        folder: of the corpus; made.
        parts: the split of each document of a topic.
        paired: splits that have labelled pairs.
    """
    folder.mkdir(parents=True)
    part_of = {f"{topic}{n}": part for topic in TOPICS for n, part in enumerate(parts)}
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        for name in part_of:
            text = " ".join(TOPICS[name[:-1]].format(f"{name} {n}") for n in range(9))
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    (folder / "splits.tsv").write_text("".join(f"{n}\t{p}\n" for n, p in part_of.items()))
    same = [(a, b) for a in part_of for b in part_of if a != b and a[:-1] == b[:-1]]
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    for part in paired:
        names = [name for name, of in part_of.items() if of == part]
        with gzip.open(folder / f"pairs.{part}.jsonl.gz", "wt") as file:
            for a, b in ((a, b) for a in names for b in names if a < b):
                pair = {"source": a, "target": b, "label": int(a[:-1] == b[:-1])}
                file.write(json.dumps(pair) + "\n")
    return folder
