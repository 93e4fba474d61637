"""The benchmarks of speed, each measured once on little."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from benchmarks import gpu
from benchmarks.common import read_documents
from benchmarks.quality.retrieval import find_corpora
from benchmarks.speed import encoder, families, lexical, scale, search_peers
from benchmarks.speed.encoders.timed_encoder import TimedEncoder
from benchmarks.synthetic import planted_families
from benchmarks.synthetic.planted_families import PLANTED, plant
from encoder.checkpoint import load_checkpoint
from index.document import Document


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


@pytest.mark.slow
def test_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "ROUNDS", 2)
    monkeypatch.setattr(planted_families, "MOST_WORDS", 220)
    results = families.measure(
        [
            entry
            for entry in plant(read_documents(None, 60), 2, 1)
            if entry.kind in PLANTED or entry.family == entry.document.id
        ]
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
    monkeypatch.setattr(search_peers, "OPEN", {})  # their packages are not installed here
    (part,) = find_corpora(tmp_path / "data", "test")
    results = search_peers.measure(part, Path(sys.executable), tmp_path, {})
    ours = results["engines"][search_peers.WORDS]
    assert ours["id"]["ndcg"] > 0.9
    assert ours["text"]["times_ours"]["median"] == 1.0
    assert "small, by words" in search_peers.table({"results": {"small": results}})


def test_gpu_is_rehearsed_on_a_cpu(tiny_checkpoint: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(gpu.main)
    arguments = [
        *("--checkpoint", tiny_checkpoint, "--device", "cpu", "--batch-tokens", 64),
        *("--tokens", 64, "--documents", 4, "--rounds", 1, "--texts", 12, "--size", 5_000),
    ]
    done = CliRunner().invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert "a rehearsal: no record is written" in done.output
    rows = [line.split("|") for line in done.output.splitlines() if "tiny" in line]
    assert rows
    for row in rows:
        assert float(row[6]) < 0.05
        assert float(row[8]) > 0.9
