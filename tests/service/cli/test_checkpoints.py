"""`longmatch lab create-checkpoint` and `export`, and a reranker in `evaluate`."""

import json
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import QUALITY, load_checkpoint
from encoder.reranker.checkpoint import load_reranker_checkpoint
from tests.kit.command import Run
from tests.kit.corpora import documents, json_lines
from training.export.create import Recipe, create_checkpoint

ENCODER = """
name = "other"
architecture = "smith"
block_length = 16
max_blocks = 8
long_sentence = "split"
language = "en"
dimension = 32
initialise_from_bert = true
begin_as_mean = false
[model]
sentence_layers = 1
document_layers = 1
"""
RERANKER = """
name = "small"
architecture = "match-ignition"
[pair]
length = 32
sentences = 3
[model]
layers = 1
"""
WORDS = ["river", "stone", "music", "winter", "tree", "paper", "engine", "harbour", "snow"]


@pytest.fixture
def made(tiny_bert: Path, tiny_recipe: Recipe, tmp_path: Path) -> Path:
    """A checkpoint with weights and no graphs, that is exported soon."""
    model = tiny_recipe.model | {"sentence_layers": 1, "document_layers": 0}
    recipe = tiny_recipe.model_copy(update={"model": model})
    return create_checkpoint(recipe, str(tiny_bert), tmp_path / "made").directory


@pytest.fixture
def judged(tmp_path: Path) -> list[str]:
    """A corpus of twenty documents and judgements of two of them, as options."""
    rng = np.random.default_rng(0)
    lines = [{"id": f"d{n}", "text": " ".join(rng.choice(WORDS, 60))} for n in range(20)]
    (tmp_path / "c.jsonl").write_text(json_lines(lines))
    (tmp_path / "q.tsv").write_text("d1 0 d2 1\nd3 0 d4 1\n")
    return ["--corpus", str(tmp_path / "c.jsonl"), "--qrels", str(tmp_path / "q.tsv")]


def test_an_export_that_passes_says_what_it_keeps(
    longmatch: Run, made: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_checkpoint(made).fingerprint
    monkeypatch.setattr("service.cli.lab.read_stdlib", lambda: documents(Path(judged[1]))[:15])
    answer = longmatch("lab", "export", made, "--precision", "fp16")
    assert answer.status == 0
    assert "of the neighbours of fp32 on 15 documents of Python's library" in answer.err
    checkpoint = load_checkpoint(made)
    report = json.loads((made / QUALITY).read_text())["fp16"]
    assert report["documents"] == 15
    assert report["neighbours"] >= 0.98
    assert QUALITY in checkpoint.files
    assert checkpoint.fingerprint == before


@pytest.mark.slow
def test_export_adds_a_precision(longmatch: Run, tiny_bert: Path, tmp_path: Path) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(ENCODER)
    made = tmp_path / "made"
    created = longmatch("lab", "create-checkpoint", recipe, "--bert", tiny_bert, "-o", made)
    assert created.status == 0
    assert "int8: cosine to the model at least" in created.err
    assert longmatch("lab", "export", made, "--precision", "fp32").status == 0
    manifest = json.loads((made / "manifest.json").read_text())
    assert {name.split("/")[0] for name in manifest["files"] if "/" in name} == {"int8", "fp32"}


def test_a_reranker_is_made_of_a_recipe(longmatch: Run, tiny_bert: Path, tmp_path: Path) -> None:
    (recipe := tmp_path / "recipe.toml").write_text(RERANKER)
    made = tmp_path / "made"
    created = longmatch("lab", "create-checkpoint", recipe, "--bert", tiny_bert, "-o", made)
    assert created.status == 0
    checkpoint = load_reranker_checkpoint(made)
    assert (checkpoint.name, checkpoint.pair.length, checkpoint.precisions) == ("small", 32, ())


def test_reranking_is_measured_with_the_mode(
    longmatch: Run, judged: list[str], tiny_reranker: Path
) -> None:
    _, corpus, _, qrels = judged
    options = ("--mode", "hybrid", "--rerank", 4, "--reranker", tiny_reranker, "--json")
    answer = longmatch("evaluate", corpus, qrels, *options)
    assert answer.status == 0, answer.err
    systems = json.loads(answer.out)["retrieval"]["systems"]
    own = {"vector", "semantic", "lexical", "unaligned hybrid", "hybrid"}
    assert set(systems) == {*own, "reranked"}
    assert systems["reranked"]["settings"] == "first 4 of hybrid, 0.5 of the reranker"
