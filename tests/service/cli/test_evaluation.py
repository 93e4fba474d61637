"""`longmatch evaluate` with judgements, baselines, pairs, splits and pictures."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.embed import EmbeddedCorpus, write_embedded_corpus
from index.search.fusion import LinearFusion, write_fusion
from service.cli.main import main
from tests.tools import command
from tests.tools.index_fixtures import aligned_of, unit_vectors

OWN = ["vector", "semantic", "lexical", "unaligned hybrid", "hybrid"]


def test_evaluate(longmatch: command.Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    texts = {f"{topic}{n}": f"{topic} {n}. " * 20 for topic in ("river", "music") for n in range(3)}
    file.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in texts.items()))
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("river0\t0\triver1\t1\nriver0\t0\triver2\t1\nmusic0\t0\tmusic1\t1\n")
    answer = longmatch("evaluate", file, qrels, "--json")
    assert answer.status == 0
    report = json.loads(answer.out)
    assert report["queries"] == 2
    assert 0 <= report["nDCG@10"] <= 1
    assert report["recall@10"] == 1.0  # ten is more than there are
    assert report["index_against_exact_search"]["recall_at_10"] == 1.0
    assert report["precision"] == "int8"

    (tmp_path / "split").write_text("music0\ttest\nriver0\ttrain\n")
    split = ("--split", tmp_path / "split")
    only = json.loads(longmatch("evaluate", file, qrels, *split, "--json").out)
    assert only["queries"] == 1

    vectors = tmp_path / "v.npz"
    longmatch("embed", file, "-o", vectors, "--blocks", tmp_path / "kept")
    again = json.loads(longmatch("evaluate", file, qrels, "--vectors", vectors, "--json").out)
    assert again == report

    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "river 0. river 0."}\n')
    qrels.write_text("query-id\tcorpus-id\tscore\nq\triver0\t1\n")
    asked = json.loads(longmatch("evaluate", file, qrels, "--queries", queries, "--json").out)
    assert (asked["queries"], asked["documents"]) == (1, 6)
    assert "nDCG@10" in longmatch("evaluate", file, qrels, "--queries", queries).out


def test_modes_are_measured_beside_the_vectors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    topics = ("river", "music", "stone")
    texts = {f"{topic}{n}": f"{topic} number w{n}. " * 20 for topic in topics for n in range(3)}
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in texts.items()))
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("".join(f"{t}0\t0\t{t}{n}\t1\n" for t in topics for n in (1, 2)))
    pairs = tmp_path / "pairs.jsonl"
    labelled = [("river0", "river1", 1), ("music0", "music2", 1), ("river0", "music1", 0)]
    pairs.write_text(
        "".join(json.dumps({"source": s, "target": t, "label": n}) + "\n" for s, t, n in labelled)
    )
    arguments = ["evaluate", str(corpus), str(qrels), "--pairs", str(pairs), "--json"]
    arguments += ["--checkpoint", str(tiny_checkpoint)]
    arguments += ["--mode", "hybrid"]
    monkeypatch.setattr(sys, "argv", ["longmatch", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    report = json.loads(capsys.readouterr().out)
    for question in ("retrieval", "pairs"):
        assert list(report[question]["systems"]) == OWN
    lexical = report["retrieval"]["systems"]["lexical"]
    assert json.dumps(lexical).count("1.0") > 0  # words alone put every relevant document first


Run = Callable[..., tuple[int, str, str]]
TOPICS = {
    "river": "The river carries water through the valley.",
    "music": "The orchestra plays a violin concert.",
    "stone": "Granite and basalt form under great heat.",
}


@pytest.fixture
def evaluate(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Path,
    data: Path,
) -> Run:
    monkeypatch.setenv("LONGMATCH_CHECKPOINT", str(tiny_checkpoint))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(data)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["longmatch", "evaluate", "corpus.jsonl", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        caught = capsys.readouterr()
        return int(stopped.value.code or 0), caught.out, caught.err

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three topics of four documents each; a fifth word marks each document."""
    names = [f"{topic}{n}" for topic in TOPICS for n in range(4)]
    lines = [
        json.dumps({"id": name, "text": f"{TOPICS[name[:-1]]} Part {name[-1]} of it. " * 5})
        for name in names
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    same = [(a, b) for a in names for b in names if a != b and a[:-1] == b[:-1]]
    (tmp_path / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    (tmp_path / "splits.tsv").write_text(
        "".join(f"{name}\t{'test' if name[-1] == '3' else 'train'}\n" for name in names)
    )
    write_pairs(tmp_path / "pairs.jsonl", [("river0", "river1", 1), ("river0", "music1", 0)])
    write_pairs(tmp_path / "valid.jsonl", [("stone0", "stone1", 1), ("stone0", "music2", 0)])
    return tmp_path


def write_pairs(path: Path, pairs: list[tuple[str, str, int]]) -> None:
    lines = [json.dumps({"source": a, "target": b, "label": label}) for a, b, label in pairs]
    path.write_text("\n".join(lines) + "\n")


def report_of(answer: tuple[int, str, str]) -> dict[str, Any]:
    assert answer[0] == 0, answer[2]
    report: dict[str, Any] = json.loads(answer[1])
    return report


def test_all_baselines_on_queries_and_pairs(evaluate: Run) -> None:
    arguments = ["qrels.tsv", "--split", "splits.tsv", "--baselines", "all", "--blocks", "kept"]
    arguments += ["--pairs", "pairs.jsonl", "--valid-pairs", "valid.jsonl"]
    report = report_of(evaluate(*arguments, "--json"))
    names = [*OWN, "bm25", "tfidf", "lsa", "mean", "first512", "chunks"]
    assert sorted(report["retrieval"]["systems"]) == sorted(names)
    assert sorted(report["pairs"]["systems"]) == sorted(names)
    assert report["nDCG@10"] == report["retrieval"]["systems"]["vector"]["nDCG@10"]["value"]
    assert (report["queries"], report["retrieval"]["queries"]) == (3, 3)
    assert report["retrieval"]["reference"] == report["pairs"]["reference"] == "tfidf"
    assert report["retrieval"]["systems"]["tfidf"]["nDCG@10"]["value"] == pytest.approx(1.0)
    assert report["pairs"]["systems"]["bm25"]["accuracy"]["value"] == 1.0
    assert "p" in report["retrieval"]["systems"]["semantic"]["against"]["nDCG@10"]
    status, out, _ = evaluate(*arguments)
    assert status == 0
    for shown in (*names, "recall@100", "F1", "AUC", "thresholds chosen on validation pairs"):
        assert shown in out


def test_kept_blocks_give_what_reading_anew_gives(evaluate: Run) -> None:
    anew = report_of(evaluate("qrels.tsv", "--json"))
    for _ in range(2):
        kept = report_of(evaluate("qrels.tsv", "--blocks", "kept", "--json"))
        assert kept["tokens_read"] == anew["tokens_read"]
        assert kept["nDCG@10"] == pytest.approx(anew["nDCG@10"], abs=0.02)


def test_pairs_alone(evaluate: Run) -> None:
    arguments = ["--pairs", "pairs.jsonl", "--baselines", "bm25,tfidf"]
    report = report_of(evaluate(*arguments, "--json"))
    assert "retrieval" not in report
    assert report["pairs"]["threshold_chosen_on"] == "the same pairs"
    assert "against" not in report["pairs"]["systems"]["tfidf"]
    assert "accuracy_upper_bound" in report["pairs"]["systems"]["semantic"]["against"]


@pytest.mark.parametrize(
    ("mode", "names"), [("semantic", OWN[:2]), ("lexical", [OWN[0], OWN[2]]), ("hybrid", OWN)]
)
def test_a_mode_is_measured_with_its_first_stage(
    evaluate: Run, mode: str, names: list[str]
) -> None:
    report = report_of(evaluate("qrels.tsv", "--mode", mode, "--json"))
    assert list(report["retrieval"]["systems"]) == names


def test_given_vectors_are_aligned_by_their_blocks(
    evaluate: Run, data: Path, tiny_checkpoint: Path
) -> None:
    copy = shutil.copytree(tiny_checkpoint, data / "checkpoint")
    checkpoint = load_checkpoint(copy)
    write_fusion(checkpoint, LinearFusion(0.0, 1.0, 1.0))
    ids = tuple(f"{topic}{n}" for topic in TOPICS for n in range(4))
    one = np.ones(len(ids), dtype=np.int64)
    vectors = unit_vectors(len(ids), seed=1, dimension=checkpoint.dimension)
    topics = np.eye(len(TOPICS), dtype=np.float32).repeat(4, axis=0)
    plain = EmbeddedCorpus(ids, vectors, one, one, 0)
    write_embedded_corpus(data / "plain.npz", plain)
    write_embedded_corpus(data / "aligned.npz", replace(plain, aligned=aligned_of(topics)))
    arguments = ["qrels.tsv", "--checkpoint", "checkpoint", "--json", "--vectors"]
    report = report_of(evaluate(*arguments, "aligned.npz"))
    ndcg = {
        name: system["nDCG@10"]["value"] for name, system in report["retrieval"]["systems"].items()
    }
    assert ndcg["semantic"] == ndcg["hybrid"] == pytest.approx(1.0)
    assert ndcg["vector"] < 0.9
    assert ndcg["unaligned hybrid"] < 0.9
    status, _, err = evaluate(*arguments, "plain.npz")
    assert status == 2
    assert "--vectors: plain.npz: holds no block vectors" in err
    assert report_of(evaluate(*arguments, "plain.npz", "--mode", "lexical"))["queries"] == 12


def test_baselines_of_queries_that_are_no_documents(evaluate: Run, data: Path) -> None:
    (data / "queries.jsonl").write_text('{"id": "q", "text": "A violin concert it is."}\n')
    (data / "q.tsv").write_text("q\t0\tmusic0\t1\nq\t0\tmusic3\t1\n")
    arguments = ["q.tsv", "--queries", "queries.jsonl", "--baselines", "bm25,tfidf,lsa", "--json"]
    report = report_of(evaluate(*arguments, "--pairs", "pairs.jsonl", "--blocks", "kept"))
    for name in ("bm25", "tfidf", "lsa"):
        assert report["retrieval"]["systems"][name]["recall@10"]["value"] == 1.0
    assert report["pairs"]["pairs"] == 2


def name_titles(data: Path) -> None:
    """Give river 0 a title, which three other rivers and music 3 name."""
    lines = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    for line in lines:
        if line["id"] == "river0":
            line["title"] = "The Upper Rhône"
        elif line["id"].startswith("river") or line["id"] == "music3":
            line["text"] = f"The upper Rhone. {line['text']}"
    (data / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_figures_with_and_without_mentions(evaluate: Run, data: Path) -> None:
    name_titles(data)
    (data / "splits.tsv").write_text("river0\ttest\nriver3\ttest\nmusic3\ttest\n")
    arguments = ["qrels.tsv", "--split", "splits.tsv", "--baselines", "tfidf"]
    alone = report_of(evaluate(*arguments, "--json"))
    report = report_of(evaluate(*arguments, "--without-mentions", "--json"))
    without = report.pop("retrieval_without_mentions")
    assert report == alone
    assert (report["retrieval"]["queries"], report["retrieval"]["judgements"]) == (3, 9)
    # Of river 0 nothing is left; of river 3 all but river 0; music 3 names no judged document.
    assert (without["queries"], without["judgements"]) == (2, 2 + 3)
    assert list(without["systems"]) == list(alone["retrieval"]["systems"])
    assert without["systems"]["tfidf"]["nDCG@10"]["value"] == pytest.approx(1.0)
    status, out, _ = evaluate(*arguments, "--without-mentions")
    assert status == 0
    assert "Retrieval, 3 queries, 9 judgements; 95 %" in out
    assert "Retrieval without mentions, 2 queries, 5 judgements; 95 %" in out


@pytest.mark.slow
def test_masked_texts_are_encoded_again_and_kept_apart(evaluate: Run, data: Path) -> None:
    arguments = ["qrels.tsv", "--blocks", "kept", "--baselines", "tfidf,mean"]
    arguments += ["--adapt", "--pairs", "pairs.jsonl"]
    plain = report_of(evaluate(*arguments, "--json"))
    name_titles(data)
    named = report_of(evaluate(*arguments, "--json"))
    kept = sorted((data / "kept").glob("*.*"))
    before = {path: path.read_bytes() for path in kept}
    masked = report_of(evaluate(*arguments, "--mask-mentions", "--json"))
    assert masked.pop("mentions_masked") == {"mentions": 4, "documents": 4}
    assert named["tokens"] > masked["tokens"] == plain["tokens"] + 2 * 4  # "_" and "."
    assert {path: path.read_bytes() for path in sorted((data / "kept").glob("*.*"))} == before
    assert len((data / "kept" / "masked" / "texts.jsonl").read_text().splitlines()) == 12
    for system in ("lexical", "tfidf"):  # they compare words, as if nothing was named
        thresholds = [
            one["pairs"]["systems"][system]["threshold"] for one in (plain, masked, named)
        ]
        assert thresholds[0] == pytest.approx(thresholds[1])
        assert thresholds[0] != pytest.approx(thresholds[2])
    assert report_of(evaluate(*arguments, "--json")) == named
    status, out, _ = evaluate(*arguments, "--mask-mentions", "--without-mentions")
    assert status == 0
    assert "mentions 4, documents 4" in out
    assert "Retrieval without mentions, 11 queries, 30 judgements" in out


def test_masked_queries_and_skipped_lines(evaluate: Run, data: Path) -> None:
    name_titles(data)
    with (data / "corpus.jsonl").open("a") as file:
        file.write("no JSON\n")
    (data / "queries.jsonl").write_text('{"id": "river0", "text": "The upper Rhone."}\n')
    (data / "q.tsv").write_text("river0\t0\tmusic0\t1\n")
    arguments = ["q.tsv", "--queries", "queries.jsonl", "--mask-mentions", "--json"]
    status, out, err = evaluate(*arguments)
    assert status == 1
    assert err.count("corpus.jsonl:13") == 1
    assert json.loads(out)["mentions_masked"] == {"mentions": 5, "documents": 5}


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        ("", ["--without-mentions"], "--without-mentions: corpus.jsonl: no judged document has a"),
        ("", ["--mask-mentions"], "--mask-mentions: corpus.jsonl: no document has a title of 1"),
        ("Part", ["--without-mentions"], "--without-mentions: qrels.tsv: leaves no query"),
    ],
)
def test_what_mentions_cannot_be_measured_of(
    evaluate: Run,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    texts: str,
    arguments: list[str],
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the work has begun")

    lines = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    (data / "corpus.jsonl").write_text(
        "".join(json.dumps(line | {"title": texts}) + "\n" for line in lines)
    )
    monkeypatch.setattr(OnnxEncoder, "__init__", fail)
    status, _, err = evaluate("qrels.tsv", *arguments)
    assert status == 2
    assert err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give judgements, or --pairs, or both"),
        (["qrels.tsv", "--valid-pairs", "valid.jsonl"], "--valid-pairs: needs --pairs"),
        (["--pairs", "pairs.jsonl", "--queries", "corpus.jsonl"], "--queries: needs judgements"),
        (["qrels.tsv", "--baselines", "bm42"], "there is no 'bm42'"),
        (["qrels.tsv", "--baselines", "mean,bm25"], "--baselines: mean needs --blocks"),
        (
            ["qrels.tsv", "--baselines", "mean", "--blocks", "k", "--queries", "corpus.jsonl"],
            "cannot be combined with --queries",
        ),
        (["--pairs", "strange.jsonl"], "strange.jsonl:1: the corpus has no document 'sea0'"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    evaluate: Run, data: Path, arguments: list[str], message: str
) -> None:
    write_pairs(data / "strange.jsonl", [("river0", "sea0", 1)])
    status, _, err = evaluate(*arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


def test_queries_of_another_corpus_are_an_error(evaluate: Run, data: Path) -> None:
    (data / "q.tsv").write_text("x\t0\ty\t1\n")
    status, _, err = evaluate("q.tsv")
    assert status == 2
    assert "no query" in err
