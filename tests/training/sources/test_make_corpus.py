"""`longmatch lab make-corpus`: folders that `longmatch lab train` reads, of titles and HTML."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from evaluation.judgements import read_qrels, read_splits
from index.progress import SilentProgress
from tests.kit.command import Run
from training.data.files import find_corpus_files
from training.sources.linked_corpus import CorpusOptions
from training.sources.make_corpus import make_corpus

WORDS = ["river", "stone", "cloud", "field", "lamp", "bread", "glass", "horse", "paper", "chair"]


def sentences(seed: int, number: int = 20) -> str:
    chosen = random.Random(seed)
    return " ".join(f"The {' '.join(chosen.choices(WORDS, k=6))} is here." for _ in range(number))


@pytest.fixture
def articles(tmp_path: Path) -> list[Path]:
    """Forty documents in two files; each names the three after it in a sentence of its own."""
    titles = [f"Mount {chr(65 + n // 26)}{chr(97 + n % 26)}rim" for n in range(40)]
    lines = []
    for n, title in enumerate(titles):
        named = " ".join(f"It is near {titles[(n + k) % 40]}." for k in (1, 2, 3))
        text = f"{title} is high. {named} {sentences(n)}"
        lines.append(json.dumps({"id": f"m{n}", "title": title, "text": text, "url": f"u/{n}"}))
    for number in range(2):
        path = tmp_path / f"part-{number}.jsonl"
        path.write_text("\n".join(lines[20 * number : 20 * number + 20]), encoding="utf-8")
    return [tmp_path / "part-0.jsonl", tmp_path / "part-1.jsonl"]


def read_texts(folder: Path) -> dict[str, dict[str, Any]]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as stream:
        return {record["id"]: record for record in map(json.loads, stream)}


def test_titles_become_links(longmatch: Run, articles: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    options = ("--min-words", 50, "--mask-titles", 1)
    answer = longmatch("lab", "make-corpus", "titles", *articles, "-o", output, *options)
    assert answer.status == 0
    files = find_corpus_files(output)
    assert (files.qrels, files.splits) == (output / "qrels.tsv", output / "splits.tsv")
    texts, qrels = read_texts(output), read_qrels(output / "qrels.tsv")
    splits = read_splits(output / "splits.tsv")
    counts = json.loads((output / "counts.json").read_text())
    assert set(texts) == set(splits) == set(qrels)
    assert counts["documents"] == len(texts)
    assert counts["words"] == sum(len(text["text"].split()) for text in texts.values())
    assert 2 * counts["links"] == sum(map(len, qrels.values()))
    assert f"{counts['documents']} documents, {counts['words']} words" in answer.err
    for query, judged in qrels.items():
        for document in judged:
            assert splits[query] == splits[document]
            assert qrels[document][query] == 1
            assert (int(query[1:]) - int(document[1:])) % 40 in (1, 2, 3, 37, 38, 39)
            assert texts[document]["title"] not in texts[query]["text"]
    kept = texts["m3"]
    assert kept["text"].startswith("Mount Adrim is high.")
    assert kept["metadata"] == {"url": "u/3"}


def test_the_same_command_writes_the_same_bytes(articles: list[Path], tmp_path: Path) -> None:
    options = CorpusOptions(min_words=20, held_out=0.1)
    for name in ("one", "two"):
        make_corpus("titles", articles, tmp_path / name, options, SilentProgress())
    for name in ("corpus.jsonl.gz", "qrels.tsv", "splits.tsv", "counts.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    packed = (tmp_path / "one/corpus.jsonl.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # no time


def test_a_text_that_masks_make_too_short_is_left_out(articles: list[Path], tmp_path: Path) -> None:
    short = {"id": "s", "title": "Short", "text": f"It is near Mount Aarim. {sentences(99, 4)}"}
    extra = tmp_path / "extra.jsonl"
    extra.write_text(json.dumps(short), encoding="utf-8")
    options = CorpusOptions(min_words=38, held_out=0, mask_titles=1)
    counts = make_corpus("titles", [*articles, extra], tmp_path / "out", options, SilentProgress())
    assert "s" not in read_texts(tmp_path / "out")
    assert counts["left out"]["documents too short without the masked names"] == 1


def test_pages_become_a_corpus(longmatch: Run, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    for seed, (name, other) in enumerate((("a", "b"), ("b", "a"))):
        text = f'<h1>{name}</h1><p>See <a href="{other}.html">it</a>. {sentences(seed)}</p>'
        (tmp_path / f"site/{name}.html").write_text(text, encoding="utf-8")
    options = ("--min-words", 20, "--mask-titles", 0)
    answer = longmatch(
        "lab", "make-corpus", "html", tmp_path / "site", "-o", tmp_path / "c", *options
    )
    assert answer.status == 0
    assert read_texts(tmp_path / "c")["site/a.html"]["text"].startswith("a\n\nSee it. The")


def test_a_source_without_links_is_refused(
    longmatch: Run, articles: list[Path], tmp_path: Path
) -> None:
    answer = longmatch("lab", "make-corpus", "titles", *articles, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "no document links to another one" in answer.err  # all are under 300 words
    assert not (tmp_path / "out").exists()
