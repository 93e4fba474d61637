"""`longmatch lab create-checkpoint`, `longmatch lab train` and `evaluate --rerank`."""

import json
from pathlib import Path

import pytest

from encoder.reranker.checkpoint import load_reranker_checkpoint
from tests.tools.command import run_main

RECIPE = """
name = "small"
architecture = "match-ignition"
[pair]
length = 32
sentences = 3
[model]
layers = 1
"""


def test_a_reranker_is_made_of_a_recipe(
    monkeypatch: pytest.MonkeyPatch, tiny_bert: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    made = tmp_path / "made"
    assert (
        run_main(monkeypatch, "lab", "create-checkpoint", recipe, "--bert", tiny_bert, "-o", made)
        == 0
    )
    checkpoint = load_reranker_checkpoint(made)
    assert (checkpoint.name, checkpoint.pair.length, checkpoint.precisions) == ("small", 32, ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rerank", "--corpus", "."], "learns from links"),
        (["nothing", "--corpus", "."], "nothing"),
    ],
)
def test_training_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_reranker: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "a.txt").write_text("One document.")
    monkeypatch.chdir(tmp_path)
    given = [*arguments, "--checkpoint", tiny_reranker, "-o", "out"]
    assert run_main(monkeypatch, "lab", "train", *given) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_reranking_is_measured_beside_the_mode(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Path,
    tiny_reranker: Path,
    tmp_path: Path,
) -> None:
    topics = ("river", "music", "stone")
    texts = {f"{topic}{n}": f"The {topic} of w{n}. " * 4 for topic in topics for n in range(3)}
    corpus, qrels = tmp_path / "corpus.jsonl", tmp_path / "qrels.tsv"
    corpus.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in texts.items()))
    qrels.write_text("".join(f"{t}0\t0\t{t}{n}\t1\n" for t in topics for n in (1, 2)))
    arguments = ["evaluate", corpus, qrels, "--checkpoint", tiny_checkpoint, "--mode", "hybrid"]
    arguments += ["--rerank", 4, "--json"]
    assert run_main(monkeypatch, *arguments) == 2
    assert "--reranker" in capsys.readouterr().err
    assert run_main(monkeypatch, *arguments, "--reranker", tiny_reranker) == 0
    systems = json.loads(capsys.readouterr().out)["retrieval"]["systems"]
    own = {"vector", "semantic", "lexical", "unaligned hybrid", "hybrid"}
    assert set(systems) == {*own, "reranked"}
    assert systems["reranked"]["settings"] == "first 4 of hybrid, 0.5 of the reranker"
