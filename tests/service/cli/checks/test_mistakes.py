"""What is wrong with a command is said before any graph is loaded and any document is read."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import service.cli.checks
from encoder.checkpoint import WEIGHTS
from service.cli.main import main, make_app
from service.cli.training import RECIPES
from tests.service.cli.checks.conftest import EVALUATE, FIT, RERANKER, TRAIN, error_of

# Each command line, and how its error begins; what is in braces is a path of `folder`.
REFUSED = [
    ("index sqlite:///missing.db --query select", "CORPUS: sqlite:///missing.db: there is no such"),
    ("index sqlite://text.txt --query select", "CORPUS: sqlite://text.txt: is not sqlite:///FILE"),
    ("index mysql://u:p@host/d --query select", "CORPUS: mysql://u@host/d: is not an address of"),
    ("index sqlite:///text.txt", "--query: is missing"),
    ("index sqlite:///text.txt --query select --follow-links", "--follow-links: is for a folder"),
    ("index text.txt --query select", "--query: text.txt: is not the address of a database"),
    ("index text.txt --report missing/x", "--report: "),
    ("index missing", "CORPUS: missing"),
    ("index pairs.toml", "CORPUS: pairs.toml"),
    ("index corpus.jsonl --data text.txt/data", "--data: "),
    ("index corpus.jsonl --data corpus.jsonl", "--data: "),
    ("index corpus.jsonl --checkpoint missing", "--checkpoint: missing"),
    ("index corpus.jsonl --checkpoint served --precision fp8", "--precision: served has no fp8"),
    ("index corpus.jsonl --adapt --checkpoint served --precision fp8", "--precision: "),
    ("index corpus.jsonl --adapt --checkpoint served --provider tpu", "--provider: "),
    ("match missing.txt --data data", "FILE: missing.txt"),
    ("match qrels.tsv --data data", "FILE: qrels.tsv: is not of a known kind"),
    ("match text.txt --data missing", "--data: missing: there is no data directory"),
    ("match text.txt --data data --filter {", "--filter: is not JSON"),
    ("families --data missing", "--data: missing: there is no data directory"),
    ("pairs missing --min-score 0 -o pairs.jsonl", "DATA: missing: there is no data directory"),
    ("pairs data --min-score 0 -o missing/pairs.jsonl", "--output: "),
    ("compare missing.txt text.txt", "LEFT: missing.txt"),
    ("compare text.txt qrels.tsv", "RIGHT: qrels.tsv"),
    ("compare id:a text.txt --data missing", "--data: missing"),
    ("compare text.txt text.txt --html missing/page.html", "--html: "),
    ("compare text.txt text.txt --checkpoint missing", "--checkpoint: "),
    ("embed missing -o out.npz", "CORPUS: missing"),
    ("embed corpus.jsonl -o missing/out.npz", "--output: "),
    ("embed corpus.jsonl -o folder", "--output: folder: is a folder"),
    ("embed corpus.jsonl -o out.npz --blocks corpus.jsonl", "--blocks: "),
    ("embed corpus.jsonl -o out.npz --adapt", "--adapt: corpus.jsonl has 2 documents"),
    ("embed corpus.jsonl -o out.npz --checkpoint served --precision fp8", "--precision: "),
    ("evaluate corpus.jsonl", "QRELS: give judgements, or --pairs"),
    ("evaluate missing qrels.tsv", "CORPUS: missing"),
    ("evaluate corpus.jsonl missing.tsv", "QRELS: missing.tsv"),
    ("evaluate corpus.jsonl corpus.jsonl", "QRELS: corpus.jsonl:1"),
    (f"{EVALUATE} --queries missing.jsonl", "--queries: missing.jsonl"),
    ("evaluate corpus.jsonl --pairs pairs.jsonl --queries corpus.jsonl", "--queries: needs"),
    ("evaluate corpus.jsonl --pairs missing.jsonl", "--pairs: missing.jsonl"),
    (f"{EVALUATE} --valid-pairs pairs.jsonl", "--valid-pairs: needs --pairs"),
    (f"{EVALUATE} --pairs pairs.jsonl --valid-pairs missing", "--valid-pairs: missing"),
    (f"{EVALUATE} --ids missing.txt", "--ids: missing.txt"),
    (f"{EVALUATE} --ids text.txt", "--ids: text.txt: none of these ids"),
    (f"{EVALUATE} --ids text.txt --split splits.tsv", "--ids: cannot be combined"),
    ("evaluate corpus.jsonl --pairs pairs.jsonl --ids text.txt", "--ids: needs judgements"),
    (f"{EVALUATE} --split missing.tsv", "--split: missing.tsv"),
    (f"{EVALUATE} --split splits.tsv --part best", "--part: 'best' is none of train, valid, test"),
    (f"{EVALUATE} --split splits.tsv --part valid", "--split: splits.tsv: no document"),
    (f"{EVALUATE} --vectors corpus.jsonl", "--vectors: corpus.jsonl"),
    (f"{EVALUATE} --vectors missing.npz", "--vectors: missing.npz"),
    (f"{EVALUATE} --vectors vectors.npz --queries corpus.jsonl", "--vectors: vectors.npz: 3 dim"),
    (f"{EVALUATE} --adapt", "--adapt: "),
    (f"{EVALUATE} --rerank 5", "--rerank: needs --reranker"),
    (f"{EVALUATE} --rerank 5 --reranker missing", "--reranker: missing"),
    (f"{EVALUATE} --baselines bm42", "--baselines: there is no 'bm42'"),
    (f"{EVALUATE} --baselines mean", "--baselines: mean needs --blocks"),
    (
        f"{EVALUATE} --baselines mean --blocks kept --queries corpus.jsonl",
        "--baselines: mean cannot be combined with --queries",
    ),
    (
        "evaluate corpus.jsonl --pairs pairs.jsonl --without-mentions",
        "--without-mentions: needs judgements",
    ),
    (
        f"{EVALUATE} --mask-mentions --vectors vectors.npz",
        "--mask-mentions: cannot be combined with --vectors",
    ),
    (f"{EVALUATE} --anchors all", "--anchors: is now --baselines"),
    (f"{EVALUATE} --blocks corpus.jsonl", "--blocks: "),
    (f"{EVALUATE} --reference lsa", "--reference: there is no 'lsa'"),
    (f"{EVALUATE} --plots corpus.jsonl", "--plots: "),
    (f"{EVALUATE} --precision fp8", "--precision: "),
    ("evaluate corpus.jsonl qrels.tsv --checkpoint missing", "--checkpoint: "),
    ("keys create Ana --scope all", "--scope: 'all' is none of read, write, admin"),
    ("keys revoke 01234567 --data data", "KEY_ID: "),
    ("calibrate --data missing", "--data: missing"),
    ("calibrate --data data --false-positive-rate 0.5", "--false-positive-rate: "),
    ("calibrate --data data --checkpoint missing", "--checkpoint: missing"),
    ("fit-calibration missing --pairs pairs.jsonl --corpus vectors.npz", "CHECKPOINT: missing"),
    (f"{FIT} --pairs pairs.jsonl", "--pairs: 2 --pairs for 1 --corpus"),
    (f"{FIT} --kind best", "--kind: 'best' is none of"),
    (f"{FIT} --kind hybrid", "--texts: lexical and hybrid kinds need"),
    (f"{FIT} --kind hybrid --texts missing", "--texts: missing"),
    (f"{FIT} --texts corpus.jsonl --texts corpus.jsonl", "--texts: 2 --texts for 1"),
    ("fit-calibration served --pairs pairs.jsonl --corpus missing", "--corpus: missing"),
    ("fit-calibration served --pairs pairs.jsonl --corpus missing.npz", "--corpus: missing.npz"),
    ("fit-calibration served --pairs missing --corpus vectors.npz", "--pairs: missing"),
    ("fit-calibration served --pairs few.jsonl --corpus corpus.jsonl", "--pairs: few.jsonl: 0"),
    ("train missing --corpus corpus.jsonl -o out --checkpoint weights", "RECIPE: "),
    ("train pairs.toml --corpus corpus.jsonl -o out --checkpoint served", "--checkpoint: served"),
    (
        "train pairs.toml --corpus corpus.jsonl -o out --checkpoint damaged",
        "--checkpoint: damaged/weights.safetensors is not the file that manifest.json names",
    ),
    (f"{TRAIN} --corpus missing -o out", "--corpus: missing"),
    (f"{TRAIN} -o out", "--corpus: is missing: name a corpus, or a --feedback"),
    (f"{TRAIN} --feedback missing -o out", "--feedback: missing: there is no data directory"),
    (f"{TRAIN} --feedback data -o out", "--feedback: data: the feedback has 0 queries"),
    (f"{RERANKER} -o out", "--corpus: is missing"),
    (f"{RERANKER} --feedback data -o out", "--feedback: data: the feedback has 0 queries"),
    (f"{TRAIN} --corpus corpus.jsonl --corpus corpus.jsonl -o out", "--corpus: a corpus is named"),
    (f"{TRAIN} --corpus corpus.jsonl -o out", "--corpus: the recipe learns from links"),
    (f"{TRAIN} --corpus corpus.jsonl --pairs missing -o out", "--pairs: missing"),
    (f"{TRAIN} --corpus corpus.jsonl --qrels missing -o out", "--qrels: missing"),
    (f"{TRAIN} --corpus corpus.jsonl --splits missing -o out", "--splits: missing"),
    (f"{TRAIN} --corpus beir -o out", "--corpus: beir/qrels.tsv"),
    (f"{TRAIN} --corpus corpus.jsonl -o folder", "--output: folder: exists already"),
    (f"{TRAIN} --corpus corpus.jsonl -o missing/out", "--output: "),
    (f"{TRAIN} --corpus corpus.jsonl -o out --precision fp8", "--precision: 'fp8' is none of"),
    (f"{TRAIN} --corpus corpus.jsonl --qrels qrels.tsv -o out --work text.txt", "--work: "),
    (f"{TRAIN} --corpus corpus.jsonl -o out --provider tpu", "--provider: "),
    (
        "train pairs.toml --corpus corpus.jsonl -o out --checkpoint weights",
        "--corpus: the recipe learns from pairs",
    ),
    ("train rerank.toml --corpus corpus.jsonl -o out --checkpoint weights", "RECIPE: "),
    (
        "train pairs.toml --corpus shared -o out --checkpoint weights",
        "--corpus: a leak: documents are in the pairs of two parts: 'a' is at shared/pairs.train",
    ),
    (
        "train pairs.toml --corpus crossing -o out --checkpoint weights --allow-shared-documents",
        "--corpus: a leak: pairs cross the splits: crossing/pairs.jsonl:1",
    ),
    ("train-reranker rerank.toml --start missing --corpus beir -o out", "--start: missing"),
    (
        "train-reranker rerank.toml --start bare --corpus links -o out",
        "--start: bare has no weights.safetensors",
    ),
    ("train-reranker rerank.toml --start reranker --corpus missing -o out", "--corpus: missing"),
    (
        "train-reranker rerank.toml --start reranker --corpus corpus.jsonl -o out",
        "--corpus: corpus.jsonl: a reranker learns from links",
    ),
    (f"{RERANKER} --corpus corpus.jsonl --qrels missing -o out", "--qrels: missing"),
    (f"{RERANKER} --corpus corpus.jsonl --pairs missing -o out", "--pairs: missing"),
    (f"{RERANKER} --corpus corpus.jsonl --splits missing -o out", "--splits: missing"),
    (
        f"{RERANKER} --corpus corpus.jsonl --pairs few.jsonl -o out",
        "--corpus: corpus.jsonl: there are no links, and no pair for training has the label 1",
    ),
    (
        f"{RERANKER} --corpus corpus.jsonl --pairs shared/pairs.train.jsonl -o out",
        "--corpus: corpus.jsonl: validation takes links, or pairs of both labels",
    ),
    (
        f"{RERANKER} --corpus shared -o out",
        "--corpus: a leak: documents are in the pairs of two parts",
    ),
    ("train-reranker rerank.toml --start reranker --corpus beir -o folder", "--output: folder"),
    (
        "train-reranker rerank.toml --start reranker --corpus folder -o out --precision fp16",
        "--precision: 'fp16' is none of int8, fp32",
    ),
    ("train-reranker links.toml --start reranker --corpus links -o out", "RECIPE: "),
    ("make-corpus words corpus.jsonl -o out", "KIND: 'words' is none of titles, manpages, html"),
    ("make-corpus titles missing -o out", "SOURCES: missing"),
    ("make-corpus titles corpus.jsonl pairs.toml -o out", "SOURCES: pairs.toml"),
    ("make-corpus manpages corpus.jsonl -o out", "SOURCES: corpus.jsonl: is neither a folder nor"),
    ("make-corpus html missing -o out", "SOURCES: missing"),
    ("make-corpus titles corpus.jsonl -o folder", "--output: folder: exists already"),
    ("make-corpus titles corpus.jsonl -o missing/out", "--output: "),
    (
        "make-corpus titles corpus.jsonl -o out --max-words 200",
        "--max-words: 200 is less than --min-words, 300",
    ),
    ("dataset imagenet folder -o out", "NAME: 'imagenet' is none of aan, gwikimatch, wiki65k"),
    ("dataset cnse missing -o out", "SOURCE: missing: there is no such file or folder"),
    ("dataset aan folder -o out", "SOURCE: folder: there is no folder papers_text"),
    ("dataset trec folder -o out", "--accept-licence: is needed for trec: NIST"),
    ("dataset trec folder -o out --accept-licence", "SOURCE: folder: there is no folder documents"),
    ("dataset cnse text.txt -o folder", "--output: folder: exists already"),
    ("create-checkpoint missing --bert bert -o out", "RECIPE: "),
    ("create-checkpoint links.toml --bert bert -o text.txt", "--output: "),
    ("create-checkpoint links.toml --bert bert -o out --precision fp8", "--precision: "),
    ("create-reranker missing --bert bert -o out", "RECIPE: "),
    ("create-reranker links.toml --bert bert -o text.txt/out", "--output: "),
    ("export missing --precision int8", "CHECKPOINT: missing"),
    ("export served --precision int8", "CHECKPOINT: served has no weights.safetensors"),
    ("export damaged --precision int8", "CHECKPOINT: damaged/weights.safetensors is not the file"),
    ("export weights --precision fp8", "--precision: 'fp8' is none of"),
    ("export weights --precision int8 --corpus missing", "--corpus: missing"),
    ("export weights --precision int8 --qrels qrels.tsv", "--qrels: needs --corpus"),
    ("export weights --precision int8 --corpus corpus.jsonl --ids text.txt", "--ids: needs"),
    (
        "export weights --precision int8 --corpus corpus.jsonl --qrels qrels.tsv --ids text.txt",
        "--ids: text.txt: none of these ids",
    ),
    ("serve --data corpus.jsonl", "--data: "),
    ("serve --data data --port {port}", "--port: 127.0.0.1:"),
    ("serve --data data --host no.such.host.invalid", "--host: no.such.host.invalid"),
    ("serve --data data --reranker missing", "--reranker: missing"),
    ("serve --data data --checkpoint missing", "--checkpoint: missing"),
    ("serve --data data --checkpoint served --precision fp8", "--precision: "),
    ("demo --data corpus.jsonl", "--data: "),
    ("demo --data data --port {port}", "--port: 127.0.0.1:"),
    ("snapshot missing -o out", "DATA: missing"),
    ("snapshot data -o folder", "--output: folder: exists already"),
    ("snapshot data -o missing/out", "--output: "),
    ("snapshot data -o out --checkpoint missing", "--checkpoint: missing"),
    ("restore missing data2", "BACKUP: missing"),
    ("restore folder text.txt", "DATA: "),
    ("doctor missing", "DATA: missing"),
    ("doctor data --checkpoint served --precision fp8", "--precision: "),
    ("tune missing", "DATA: missing: there is no data directory"),
    ("tune data", "DATA: data: the feedback has 0 queries with a relevant match and one that"),
    ("reencode missing --checkpoint served", "DATA: missing"),
    ("reencode data --checkpoint missing", "--checkpoint: missing"),
    ("reencode data --checkpoint served --precision fp8", "--precision: "),
    ("reencode data", "--checkpoint: name the new checkpoint"),
    ("reencode data --checkpoint served --dry-run", "--dry-run: is for --only-if-better"),
    ("reencode data --checkpoint served --json", "--json: is for --only-if-better"),
    (
        "reencode data --adapt --only-if-better",
        "--only-if-better: data: the feedback has 0",
    ),
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
    monkeypatch.setattr(service.cli.checks, "DEFAULT_CHECKPOINT", folder / "served")
    shipped = next(iter(sorted(RECIPES.glob("*.toml")))).stem
    found = error_of(f"train {shipped} --corpus corpus.jsonl -o out", monkeypatch, capsys)
    assert found.startswith("error: --checkpoint: ")
    for named in (WEIGHTS, "the repository", "the Docker image", "`longmatch create-checkpoint`"):
        assert named in found


@pytest.mark.usefixtures("untouchable")
@pytest.mark.parametrize(
    "line",
    [
        EVALUATE,
        "embed corpus.jsonl -o o.npz",
        "compare text.txt text.txt",
        "train pairs.toml --corpus shared -o out --checkpoint weights --allow-shared-documents",
        f"{RERANKER} --corpus shared -o out --allow-shared-documents",
    ],
)
def test_without_a_mistake_the_work_begins(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """So that the tests above prove something: what must not be touched is touched here."""
    monkeypatch.setattr(sys, "argv", ["longmatch", *line.split()])
    with pytest.raises(AssertionError, match="the work has begun"):
        main()


def test_every_command_is_in_the_table() -> None:
    app = make_app()
    commands: set[Any] = {
        one.name or one.callback.__name__.replace("_", "-")
        for one in app.registered_commands
        if one.callback is not None
    } | {group.name for group in app.registered_groups}
    assert commands == {line.split()[0] for line, _ in REFUSED}
