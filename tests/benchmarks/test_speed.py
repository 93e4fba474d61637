"""The benchmarks of speed, each measured once on little."""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from benchmarks import gpu
from benchmarks.common import read_documents
from benchmarks.quality.retrieval import find_corpora
from benchmarks.speed import alignment, encoder, families, lexical, scale, search_peers
from benchmarks.speed.encoders.peer_process import CHUNK_TOKENS, cut_texts, open_peer
from benchmarks.speed.encoders.timed_encoder import TimedEncoder
from benchmarks.speed.index import DIMENSION, K, best_scores, sample_vectors
from benchmarks.synthetic import planted_families
from benchmarks.synthetic.articles import MEDIAN_BLOCKS, article_model
from benchmarks.synthetic.planted_families import PLANTED, PlantedDocument, plant
from encoder.checkpoint import load_checkpoint
from encoder.tokenizer import open_tokenizer
from index.document import Document
from index.lexical.terms import count_terms, is_pair


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.synthetic.articles.SAMPLED", 120)


def test_figures_are_ratios_to_the_reference_encoder() -> None:
    nothing = np.empty((0, 1), dtype=np.float32)
    documents = [Document(id=name, text=name) for name in "abcd"]
    task = encoder.Task(documents, [100, 200, 300, 400], [[3, 0], [2, 1]])
    measured = {
        "a": [encoder.RoundResult(1.0, 4.0), encoder.RoundResult(0.5, 2.0)],
        "b": [encoder.RoundResult(1.0, 9.0), encoder.RoundResult(1.0, 4.0)],
    }
    encoders = [TimedEncoder(name, "fp32", 1, list, lambda _: nothing) for name in measured]
    assert encoder.fastest(encoders, measured) == "a"
    results = encoder.summarise(encoders, measured, task, reference="b")
    assert results["a"]["tokens_per_second"] == {"median": 150.0, "low": 100.0, "high": 200.0}
    assert results["a"]["tokens_per_second_encoding"]["median"] == (500 / 4 + 500 / 2) / 2
    assert results["a"]["times_as_fast"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert results["b"]["times_as_fast"]["median"] == 1.0


def test_chunks_of_peers_hold_the_whole_text(tiny_checkpoint: Path) -> None:
    tokenizer = open_tokenizer(load_checkpoint(tiny_checkpoint))
    texts = ["one two three " * 300, "", "four"]
    chunks = cut_texts(tokenizer, texts)
    assert set(chunks.document.tolist()) == {0, 2}
    first = [text for text, of in zip(chunks.texts, chunks.document, strict=True) if of == 0]
    assert "".join("".join(first).split()) == "".join(texts[0].split())
    sizes = [len(tokenizer.encode(text, add_special_tokens=False)) for text in first]
    assert sizes[:-1] == [CHUNK_TOKENS] * (len(first) - 1)


def test_a_worker_that_cannot_start_is_an_error(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="the worker ended with status 1"),
        open_peer("unknown", Path(sys.executable), tiny_checkpoint, 1, ["some text"]),
    ):
        pass
    with (
        pytest.raises(RuntimeError, match="unknown: the worker ended with status 1"),
        search_peers.open_process(Path(sys.executable), "unknown", tmp_path, {}, {}),
    ):
        pass


def test_vectors_are_seeded_of_unit_norm_and_clustered() -> None:
    vectors, queries = sample_vectors(5_000)
    again, _ = sample_vectors(5_000)
    assert vectors.shape == (5_000, DIMENSION)
    assert (vectors == again).all()
    assert abs((vectors**2).sum(1) - 1).max() < 1e-4
    best = best_scores(vectors, queries)
    cosines = vectors @ queries[0]
    assert sorted(best[0].tolist()) == pytest.approx(sorted(cosines.tolist())[-K:], abs=1e-6)
    assert best.mean() > 2 * abs(cosines).mean()


@pytest.mark.slow
def test_lexical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "ROUNDS", 1)
    monkeypatch.setattr(lexical, "QUERIES", 20)
    monkeypatch.setattr(lexical, "WRITES", 5)
    results = lexical.measure(120)
    assert results["recall_at_10"] > 0.95
    assert 5_000 < results["bytes_a_document"] < 100_000
    assert "120 documents" in lexical.table({"results": {"120": results}})


@pytest.mark.slow
def test_alignment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(alignment, "ROUNDS", 2)
    monkeypatch.setattr(alignment, "QUERIES_A_ROUND", 2)
    first = alignment.measure(tmp_path, 30)
    again = alignment.measure(tmp_path, 30)  # of the same directory
    assert set(first) - set(again) == {"build_seconds"}
    for name, figures in first["search"].items():
        assert ("align" in figures["stages"]) == name.endswith("aligned")
    of_parts = first["bytes_a_document"]
    assert of_parts["block vectors"] > MEDIAN_BLOCKS * 384  # two bytes for each number
    assert sum(of_parts[part] for part in alignment.PARTS) < of_parts["in all"]
    printed = alignment.table({"results": {"searches": {"30": again}}})
    assert "| 30 documents, hybrid, aligned" in printed


def test_articles_have_the_words_and_blocks_of_real_ones() -> None:
    model = article_model(1, 16, 24)
    articles = [model.article(number) for number in range(60)]
    assert model.article(7).document == articles[7].document
    counted = [count_terms(article.document.text) for article in articles]
    pairs = [sum(is_pair(term) for term in terms) for terms in counted]
    words = [len(terms) - pairs[row] for row, terms in enumerate(counted)]
    # Of 428 articles of Wikipedia: 931 and 617, in 2,617 words.
    assert 700 < np.median(words) < 1_100
    assert 450 < np.median(pairs) < 850
    assert 50 < np.median([article.receipt.blocks for article in articles]) < 70


@pytest.mark.slow
def test_scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path) -> None:
    monkeypatch.setattr(scale, "ROUNDS", 1)
    monkeypatch.setattr(scale, "QUERIES_A_ROUND", 5)
    monkeypatch.setattr(scale, "SHARES", {"50 %": 0.5, "1 %": 0.01})
    monkeypatch.setattr(scale, "STARTS", 1)
    plan = scale.LoadPlan(2, 0.5, 2, inserts_a_second=100.0, together=5)
    results = scale.measure(tmp_path, load_checkpoint(tiny_checkpoint), 5_000, plan)
    assert 0 < results["load"]["inserts_a_second"] <= 101
    assert results["nlist"] > 1
    assert results["documents_at_start"] <= 5_000 + plan.inserts - 1_200
    assert len(results["starts"]) == 5
    for name, figures in results["filters"].items():
        assert figures["recall_at_10"] > 0.9, name
    record = {"settings": {"documents": 5_000, "dimension": 16}, "results": results}
    printed = scale.table(record)
    assert "| after a kill, 499 changes to replay" in printed
    assert "| inserts a second" in printed


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return read_documents(None, 60)


def test_what_is_planted_is_what_it_says(documents: list[Document]) -> None:
    def words(text: str) -> Counter[str]:
        return Counter(text.split())

    planted = plant(documents, 4, 1)
    assert plant(documents, 4, 1) == planted
    texts = {one.document.id: one.document.text for one in planted}
    kinds = Counter(one.kind for one in planted)
    assert {kind: kinds[kind] for kind in PLANTED} == dict.fromkeys(PLANTED, 4)
    for one in planted:
        original = texts[one.family]
        kept = (words(one.document.text) & words(original)).total() / words(original).total()
        match one.kind:
            case planted_families.COPY:
                assert one.document.text == original
            case planted_families.CONCATENATED:
                assert kept > 0.99
                assert 1 < len(one.document.text) / len(original) <= 2.01
            case kind if kind in planted_families.EDITS:
                assert 1 - kept == pytest.approx(planted_families.EDITS[kind] / 1.5, rel=0.9)
    with pytest.raises(ValueError, match="not enough"):
        plant(documents[:5], 4, 1)


def test_pairs_and_kinds_of_families_are_counted() -> None:
    def planted(name: str, kind: str, family: str) -> PlantedDocument:
        return PlantedDocument(Document(name, "text"), kind, family)

    some = [planted(name, "original", name) for name in ("a", "b")]
    some += [planted(f"a {kind}", kind, "a") for kind in PLANTED]
    right = {one.document.id: 1 for one in some if one.family == "a"}
    found = families.compare_families(some, right)
    assert (found["precision"], found["pairs"], found["wrong"]) == (1.0, 21, {})
    assert set(found["recall"].values()) == {1.0}
    found = families.compare_families(some, {"a": 1, "b": 1, "a copy": 1})
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["wrong"] == {"copy - original": 1, "original - original": 1}


@pytest.mark.slow
def test_families(documents: list[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "ROUNDS", 2)
    monkeypatch.setattr(planted_families, "MOST_WORDS", 220)
    results = families.measure(
        [
            one
            for one in plant(documents, 2, 1)
            if one.kind in PLANTED or one.family == one.document.id
        ][:30]
    )
    assert results["precision"] == 1.0
    assert set(results["recall"]) == set(PLANTED)
    assert "| recall, copy" in families.table({"results": results})


def test_search_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "small"
    folder.mkdir(parents=True)
    names = [f"{topic}{n}" for topic in ("heron", "violin", "basalt", "motor") for n in range(9)]
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        for name in names:
            text = f"{name[:-1]}a {name[:-1]}b {name[:-1]}c and the water {name}"
            file.write(json.dumps({"id": name, "title": "T", "text": text}) + "\n")
    same = [(a, b) for a in names for b in names if a != b and a[:-1] == b[:-1]]
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    (folder / "splits.tsv").write_text("".join(f"{name}\ttest\n" for name in names))
    monkeypatch.setattr(search_peers, "OPEN", {})  # their packages are not installed beside ours
    (part,) = find_corpora(tmp_path / "data", "test")
    results = search_peers.measure(part, Path(sys.executable), tmp_path, {})
    ours = results["engines"][search_peers.WORDS]
    assert ours["id"]["ndcg"] > 0.9
    assert ours["text"]["times_ours"]["median"] == 1.0
    assert "small, by words" in search_peers.table({"results": {"small": results}})


def test_engines_answer_in_turns_after_an_untimed_round() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def taking(name: str, seconds: float) -> Any:
        def ask(names: Sequence[str]) -> Any:
            asked.append((name, tuple(names)))
            return [seconds * (1 + names[0].count("x"))] * len(names), [["right"] for _ in names]

        return ask

    queries = [f"q{'x' * n}" for n in range(12)]
    engines = {
        search_peers.WORDS: search_peers.Engine(
            0.0, {"text": taking("ours, text", 2), "id": taking("ours", 1)}
        ),
        "other": search_peers.Engine(0.0, {"id": taking("other", 3)}),
    }
    results = search_peers.in_turns(engines, queries, {name: {"right": 1} for name in queries})
    first, rounds = asked[:3], asked[3:]
    assert {names for _, names in first} == {tuple(queries)}
    assert [name for name, _ in rounds] == ["ours", "other", "ours, text"] * 6
    assert rounds[0][1] == rounds[2][1] == tuple(queries[:2])
    assert results["other"]["id"]["times_ours"] == {"median": 3.0, "low": 3.0, "high": 3.0}
    assert results["other"]["id"]["ndcg"] == 1.0


def test_gpu_is_rehearsed_on_a_cpu(tiny_checkpoint: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(gpu.main)
    arguments = [
        *("--checkpoint", tiny_checkpoint, "--device", "cpu", "--batch-tokens", 64),
        *("--tokens", 64, "--documents", 4, "--rounds", 1, "--texts", 12, "--size", 5_000),
    ]
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "a rehearsal: no record is written" in done.output
    rows = [line.split("|") for line in done.output.splitlines() if "tiny" in line]
    assert rows
    for row in rows:
        assert float(row[6]) < 0.05
        assert float(row[8]) > 0.9
