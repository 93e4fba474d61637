"""Engines beside Longmatch on a small corpus: the real Milvus Lite in a process of its own."""

import gzip
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.quality.retrieval import find_corpora
from benchmarks.speed.peers import search
from benchmarks.speed.peers.answers import K
from benchmarks.speed.peers.engine import Engine, open_process
from benchmarks.speed.peers.rounds import Asked, choose, in_turns
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import encode_corpus
from index.progress import SilentProgress

TOPICS = ("heron", "violin", "basalt", "motor", "queen", "court")
SIZE = 16  # documents of a topic
HERE = "benchmarks.speed.peers"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Documents of some topics, each with words of its own; all of a topic match."""
    folder = tmp_path / "data" / "small"
    folder.mkdir(parents=True)
    names = [f"{topic}{n}" for topic in TOPICS for n in range(SIZE)]
    draw = np.random.default_rng(0)
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        for name in names:
            own = [f"{name.rstrip('0123456789')}{n}" for n in draw.integers(0, 9, 12)]
            text = " ".join([*own, "the", "and", "water", name])
            file.write(json.dumps({"id": name, "title": "T", "text": text}) + "\n")
    same = [(a, b) for a in names for b in names if a != b and a[:3] == b[:3]]
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    parts = {0: "train", 1: "valid", 2: "test"}
    splits = "".join(f"{name}\t{parts[row % 3]}\n" for row, name in enumerate(names))
    (folder / "splits.tsv").write_text(splits)
    return tmp_path / "data"


def measure(data: Path, blocks: Path, checkpoint: Path, folder: Path) -> dict[str, Any]:
    (part,) = find_corpora(data, "test")
    encoder = OnnxEncoder(load_checkpoint(checkpoint), threads=1)
    folder.mkdir()
    with ExitStack() as stack:
        comparison = search.Comparison(part, encoder, Path(sys.executable), blocks, folder, stack)
        return comparison.measure() | {"versions": comparison.versions}


@pytest.mark.slow
def test_engines_are_compared_by_words_vectors_and_both(
    data: Path, tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PEERS", {})  # their packages are not installed beside ours
    monkeypatch.setattr(search, "TO_CHOOSE_BY", 5)
    blocks = tmp_path / "blocks"
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    encode_corpus(data / "small" / "corpus.jsonl.gz", blocks, encoder, SilentProgress())
    results = measure(data, blocks, tiny_checkpoint, tmp_path / "work")
    assert set(results["engines"]) == {*search.OURS, *search.PEERS_BY_VECTORS}
    assert set(results["versions"]) == {"milvus-lite", "pymilvus"}
    assert results["queries"] == len(TOPICS) * SIZE // 3
    for name, one in results["engines"].items():
        assert one["id"]["seconds"]["p50"] > 0
        assert ("text" in one) == (name == search.WORDS)
        if one["base"] != search.VECTORS:  # an untrained checkpoint finds little
            assert one["id"]["ndcg"] > 0.9, name
    for name, peer in search.PEERS_BY_VECTORS.items():
        setting = results["engines"][name]["setting"]
        if peer.like:
            assert setting == results["engines"][peer.like]["setting"].replace("64", "all")
        else:
            assert setting in peer.settings
    printed = search.table({"results": {"small": results}})
    for heading in ("small, by words", "small, by vectors", "small, by both"):
        assert heading in printed
    rows = [line for line in printed.splitlines() if line.startswith("|  ")]
    assert len([row for row in rows if " ms" not in row]) <= len(results["engines"])


def test_without_block_vectors_words_alone_are_compared(
    data: Path, tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PEERS", {})
    results = measure(data, tmp_path / "nothing", tiny_checkpoint, tmp_path / "work")
    assert set(results["engines"]) == {search.WORDS}
    assert results["engines"][search.WORDS]["text"]["times_ours"]["median"] == 1.0


def random_corpus(folder: Path, number: int) -> tuple[Path, dict[str, str], np.ndarray]:
    """Write documents of random vectors and one word each, which three of them share."""
    vectors = np.random.default_rng(2).standard_normal((number, 24)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = {f"d{row}": f"word{row % (number // 3)} the water" for row in range(number)}
    path = folder / "corpus.jsonl"
    lines = (
        {"id": name, "text": text, "vector": vector.tolist()}
        for (name, text), vector in zip(texts.items(), vectors, strict=True)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, texts, vectors


def found_of_exact(engine: Engine, way: str, vectors: np.ndarray) -> float:
    """Return the share of the exact ten best that a way finds."""
    scores = vectors[:40] @ vectors.T
    scores[np.arange(40), np.arange(40)] = -2.0
    best = [{f"d{row}" for row in rows} for rows in np.argsort(-scores)[:, :K].tolist()]
    _, found = engine.ways[way]([f"d{row}" for row in range(40)])
    assert all(len(ids) == K for ids in found)
    return float(np.mean([len(a & set(b)) / K for a, b in zip(best, found, strict=True)]))


@pytest.mark.slow
def test_milvus_lite_searches_its_lists_and_its_graph(tmp_path: Path) -> None:
    """Of random vectors few lists hold few neighbours: an index that is not used finds all."""
    path, texts, vectors = random_corpus(tmp_path, 1500)
    shares: dict[str, float] = {}
    for kind in ("IVF_FLAT", "HNSW"):
        command = (sys.executable, f"{HERE}.milvus_worker", kind, path)
        with open_process(command, texts, {}) as engine:
            shares |= {way: found_of_exact(engine, way, vectors) for way in engine.ways}
    assert list(shares) == [
        *(f"nprobe {number}" for number in (4, 8, 16, 32)),
        *(f"ef {number}" for number in (16, 32, 64, 128)),
    ]
    assert shares["nprobe 4"] < shares["nprobe 8"] < shares["nprobe 16"] < shares["nprobe 32"]
    assert shares["nprobe 4"] < 0.7
    assert shares["ef 128"] > 0.9
    assert shares["ef 16"] < shares["ef 128"]


@pytest.mark.slow
def test_milvus_lite_finds_by_words_and_by_both(tmp_path: Path) -> None:
    path, texts, vectors = random_corpus(tmp_path, 60)
    nearest = np.argsort(-(vectors @ vectors.T), axis=1)[:, 1]
    with open_process((sys.executable, f"{HERE}.milvus_worker", "both", path), texts, {}) as engine:
        names = list(texts)[:10]
        for which in ("64 words", "all words"):
            _, words = engine.ways[which](names)
            same = [{f"d{(row + step) % 60}" for step in (20, 40)} for row in range(10)]
            assert [set(ids[:2]) for ids in words] == same
            light, heavy = (
                engine.ways[f"{which}, weight {weight}"](names)[1] for weight in ("0.004", "0.25")
            )
            assert [ids[0] for ids in light] == [f"d{row}" for row in nearest[:10]]
            shares = [
                np.mean([len(own & set(ids[:4])) for own, ids in zip(same, some, strict=True)])
                for some in (light, heavy)
            ]
            assert shares[0] < shares[1]
            _, both = engine.ways[f"{which}, RRF, k 2"](names)
            for row, ids in enumerate(both):
                assert {f"d{nearest[row]}", *same[row]} <= set(ids[:6])


def test_a_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    command = (sys.executable, f"{HERE}.search_worker", "unknown", tmp_path)
    with (
        pytest.raises(RuntimeError, match="search_worker unknown: the worker ended with status 1"),
        open_process(command, {}, {}),
    ):
        pass


def test_the_cheapest_of_equally_good_settings_is_chosen() -> None:
    qrels = {"a": {"b": 1}, "c": {"d": 1}}
    right = {"a": ["b"], "c": ["d"]}

    def finding(found: dict[str, list[str]]) -> Any:
        return lambda names: ([0.0] * len(names), [found[name] for name in names])

    ways = {"none": finding({"a": [], "c": []}), "some": finding(right | {"c": ["x", "d"]})}
    ways |= {"all": finding(right), "too": finding(right)}
    chosen, ndcg = choose(ways, ["none", "some", "all", "too"], ["a", "c"], qrels)
    assert chosen == "all"
    assert ndcg["none"] == 0.0 < ndcg["some"] < ndcg["all"] == ndcg["too"] == 1.0
    assert choose(ways, ["some"], ["a", "c"], qrels) == ("some", {})


def test_times_are_divided_round_by_round_after_all_were_asked_once() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def taking(name: str, seconds: float) -> Any:
        def ask(names: Sequence[str]) -> Any:
            asked.append((name, tuple(names)))
            return [seconds * (1 + names[0].count("x"))] * len(names), [["right"] for _ in names]

        return ask

    queries = [f"q{'x' * n}" for n in range(12)]
    qrels = {name: {"right": 1} for name in queries}
    results = in_turns(
        [
            Asked("ours", "text", "ours", taking("ours, text", 2)),
            Asked("ours", "id", "ours", taking("ours", 1)),
            Asked("other", "id", "ours", taking("other", 3)),
        ],
        queries,
        qrels,
    )
    first, rounds = asked[:3], asked[3:]
    assert first == [(name, tuple(queries)) for name in ("ours, text", "ours", "other")]
    assert [name for name, _ in rounds] == ["ours", "other", "ours, text"] * 6
    assert rounds[0][1] == rounds[2][1] == tuple(queries[:2])
    assert results["other", "id"]["times_ours"] == {"median": 3.0, "low": 3.0, "high": 3.0}
    assert results["other", "id"]["ndcg"] == 1.0
