"""What is wrong with a command is said before any graph is loaded and any document is read."""

import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import NoReturn

import pytest
import typer
from packaging.requirements import Requirement

import encoder.opening
from encoder.checkpoint import WEIGHTS
from encoder.onnx_encoder import OnnxEncoder
from encoder.reranker.onnx_reranker import OnnxReranker
from index.document import Document
from index.optional_dependencies import EXTRAS
from service.cli.main import main, make_app
from tests.kit.corpora import json_lines
from training.recipe import RECIPES

RECIPE = """
name = "tiny"
steps = 2
documents = 2
[[objective]]
kind = "{kind}"
"""
PAIRS = [{"source": "a", "target": str(n), "label": n % 2} for n in range(40)]
TRAIN = "lab train links.toml -o out --checkpoint weights"
OF_PAIRS = "lab train pairs.toml -o out --checkpoint"
RERANK = "lab train rerank.toml -o out"
RERANKER = f"{RERANK} --checkpoint reranker"
EVALUATE = "evaluate corpus.jsonl qrels.tsv --encoder served"
FIT = "lab fit-calibration served --data folder --blocks kept"


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path, tiny_reranker: Path
) -> Path:
    """Files that a command line may name; `weights` can be trained, `served` cannot."""
    root = tmp_path_factory.mktemp("files")
    corpus = json_lines({"id": name, "text": "A river."} for name in "ab")
    for name in ("folder", "data", "beir", "links", "shared"):
        (root / name).mkdir()
    for name in ("", "beir", "links", "shared"):
        (root / name / "corpus.jsonl").write_text(corpus)
    both = json_lines(PAIRS[:2])
    shared = root / "shared"
    (shared / "pairs.train.jsonl").write_text(both.replace('"target": "0"', '"target": "b"'))
    (shared / "pairs.valid.jsonl").write_text(json_lines(PAIRS[2:4]))
    contents = {
        "data/store.sqlite3": "not looked at", "table.parquet": "not looked at",
        "text.txt": "A river.", "qrels.tsv": "a\t0\tb\t1\n", "links/qrels.tsv": "a\t0\tb\t1\n",
        "beir/qrels.tsv": "a b\n", "splits.tsv": "a\ttrain\nb\ttest\n", "few.tsv": "a\ttrain\n",
        "pairs.jsonl": json_lines(PAIRS),
    }  # fmt: skip
    for name, content in contents.items():
        (root / name).write_text(content)
    for kind in ("links", "pairs", "rerank"):
        (root / f"{kind}.toml").write_text(RECIPE.format(kind=kind))
    for name in ("weights", "served", "damaged"):
        shutil.copytree(tiny_checkpoint, root / name)
    for name in ("reranker", "bare"):
        shutil.copytree(tiny_reranker, root / name)
    (root / "served" / WEIGHTS).unlink()
    (root / "bare" / WEIGHTS).unlink()
    with (root / "damaged" / WEIGHTS).open("r+b") as file:
        file.truncate(100)
    return root


@pytest.fixture
def untouchable(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Fail as soon as a document is read or a graph is loaded."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the work has begun")

    for kind in (Document, OnnxEncoder, OnnxReranker):
        monkeypatch.setattr(kind, "__init__", fail)
    monkeypatch.chdir(folder)
    for name in ("LONGMATCH_DATA", "LONGMATCH_ENCODER", "LONGMATCH_RERANKER"):
        monkeypatch.delenv(name, raising=False)


def error_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that fails with exit status 2; return its one line of error."""
    monkeypatch.setattr(sys, "argv", ["longmatch", *line.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    (error,) = capsys.readouterr().err.splitlines()
    return error


# Each command line, and how its error begins; what is in braces is a path of `folder`.
REFUSED = [
    ("index sqlite:///missing.db --query select", "CORPUS: sqlite:///missing.db: there is no such"),
    ("index sqlite://text.txt --query select", "CORPUS: sqlite://text.txt: is not sqlite:///FILE"),
    ("index mysql://u:p@host/d --query select", "CORPUS: mysql://u@host/d: is not an address of"),
    ("index sqlite:///text.txt", "--query: is missing"),
    ("index sqlite:///text.txt --query select --follow-links", "--follow-links: is for a folder"),
    ("index text.txt --query select", "--query: text.txt: is not the address of a database"),
    ("index missing", "CORPUS: missing"),
    ("index pairs.toml", "CORPUS: pairs.toml"),
    ("index corpus.jsonl --data corpus.jsonl", "--data: "),
    ("index text.txt --watch", "--watch: is for a folder"),
    ("index folder --watch --on ray", "--watch: is for a folder"),
    ("index folder --watch --follow-links", "--watch: is for a folder"),
    ("index folder --watch --data folder", "--data: folder: the folder to watch lies in it"),
    ("delete a --data folder", "--data: folder: there is no data directory here"),
    ("delete --data data", "ID: name documents, or select them by --filter"),
    ("delete a --filter {} --data data", "ID: name documents, or select them by --filter"),
    ("delete --filter {} --data data", "--filter: "),
    ("index corpus.jsonl --encoder missing", "--encoder: missing"),
    ("match missing.txt --data data", "FILE: missing.txt"),
    ("match qrels.tsv --data data", "FILE: qrels.tsv: is not of a known kind"),
    ("match text.txt --data missing", "--data: missing: there is no data directory"),
    ("match text.txt --data data --filter {", "--filter: is not JSON"),
    (f"match text.txt --data data --filter {'[' * 9_000}", "--filter: is not JSON"),
    ('match text.txt --data data --filter {"and":[{"equal":[]}]}', "--filter: #/and/0/equal"),
    ("pairs data --min-score 0 -o missing/pairs.jsonl", "--output: "),
    ("families --data missing", "--data: missing: there is no data directory"),
    ("compare missing.txt text.txt", "LEFT: missing.txt"),
    ("compare text.txt qrels.tsv", "RIGHT: qrels.tsv"),
    ("compare id:a text.txt --data missing", "--data: missing"),
    ("compare text.txt text.txt --html missing/page.html", "--html: "),
    ("lab embed corpus.jsonl -o missing/out.npz", "--output: "),
    ("lab embed corpus.jsonl -o folder", "--output: folder: is a folder"),
    ("evaluate corpus.jsonl", "QRELS: give judgements, or --pairs"),
    ("evaluate corpus.jsonl missing.tsv", "QRELS: missing.tsv"),
    ("evaluate corpus.jsonl corpus.jsonl", "QRELS: corpus.jsonl:1"),
    (f"{EVALUATE} --queries missing.jsonl", "--queries: missing.jsonl"),
    ("evaluate corpus.jsonl --pairs pairs.jsonl --queries corpus.jsonl", "--queries: needs"),
    (f"{EVALUATE} --valid-pairs pairs.jsonl", "--valid-pairs: needs --pairs"),
    (f"{EVALUATE} --pairs pairs.jsonl --valid-pairs missing", "--valid-pairs: missing"),
    (f"{EVALUATE} --split missing.tsv", "--split: missing.tsv"),
    (f"{EVALUATE} --rerank 5", "--rerank: needs --reranker"),
    (f"{EVALUATE} --rerank 5 --reranker missing", "--reranker: missing"),
    (f"{EVALUATE} --baselines bm42", "--baselines: there is no 'bm42'"),
    (f"{EVALUATE} --baselines mean", "--baselines: mean needs --blocks"),
    (
        f"{EVALUATE} --baselines mean --blocks kept --queries corpus.jsonl",
        "--baselines: mean cannot be combined with --queries",
    ),
    ("keys create Ana --scope all", "--scope: 'all' is none of read, write, admin"),
    ("keys revoke 01234567 --data data", "KEY_ID: "),
    (FIT.replace("served", "missing"), "CHECKPOINT: missing"),
    (FIT, "--data: folder: holds 0 corpora"),
    (FIT.replace("folder", "missing"), "--data: missing: holds 0 corpora"),
    ("lab train missing --corpus corpus.jsonl -o out --checkpoint weights", "RECIPE: "),
    (
        f"{OF_PAIRS} damaged --corpus corpus.jsonl",
        "--checkpoint: damaged/weights.safetensors is not the file that manifest.json names",
    ),
    (TRAIN, "--corpus: is missing: name a corpus, or a --feedback"),
    (f"{TRAIN} --feedback data", "--feedback: data: the feedback has 0 queries"),
    (f"{TRAIN} --corpus corpus.jsonl --corpus corpus.jsonl", "--corpus: a corpus is named"),
    (f"{TRAIN} --corpus corpus.jsonl", "--corpus: the recipe learns from links"),
    (f"{TRAIN} --corpus corpus.jsonl --pairs missing", "--pairs: missing"),
    (f"{TRAIN} --corpus corpus.jsonl --qrels missing", "--qrels: missing"),
    (f"{TRAIN} --corpus beir", "--corpus: beir/qrels.tsv"),
    (f"{TRAIN} --corpus corpus.jsonl -o folder", "--output: folder: exists already"),
    (f"{TRAIN} --corpus corpus.jsonl --precision fp8", "--precision: 'fp8' is none of"),
    (f"{TRAIN} --corpus corpus.jsonl --qrels qrels.tsv --work text.txt", "--work: "),
    (f"{OF_PAIRS} weights --corpus corpus.jsonl", "--corpus: the recipe learns from pairs"),
    (
        f"{RERANK} --corpus corpus.jsonl --checkpoint weights",
        "--checkpoint: weights is not the checkpoint of a reranker",
    ),
    (
        f"{OF_PAIRS} weights --corpus shared",
        "--corpus: a leak: documents are in the pairs of two parts: 'a' is at shared/pairs.train",
    ),
    (f"{RERANK} --checkpoint missing --corpus beir", "--checkpoint: missing"),
    (f"{RERANK} --checkpoint bare --corpus links", "--checkpoint: bare has no weights.safetensors"),
    (f"{RERANKER} --corpus shared", "--corpus: a leak: documents are in the pairs of two parts"),
    (f"{RERANKER} --corpus folder --precision fp16", "--precision: 'fp16' is none of int8, fp32"),
    (
        "lab dataset imagenet folder -o out",
        "NAME: 'imagenet' is none of aan, wiki65k, cnse, cnss, pan",
    ),
    ("lab dataset cnse missing -o out", "SOURCE: missing: there is no such file or folder"),
    ("lab dataset aan folder -o out", "SOURCE: folder: there is no folder papers_text"),
    ("lab dataset trec folder -o out", "--accept-licence: is needed for trec: NIST"),
    ("lab create-checkpoint missing --bert bert -o out", "RECIPE: "),
    ("lab create-checkpoint links.toml --bert bert -o text.txt", "--output: "),
    ("lab create-checkpoint links.toml --bert bert -o out --precision fp8", "--precision: "),
    ("lab export missing --precision int8", "CHECKPOINT: missing"),
    ("lab export served --precision int8", "CHECKPOINT: served has no weights.safetensors"),
    ("lab export weights --precision fp8", "--precision: 'fp8' is none of"),
    ("serve --data corpus.jsonl", "--data: "),
    ("serve --data data --port {port}", "--port: 127.0.0.1:"),
    ("serve --data data --host no.such.host.invalid", "--host: no.such.host.invalid"),
    ("serve --data data --reranker missing", "--reranker: missing"),
    ("demo --port {port}", "--port: 127.0.0.1:"),
    ("mcp --url localhost:8000", "--url: localhost:8000: must begin with http://"),
    ("mcp --port {port}", "--port: 127.0.0.1:"),
    ("snapshot missing -o out", "DATA: missing"),
    ("snapshot data -o folder", "--output: folder: exists already"),
    ("snapshot data -o missing/out", "--output: "),
    ("restore missing data2", "BACKUP: missing"),
    ("restore folder text.txt", "DATA: "),
    ("doctor missing", "DATA: missing"),
    ("tune missing", "DATA: missing: there is no data directory"),
    ("tune data", "DATA: data: the feedback has 0 queries with a relevant match and one that"),
    ("reencode missing --encoder served", "DATA: missing"),
    ("reencode data", "--encoder: name the new encoder"),
    ("reencode data --encoder served --dry-run", "--dry-run: is for --only-if-better"),
    ("reencode data --encoder served --json", "--json: is for --only-if-better"),
    (
        "reencode data --reading-share 0.5 --only-if-better",
        "--only-if-better: data: the feedback has 0",
    ),
    ("index corpus.jsonl --actors 2", "--actors: is for --on ray"),
    ("evaluate corpus.jsonl --pairs pairs.jsonl --split splits.tsv", "--split: needs judgements"),
    (f"{RERANK} --corpus links", "--checkpoint: is missing: the reranker to start from"),
    (f"{EVALUATE} --split few.tsv", "--split: few.tsv: no document is in 'test'"),
    ("lab embed missing -o out.npz", "CORPUS: missing"),
    ("index corpus.jsonl --ray-address auto", "--ray-address: is for --on ray"),
    ("keys create a\x00b", "NAME: a name has 1 to 64 printable characters"),
    ("keys create Ana --collection A", "--collection: 'A' is no name"),
    ("lab train links.toml --checkpoint reranker --corpus links -o out", "--checkpoint: reranker"),
]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.usefixtures("untouchable")
@pytest.mark.parametrize(("line", "error"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_command_fails_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    taken_port: int,
    line: str,
    error: str,
) -> None:
    before = sorted(folder.rglob("*"))
    found = error_of(line.replace("{port}", str(taken_port)), monkeypatch, capsys)
    assert found.startswith(f"error: {error}")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.usefixtures("untouchable")
def test_without_weights_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr(encoder.opening, "DEFAULT_CHECKPOINT", folder / "served")
    shipped = min(RECIPES.glob("*.toml")).stem
    found = error_of(f"lab train {shipped} --corpus corpus.jsonl -o out", monkeypatch, capsys)
    assert found.startswith("error: --checkpoint: ")
    ways = ("the repository", "the Docker image", "`longmatch lab create-checkpoint`")
    for named in (WEIGHTS, *ways):
        assert named in found


@pytest.mark.usefixtures("untouchable")
@pytest.mark.parametrize(
    "line",
    [
        *(EVALUATE, "lab embed corpus.jsonl -o o.npz", "compare text.txt text.txt"),
        f"{OF_PAIRS} weights --corpus shared --allow-shared-documents",
        f"{RERANKER} --corpus shared --allow-shared-documents",
    ],
)
def test_without_a_mistake_the_work_begins(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """So that the tests above prove something: what must not be touched is touched here."""
    monkeypatch.setattr(sys, "argv", ["longmatch", *line.split()])
    with pytest.raises(AssertionError, match="the work has begun"):
        main()


def test_every_command_is_in_the_table() -> None:
    table = {tuple(line.split()[:2]) for line, _ in REFUSED}
    commands = dict(typer.main.get_command(make_app()).commands)  # type: ignore[attr-defined]
    in_lab = commands.pop("lab").commands
    assert commands.keys() - {"settings"} == {line[0] for line in table} - {"lab"}
    assert in_lab.keys() == {line[1] for line in table if line[0] == "lab"}


# Each command line, and a module without which it cannot end.
EXTRAS_NEEDED = [
    ("index table.parquet", "pyarrow", "Parquet"),
    ("index postgresql://host/d --query select", "psycopg", "PostgreSQL"),
    *((EVALUATE, "scipy", "evaluate"), (FIT, "sklearn", "lab fit-calibration")),
    ("tune data", "ir_measures", "tune"),
    (
        "reencode data --reading-share 0.5 --only-if-better",
        "ir_measures",
        "reencode --only-if-better",
    ),
    (f"{TRAIN} --corpus links", "torch", "lab train"),
    (f"{RERANKER} --corpus links", "torch", "lab train"),
    ("lab create-checkpoint links.toml --bert bert -o out", "torch", "lab create-checkpoint"),
    ("lab export weights --precision int8", "onnxscript", "lab export"),
]


@pytest.mark.usefixtures("untouchable")
@pytest.mark.parametrize(("line", "module", "purpose"), EXTRAS_NEEDED)
def test_a_missing_extra_is_named_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    module: str,
    purpose: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = error_of(line, monkeypatch, capsys)
    assert found.startswith(f"error: {purpose} needs the extra ")
    assert "pip install 'longmatch[" in found
    assert f"(missing: {module})" in found


def test_the_table_of_extras_is_that_of_the_distribution() -> None:
    """Every distribution of an extra is listed by the name under which it is imported."""
    imported = {
        "scikit-learn": "sklearn",
        "ir-measures": "ir_measures",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    }
    required = [Requirement(line) for line in distribution("longmatch").requires or ()]
    for extra, modules in EXTRAS.items():
        names = {
            imported.get(requirement.name, requirement.name.replace("-", "_"))
            for requirement in required
            if requirement.marker and requirement.marker.evaluate({"extra": extra})
        }
        assert names == set(modules)
