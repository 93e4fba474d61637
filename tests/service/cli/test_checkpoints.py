"""`longmatch lab create-checkpoint`, `export` and its quality gate, on tiny checkpoints."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import encoder.export.quality
from encoder.checkpoint import QUALITY, Checkpoint, load_checkpoint
from tests.tools.command import Run, run_main

WORDS = ["river", "stone", "music", "winter", "tree", "paper", "engine", "harbour", "snow"]


@pytest.fixture
def made(tiny_weights: Checkpoint, tmp_path: Path) -> Path:
    """A checkpoint with weights and no graphs."""
    names = ("config.json", "tokenizer.json", "weights.safetensors")
    folder = tmp_path / "made"
    folder.mkdir()
    for name in names:
        shutil.copy(tiny_weights.directory / name, folder / name)
    manifest = json.loads((tiny_weights.directory / "manifest.json").read_text())
    manifest["files"] = {n: d for n, d in manifest["files"].items() if n in names}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def judged(tmp_path: Path) -> list[str]:
    """A corpus of twenty documents and judgements of two of them, as options."""
    rng = np.random.default_rng(0)
    lines = [{"id": f"d{n}", "text": " ".join(rng.choice(WORDS, 60))} for n in range(20)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "q.tsv").write_text("d1 0 d2 1\nd3 0 d4 1\n")
    return ["--corpus", str(tmp_path / "c.jsonl"), "--qrels", str(tmp_path / "q.tsv")]


def test_an_export_that_passes_says_what_it_keeps(
    made: Path,
    judged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = load_checkpoint(made).fingerprint
    monkeypatch.setattr("service.cli.lab.DOCUMENTS", 15)
    assert run_main(monkeypatch, "lab", "export", made, "--precision", "fp16", *judged) == 0
    assert "of the neighbours of fp32 on 15 of 20 documents of c.jsonl" in capsys.readouterr().err
    checkpoint = load_checkpoint(made)
    report = json.loads((made / QUALITY).read_text())["fp16"]
    assert (report["documents"], report["queries"], report["ndcg_loss"]) == (15, 2, 0.0)
    assert report["neighbours"] >= 0.98
    assert QUALITY in checkpoint.files
    assert checkpoint.fingerprint == before


@pytest.mark.slow
def test_an_export_that_loses_too_much_is_refused_and_changes_nothing(
    made: Path,
    judged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(path.name for path in made.rglob("*"))
    monkeypatch.setattr(encoder.export.quality, "MINIMUM_NEIGHBOURS", 1.01)
    assert run_main(monkeypatch, "lab", "export", made, "--precision", "fp16", *judged) == 2
    err = capsys.readouterr().err
    assert "error: fp16/block_encoder.onnx" in err
    assert "under 101%" in err
    assert sorted(path.name for path in made.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--qrels", "q.tsv"], "--qrels: needs --corpus"),
        (["--corpus", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    assert run_main(monkeypatch, "lab", "export", made, "--precision", "fp16", *options) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def write_recipe(folder: Path) -> Path:
    """Write a recipe of one layer a level."""
    path = folder / "recipe.toml"
    path.write_text(
        'name = "other"\narchitecture = "smith"\nblock_length = 16\nmax_blocks = 8\n'
        'long_sentence = "split"\nlanguage = "en"\ndimension = 32\n'
        "initialise_from_bert = true\nbegin_as_mean = false\n"
        "[model]\nsentence_layers = 1\ndocument_layers = 1\n"
    )
    return path


@pytest.mark.slow
def test_export_adds_a_precision(longmatch: Run, tiny_bert: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    made = tmp_path / "made"
    created = longmatch("lab", "create-checkpoint", recipe, "--bert", tiny_bert, "-o", made)
    assert created.status == 0
    assert "int8: cosine to the model at least" in created.err
    assert longmatch("lab", "export", made, "--precision", "fp32").status == 0
    manifest = json.loads((made / "manifest.json").read_text())
    assert {name.split("/")[0] for name in manifest["files"] if "/" in name} == {"int8", "fp32"}
