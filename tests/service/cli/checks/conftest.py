"""Files that command lines name, in a process in which no work may begin."""

import json
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from encoder.checkpoint import WEIGHTS
from encoder.onnx_encoder import OnnxEncoder
from encoder.reranker.onnx_reranker import OnnxReranker
from index.document import Document
from index.embed import EmbeddedCorpus, write_embedded_corpus
from service.cli.main import main
from tests.tools.index_fixtures import aligned_of

RECIPE = """
name = "tiny"
steps = 2
documents = 2
[[objective]]
kind = "{kind}"
"""
PAIRS = [{"source": "a", "target": str(n), "label": n % 2} for n in range(40)]
TRAIN = "lab train links.toml --checkpoint weights"
RERANKER = "lab train rerank.toml --checkpoint reranker"
EVALUATE = "evaluate corpus.jsonl qrels.tsv --checkpoint served"
FIT = "lab fit-calibration served --pairs pairs.jsonl --corpus vectors.npz"


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, tiny_reranker: Path
) -> Path:
    """Files that a command line may name; `weights` can be trained, `served` cannot."""
    root = tmp_path_factory.mktemp("files")
    corpus = "".join(json.dumps({"id": name, "text": "A river."}) + "\n" for name in "ab")
    for name in ("folder", "data", "beir", "links", "shared", "crossing"):
        (root / name).mkdir()
    for name in ("", "beir", "links", "shared", "crossing"):
        (root / name / "corpus.jsonl").write_text(corpus)
    both = "".join(json.dumps(one) + "\n" for one in PAIRS[:2])
    for name in ("shared/pairs.train.jsonl", "crossing/pairs.jsonl"):
        (root / name).write_text(both.replace('"target": "0"', '"target": "b"'))
    others = "".join(json.dumps(one) + "\n" for one in PAIRS[2:4])
    (root / "shared" / "pairs.valid.jsonl").write_text(others)
    (root / "crossing" / "splits.tsv").write_text("a\ttrain\nb\ttest\n")
    (root / "data" / "store.sqlite3").write_bytes(b"not looked at")
    (root / "qrels.tsv").write_text("a\t0\tb\t1\n")
    (root / "links" / "qrels.tsv").write_text("a\t0\tb\t1\n")
    (root / "beir" / "qrels.tsv").write_text("a b\n")
    (root / "splits.tsv").write_text("a\ttrain\nb\ttest\n")
    (root / "few.tsv").write_text("a\ttrain\n")
    (root / "text.txt").write_text("A river.")
    (root / "table.parquet").write_bytes(b"not looked at")
    (root / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in PAIRS))
    (root / "few.jsonl").write_text(json.dumps(PAIRS[0]) + "\n")
    one = np.ones(2, dtype=np.int64)
    vectors = np.eye(2, 3, dtype=np.float32)
    embedded = EmbeddedCorpus(("a", "b"), vectors, one, one, 0, aligned_of(vectors))
    write_embedded_corpus(root / "vectors.npz", embedded)
    for kind in ("links", "pairs", "rerank"):
        (root / f"{kind}.toml").write_text(RECIPE.format(kind=kind))
    shutil.copytree(tiny_checkpoint, root / "weights")
    shutil.copytree(tiny_checkpoint, root / "served")
    (root / "served" / WEIGHTS).unlink()
    shutil.copytree(tiny_checkpoint, root / "damaged")
    with (root / "damaged" / WEIGHTS).open("r+b") as file:
        file.truncate(100)
    shutil.copytree(tiny_reranker, root / "reranker")
    shutil.copytree(tiny_reranker, root / "bare")
    (root / "bare" / WEIGHTS).unlink()
    return root


@pytest.fixture
def untouchable(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Fail as soon as a document is read or a graph is loaded."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the work has begun")

    for kind in (Document, OnnxEncoder, OnnxReranker):
        monkeypatch.setattr(kind, "__init__", fail)
    monkeypatch.chdir(folder)
    for name in ("LONGMATCH_DATA", "LONGMATCH_CHECKPOINT", "LONGMATCH_RERANKER"):
        monkeypatch.delenv(name, raising=False)


def error_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that fails with exit status 2; return its one line of error."""
    monkeypatch.setattr(sys, "argv", ["longmatch", *line.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    (error,) = capsys.readouterr().err.splitlines()
    return error
