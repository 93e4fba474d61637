"""`longmatch lab train` as a user types it, on the tiny checkpoint and tiny corpora."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder.checkpoint import TERMS as TERMS_FILE
from encoder.checkpoint import load_checkpoint
from tests.tools.command import Run
from tests.tools.corpora import write_topics

RECIPE = """
name = "tiny"
steps = 6
documents = 12
chunk = 8
max_blocks = 8
validation_interval = 2
checkpoint_interval = 2
patience = 5
[optimiser]
document_rate = 1e-3
"""
UNLABELLED = """
[[objective]]
kind = "distil"
[[objective]]
kind = "halves"
hard_negatives = 1
[[objective]]
kind = "sp"
masked_blocks = 1
"""
LINKS = """
[[objective]]
kind = "links"
hard_negatives = 1
temperature = "learned"
[[objective]]
kind = "supcon"
"""
TERMS = """
[terms]
dimension = 4
buckets = 32
span = 4
"""
PAIRS = '[[objective]]\nkind = "pairs"\n'
WORDS_TOO = """
[[objective]]
kind = "wp"
[sentence_level]
trained = "last"
layers = 1
blocks = 2
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_topics(folder / "corpus.jsonl", 40)
    return folder


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], Path]:
    def write(objectives: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(RECIPE + objectives)
        return path

    return write


def add_splits_links_and_pairs(folder: Path) -> None:
    parts = ["train", "train", "train", "valid"]
    (folder / "splits.tsv").write_text("".join(f"d{n}\t{parts[n % 4]}\n" for n in range(40)))
    links = ((n, (n + step) % 40) for n in range(40) for step in (4, 8))
    (folder / "qrels.tsv").write_text("".join(f"d{a}\t0\td{b}\t1\n" for a, b in links))
    pairs = "".join(
        json.dumps({"source": f"d{n}", "target": f"d{(n + 4) % 40}", "label": n // 4 % 2}) + "\n"
        for n in range(40)
    )
    (folder / "pairs.jsonl").write_text(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("terms", ["", TERMS], ids=["blocks", "terms"])
def test_killed_and_resumed_gives_the_same_curve(
    longmatch: Run,
    start_longmatch: Callable[..., subprocess.Popen[bytes]],
    tiny_checkpoint: Path,
    corpus: Path,
    recipe: Callable[[str], Path],
    tmp_path: Path,
    terms: str,
) -> None:
    file = recipe(UNLABELLED + terms)
    file.write_text(file.read_text().replace("steps = 6", "steps = 60"))
    exported = ["--precision", "fp32"]
    whole = longmatch("lab", "train", file, "--corpus", corpus, "-o", tmp_path / "whole", *exported)
    assert whole.status == 0, whole.err

    arguments = ["lab", "train", file, "--corpus", corpus, "-o", tmp_path / "killed", *exported]
    job = start_longmatch(*arguments, checkpoint=tiny_checkpoint)
    while not (tmp_path / "killed.work" / "run" / "state.safetensors").exists():
        assert job.poll() is None
        time.sleep(0.005)
    job.kill()
    job.wait()
    assert not (tmp_path / "killed").exists()
    again = longmatch(*arguments)
    assert again.status == 0, again.err
    assert "training: resuming after" in again.err
    curves = [tmp_path / name / "training" / "curve.jsonl" for name in ("whole", "killed")]
    assert curves[0].read_text() == curves[1].read_text()
    fingerprints = {load_checkpoint(tmp_path / name).fingerprint for name in ("whole", "killed")}
    assert len(fingerprints) == 1
    assert fingerprints != {load_checkpoint(tiny_checkpoint).fingerprint}
    trained = load_checkpoint(tmp_path / "killed")
    assert trained.dimension == (44 if terms else 32)
    assert (TERMS_FILE in trained.files) == bool(terms)


@pytest.mark.parametrize(
    ("objectives", "figure"),
    [
        (LINKS, "nDCG@10"),
        pytest.param(PAIRS, "nDCG@10", marks=pytest.mark.slow),
        pytest.param(WORDS_TOO + TERMS + LINKS, "nDCG@10", marks=pytest.mark.slow),
    ],
    ids=["links", "pairs", "words"],
)
def test_train_then_serve(
    longmatch: Run,
    corpus: Path,
    recipe: Callable[[str], Path],
    tmp_path: Path,
    objectives: str,
    figure: str,
) -> None:
    add_splits_links_and_pairs(corpus)
    arguments = ("lab", "train", recipe(objectives), "--corpus", corpus, "-o", tmp_path / "t")
    answer = longmatch(*arguments, "--precision", "fp32")
    assert answer.status == 0, answer.err
    assert "30 train, 10 valid" in answer.err
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert report["figure"].startswith(figure)
    assert report["best"] >= report["before"]
    assert (report["steps"], report["stopped"]) == (6, "steps")
    curve = (tmp_path / "t" / "training" / "curve.jsonl").read_text().splitlines()
    assert json.loads(curve[-1])["step"] == 6
    assert load_checkpoint(tmp_path / "t").dimension == (36 if TERMS in objectives else 32)
    trained_blocks = "sentence_level" in objectives
    assert (report["search"] is None) == trained_blocks
    if report["search"]:
        assert not report["search"]["fitted"]  # by ten queries at most
        assert 0 < report["search"]["after"]["hybrid"] <= 1
        assert "Search, nDCG@10 of" in answer.err
    vectors = tmp_path / "v.npz"
    embedded = longmatch("embed", corpus, "-o", vectors, "--checkpoint", tmp_path / "t")
    assert embedded.status == 0, embedded.err


@pytest.mark.slow
def test_own_pairs_alone(
    longmatch: Run,
    corpus: Path,
    recipe: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    pairs = tmp_path / "mine.jsonl"
    rows = ((a, b) for a in range(40) for b in range(a))
    pairs.write_text(
        "".join(
            json.dumps({"source": f"d{a}", "target": f"d{b}", "label": (a + b) % 2}) + "\n"
            for a, b in rows
        )
    )
    answer = longmatch(
        "lab", "train", recipe(PAIRS), "--corpus", corpus, "--pairs", pairs, "-o", tmp_path / "t",
        "--steps", 2, "--precision", "fp32",
    )  # fmt: skip
    assert answer.status == 0, answer.err
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert report["figure"].startswith("AUC")
    assert report["steps"] == 2


@pytest.mark.slow
def test_pairs_whose_parts_share_documents(
    longmatch: Run, corpus: Path, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    rows = [(a, b) for a in range(12) for b in range(a)]
    for part, some in (("train", rows[::2]), ("valid", rows[1::2])):
        pairs = ({"source": f"d{a}", "target": f"d{b}", "label": (a * b) % 2} for a, b in some)
        (corpus / f"pairs.{part}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    run = ("lab", "train", recipe(PAIRS), "--corpus", corpus, "-o", tmp_path / "t", "--steps", 2)
    run += ("--precision", "fp32")
    refused = longmatch(*run)
    assert refused.status == 2
    assert "--allow-shared-documents trains nevertheless" in refused.err
    assert not (tmp_path / "t.work").exists()
    answer = longmatch(*run, "--allow-shared-documents")
    assert answer.status == 0, answer.err
    assert "training sees 12 held-out texts: validation is optimistic" in answer.err
    assert "(optimistic: training may have seen the documents of validation)" in answer.err
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert report["shared_documents"]
    facts = report["corpora"][0]
    assert facts["texts_seen"] == 12
    assert sum(map(sum, facts["pairs"].values())) == len(rows)
    assert facts["pairs_unused"] == 0


@pytest.mark.slow
def test_the_time_is_up(
    longmatch: Run,
    corpus: Path,
    recipe: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    arguments = ("lab", "train", recipe(UNLABELLED), "--corpus", corpus, "-o", tmp_path / "t")
    arguments += ("--precision", "fp32")
    assert longmatch(*arguments, "--minutes", 0).status == 0
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert (report["stopped"], report["steps"]) == ("time", 1)
    again = longmatch(*arguments)
    assert again.status == 2
    assert "exists already" in again.err


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (LINKS, "learns from links"),
        (PAIRS, "learns from pairs"),
        (
            '[[objective]]\nkind = "distil"\nteacher = "magic"\n',
            "teacher: must be 'lexical', not 'magic'",
        ),
        ('[[objective]]\nkind = "magic"\n', "kind must be one of"),
    ],
)
def test_what_cannot_be_followed_is_said(
    longmatch: Run,
    corpus: Path,
    recipe: Callable[[str], Path],
    tmp_path: Path,
    objectives: str,
    message: str,
) -> None:
    answer = longmatch("lab", "train", recipe(objectives), "--corpus", corpus, "-o", tmp_path / "t")
    assert answer.status == 2
    assert message in answer.err
    assert not (tmp_path / "t").exists()
