"""Both benchmarks from the first part to their tables, on a CPU and at small sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.gpu import encoding, index
from benchmarks.gpu.encoding_table import BENCHMARK
from benchmarks.table import TABLES
from encoder.checkpoint import load_checkpoint


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    lines = [
        json.dumps({"id": f"d{n}", "text": f"The quay of number {n} is old. Water {n}. " * 4})
        for n in range(8)
    ]
    path.write_text("\n".join(lines))
    return path


def run(module: object, *arguments: object) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(module.main)  # type: ignore[attr-defined]
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", ["tiny_checkpoint", "tiny_terms"])
def test_encoding(name: str, request: pytest.FixtureRequest, corpus: Path, tmp_path: Path) -> None:
    directory: Path = request.getfixturevalue(name)
    arguments = [
        *("--checkpoint", directory, "--device", "cpu", "--precision", "fp16"),
        *("--work", tmp_path / "work", "--batch-tokens", 64, "--batch-tokens", 128),
        *("--tokens", 64, "--documents", 4, "--rounds", 2, "--corpus", corpus, "--texts", 8),
        *("--peak-tflops", 1),
    ]
    output = run(encoding, *arguments)
    assert "share of peak" in output
    assert "a rehearsal" in output
    parts = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "work").glob("*.json")}
    called = load_checkpoint(directory).name
    assert set(parts) == {
        f"{called}-{part}"
        for part in ("throughput-64", "throughput-128", "steps", "text", "parity")
    }
    assert parts[f"{called}-parity"]["block_difference"] < 2e-3
    assert parts[f"{called}-parity"]["same_nearest"] == 1.0
    assert parts[f"{called}-throughput-64"]["tokens_of_a_document"] == 64
    steps = parts[f"{called}-steps"]["seconds"]
    assert {"tokenising", "packing", "upload", "compute", "download"} <= set(steps)
    again = run(encoding, *arguments, "--minutes", 0)  # every part is there
    assert again.count("done before") == 5


def test_encoding_stops_and_goes_on(tiny_checkpoint: Path, corpus: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(encoding.main)
    given = ["--checkpoint", tiny_checkpoint, "--work", tmp_path, "--device", "cpu"]
    given += ["--corpus", corpus, "--minutes", 0]
    done = CliRunner().invoke(app, [str(one) for one in given])
    assert done.exit_code == os.EX_TEMPFAIL


def test_the_index(tmp_path: Path) -> None:
    output = run(
        index, "--size", 5_000, "--device", "cpu", "--rounds", 1, "--work", tmp_path / "work"
    )
    assert "a rehearsal" in output
    [kept] = (tmp_path / "work").glob("*.json")
    assert json.loads(kept.read_text())["same_as_brute_force"] == 1.0


def test_the_index_on_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(index.main)
    done = CliRunner().invoke(app, ["--work", str(tmp_path)])
    assert done.exit_code == 2
    assert "no GPU" in done.output


def test_encoding_takes_no_faiss() -> None:
    """It is carried to machines without a network, and FAISS for a GPU is large."""
    code = "import sys, benchmarks.gpu.encoding; print('faiss' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_both_have_a_table() -> None:
    assert {BENCHMARK, index.BENCHMARK} <= set(TABLES)
