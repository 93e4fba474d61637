"""Text that many documents share: a licence decides no answer, and versions stay versions."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from encoder.alignment.scoring import align
from encoder.alignment.space import neutral_space
from encoder.blocks import Receipt
from encoder.terms.title_matcher import hash_runs
from index.common_text.runs import NO_COMMON_TEXT, RUN_WORDS, CommonText, find_common_runs
from index.document import Document
from index.lexical.terms import hash_words
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from tests.index.conftest import sql
from tests.kit.index_fixtures import DIMENSION, OpenStore
from tests.kit.paragraphs import assert_rebuild_is_equal, entry_of, families_in

LICENCE = (Path(__file__).parents[3] / "LICENSE").read_text()
NAMES = re.findall(
    r"\S+",
    "queue asyncio.queues sched zipfile tarfile gzip bz2 json shelve pickle pickletools smtplib "
    "imaplib poplib ftplib wave calendar datetime difflib textwrap cmd mailbox threading random "
    "statistics numbers fractions getopt argparse configparser",
)
QUIET = SilentProgress()
Fill = Callable[[Mapping[str, str]], DocumentStore]


@pytest.fixture(scope="module")
def pages(stdlib_corpus: Path) -> dict[str, str]:
    lines = map(json.loads, stdlib_corpus.read_text().splitlines())
    texts = {line["id"]: line["text"] for line in lines}
    return {name: texts[name][:2_500] for name in NAMES}


@pytest.fixture
def fill(open_store: OpenStore, tmp_path: Path) -> Fill:
    """Put documents twenty at a time; a block is a paragraph, its vector the sum of its words'."""

    def filled(texts: Mapping[str, str]) -> DocumentStore:
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


def by_words(store: DocumentStore, query: str | int) -> dict[str, float]:
    """Return the lexical score of each document but the query, best first."""
    lexical = store.lexical
    terms = lexical.read_stored(query) if isinstance(query, int) else lexical.read(query)
    found = lexical.search(terms, 40)
    summaries = store.get(found.vector_ids.tolist())
    scores = zip(found.vector_ids.tolist(), found.scores.tolist(), strict=True)
    return {summaries[n].id: score for n, score in scores if n != query}


def by_blocks(store: DocumentStore, name: str, text: str) -> dict[str, float]:
    """Return the alignment score of each document with a text that is not stored."""
    ids = {key: found.vector_id for key, found in store.find(NAMES).items()}
    documents = store.alignment.read(list(ids.values()))
    blocks = encoded(name, text).blocks
    assert documents is not None
    assert blocks is not None
    query = documents.project(text, blocks.vectors, blocks.offsets)
    scores = align(query, [documents.blocks[ids[key]] for key in NAMES]).tolist()
    return dict(zip(NAMES, scores, strict=True))


@pytest.mark.parametrize(
    ("size", "every"),
    [
        (5_000, 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1_200, 2), (5_000, 2), (5_000, 3))
        ),
    ],
)
def test_a_licence_decides_nothing(
    pages: dict[str, str], fill: Fill, size: int, every: int
) -> None:
    plain, licensed = fill(pages), fill(with_licence(pages, size, every))
    assert families_in(licensed) == set()
    for name in ("gzip", "smtplib", "queue", "wave"):
        for text in (pages[name], f"{LICENCE[:size]}\n\n{pages[name]}"):
            expected, found = by_words(plain, pages[name]), by_words(licensed, text)
            assert list(found)[:3] == list(expected)[:3]
            assert all(
                found.get(key, 0.0) == pytest.approx(expected[key], abs=0.02) for key in expected
            )
            expected, found = (by_blocks(plain, name, pages[name]), by_blocks(licensed, name, text))
            assert found == pytest.approx(expected, abs=0.05)
    assert set(list(by_words(licensed, pages["gzip"]))[1:3]) == {"bz2", "zipfile"}
    found = list(by_words(licensed, f"{LICENCE[:size]}\n\n{pages['smtplib']}"))
    assert found.index("imaplib") < found.index("configparser")


def test_how_much_is_common_is_known(pages: dict[str, str], fill: Fill) -> None:
    store = fill(with_licence(pages, 5_000))
    ids = {name: found.vector_id for name, found in store.find(NAMES).items()}
    assert store.alignment.common_share(ids["gzip"]) == pytest.approx(0.65, abs=0.05)
    assert store.alignment.common_share(ids["tarfile"]) == 0.0
    assert_rebuild_is_equal(store)


def test_versions_of_a_document_stay_a_family(pages: dict[str, str], fill: Fill) -> None:
    words = LICENCE[:8_000].split()
    versions = {}
    for n in range(10):
        changed = list(words)
        changed[100 * n : 100 * n + 100] = [f"clause{n}word{word}" for word in range(100)]
        versions[f"contract{n}"] = " ".join(changed)
    store = fill({**pages, **versions})
    assert families_in(store) == {frozenset(versions)}
    found = by_words(store, versions["contract0"])
    assert set(list(found)[:10]) == set(versions)
    others = [score for name, score in found.items() if name not in versions]
    assert min(found[name] for name in versions) > 2 * max(others)
    assert len(store.common_text.read()) == 0


def test_a_form_filled_in_many_times_stays_a_family(store: DocumentStore) -> None:
    forms = [entry_of(f"form{n:02}", [*range(6), 1_000 + n]) for n in range(60)]
    store.put(forms)
    assert store.families.totals() == (1, 60)
    assert len(store.common_text.read()) > 0
    assert store.alignment.common_share(1) == 0.0


def test_a_quotation_in_two_documents_counts(pages: dict[str, str], fill: Fill) -> None:
    quoting = {"gzip", "wave"}
    quoted = {n: f"{LICENCE[:1_200]} {t}" if n in quoting else t for n, t in pages.items()}
    store = fill(quoted)
    assert len(store.common_text.read()) == 0
    assert list(by_words(store, quoted["gzip"]))[1] == "wave"


def test_a_pass_that_ends_early_is_repeated(
    pages: dict[str, str], fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = with_licence(pages, 5_000)
    expected = by_words(fill(texts), pages["gzip"])
    monkeypatch.setattr("index.common_text.collection.FOLLOWED", 0)
    store = fill({**texts, "last": "A text of few words."})
    store.delete(["last"])
    assert len(store.common_text.read()) == 0
    assert len(families_in(store)) == 1
    turns = iter(range(40))
    store.refresh_common_text(QUIET, lambda: next(turns) > 29)  # all is read, nothing counted
    assert store.common_text.has_drifted()
    store.refresh_common_text(QUIET)
    assert not store.common_text.has_drifted()
    assert families_in(store) == set()
    assert_rebuild_is_equal(store)
    assert by_words(store, pages["gzip"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "damage", ["DELETE FROM common_text", "UPDATE common_text SET runs = zeroblob(80)"]
)
def test_what_is_lost_is_measured_again(pages: dict[str, str], fill: Fill, damage: str) -> None:
    store = fill(with_licence(pages, 5_000))
    runs = store.common_text.read().runs.tolist()
    sql(store.path, damage)
    assert store.common_text.has_drifted()
    store.refresh_common_text(QUIET)
    assert store.common_text.read().runs.tolist() == runs
    store.delete([name for number, name in enumerate(NAMES) if number % 2])
    store.refresh_common_text(QUIET)
    assert len(store.common_text.read()) == 0


def test_a_run_covers_all_of_its_words() -> None:
    words = hash_words([f"w{number}" for number in range(20)])
    runs = np.sort(hash_runs(words[4:14], RUN_WORDS))
    found = CommonText(runs, runs[:0], 1).find(words)
    assert found is not None
    assert np.flatnonzero(found).tolist() == list(range(4, 14))


def test_texts_without_a_run() -> None:
    few = hash_words(["a", "few", "words"])
    assert find_common_runs([]).tolist() == find_common_runs([few] * 9).tolist() == []
    assert CommonText(few, few, 1).find(few) is None
    assert NO_COMMON_TEXT.find(hash_words(LICENCE.split())) is None
