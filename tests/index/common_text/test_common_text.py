"""Text that many documents share: a licence decides no answer, and versions stay versions."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import neutral_space
from encoder.blocks import Receipt
from index.corpus.demo import write_stdlib_corpus
from index.document import Document
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import SQLiteDocumentStore
from index.store.records import EncodedDocument
from tests.kit.index_fixtures import DIMENSION, OpenStore
from tests.kit.paragraphs import families_in

LICENCE = (Path(__file__).parents[3] / "LICENSE").read_text()
NAMES = [
    "queue",
    "asyncio.queues",
    "sched",
    "zipfile",
    "tarfile",
    "gzip",
    "bz2",
    "json",
    "csv",
    "pickle",
    "marshal",
    "smtplib",
    "imaplib",
    "poplib",
    "ftplib",
    "wave",
    "calendar",
    "datetime",
    "difflib",
    "textwrap",
    "curses",
    "sqlite3",
    "threading",
    "random",
    "statistics",
    "decimal",
    "fractions",
    "getopt",
    "argparse",
    "configparser",
]
QUIET = SilentProgress()
Fill = Callable[[Mapping[str, str]], SQLiteDocumentStore]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("stdlib") / "stdlib.jsonl"
    write_stdlib_corpus(path)
    texts = {line["id"]: line["text"] for line in map(json.loads, path.read_text().splitlines())}
    return {name: texts[name][:2_500] for name in NAMES}


@pytest.fixture
def fill(open_store: OpenStore, tmp_path: Path) -> Fill:
    """Put documents twenty at a time; a block is a paragraph, its vector the sum of its words'."""

    def filled(texts: Mapping[str, str]) -> SQLiteDocumentStore:
        store = open_store(tmp_path / f"{crc32(repr(texts).encode())}.sqlite3")
        store.alignment.start_with(neutral_space(DIMENSION))
        entries = [encoded(name, text) for name, text in texts.items()]
        for start in range(0, len(entries), 20):
            store.put(entries[start : start + 20])
        return store

    return filled


def encoded(name: str, text: str) -> EncodedDocument:
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.split()]
    starts = [text.index(paragraph) for paragraph in paragraphs]
    ends = map(len, paragraphs)
    offsets = [(start, start + size) for start, size in zip(starts, ends, strict=True)]
    words = [[vector_of(word) for word in paragraph.split()] for paragraph in paragraphs]
    rows = np.array([np.sum(vectors, axis=0) for vectors in words], dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    mean = rows.mean(axis=0)
    receipt = Receipt(1, 1, len(rows), 0, 1)
    blocks = BlockVectors(np.array(offsets, dtype=np.int64), rows)
    return EncodedDocument(Document(name, text), mean / np.linalg.norm(mean), receipt, blocks)


@cache
def vector_of(word: str) -> np.ndarray:
    return np.random.default_rng(crc32(word.encode())).normal(size=DIMENSION)


def with_licence(pages: Mapping[str, str], size: int, every: int = 2) -> dict[str, str]:
    """Put the beginning of a licence before each page, or every second one."""
    return {
        name: f"{LICENCE[:size]}\n\n{text}" if number % every == every - 1 else text
        for number, (name, text) in enumerate(pages.items())
    }


def by_words(store: SQLiteDocumentStore, query: str | int) -> dict[str, float]:
    """Return the lexical score of each document but the query, best first."""
    lexical = store.lexical
    terms = lexical.read_stored(query) if isinstance(query, int) else lexical.read(query)
    found = lexical.search(terms, 40)
    summaries = store.get(found.vector_ids.tolist())
    scores = zip(found.vector_ids.tolist(), found.scores.tolist(), strict=True)
    return {summaries[n].id: score for n, score in scores if n != query}


def by_blocks(store: SQLiteDocumentStore, name: str, text: str) -> dict[str, float]:
    """Return the alignment score of each document with a text that is not stored."""
    ids = {key: found.vector_id for key, found in store.find(NAMES).items()}
    documents = store.alignment.read(list(ids.values()))
    blocks = encoded(name, text).blocks
    assert documents is not None
    assert blocks is not None
    query = documents.project(text, blocks.vectors, blocks.offsets)
    scores = align(query, [documents.blocks[ids[key]] for key in NAMES]).tolist()
    return dict(zip(NAMES, scores, strict=True))


@pytest.mark.parametrize(("size", "every"), [(5_000, 2), (5_000, 1), (1_200, 2), (5_000, 3)])
def test_a_licence_decides_nothing(
    pages: dict[str, str], fill: Fill, size: int, every: int
) -> None:
    plain, licensed = fill(pages), fill(with_licence(pages, size, every))
    assert families_in(licensed) == set()
    for name in ("gzip", "smtplib", "queue", "csv"):
        for text in (pages[name], f"{LICENCE[:size]}\n\n{pages[name]}"):
            expected, found = by_words(plain, pages[name]), by_words(licensed, text)
            assert list(found)[:3] == list(expected)[:3]
            known = {key: found.get(key, 0.0) for key in expected}
            assert known == pytest.approx(expected, abs=0.02)
            expected, found = (by_blocks(plain, name, pages[name]), by_blocks(licensed, name, text))
            assert found == pytest.approx(expected, abs=0.05)
    assert list(by_words(licensed, pages["gzip"]))[1:3] == ["tarfile", "bz2"]
    found = list(by_words(licensed, f"{LICENCE[:size]}\n\n{pages['smtplib']}"))
    assert found.index("imaplib") < found.index("configparser")
