"""`longmatch evaluate` with judgements, baselines, pairs, splits and pictures."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaluation.baselines import BASELINES
from tests.kit.command import Answer, Run
from tests.kit.corpora import json_lines, write_pairs

OWN = ["vector", "semantic", "lexical", "unaligned hybrid", "hybrid"]
TOPICS = {
    "river": "The river carries water through the valley.",
    "music": "The orchestra plays a violin concert.",
    "stone": "Granite and basalt form under great heat.",
}
Evaluate = Callable[..., Answer]


@pytest.fixture
def evaluate(longmatch: Run, monkeypatch: pytest.MonkeyPatch, data: Path) -> Evaluate:
    monkeypatch.chdir(data)
    return partial(longmatch, "evaluate", "corpus.jsonl")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three topics of four documents each; a fifth word marks each document."""
    names = [f"{topic}{n}" for topic in TOPICS for n in range(4)]
    texts = {name: f"{TOPICS[name[:-1]]} Part {name[-1]} of it. " * 5 for name in names}
    (tmp_path / "corpus.jsonl").write_text(
        json_lines({"id": name, "text": text} for name, text in texts.items())
    )
    same = [(a, b) for a in names for b in names if a != b and a[:-1] == b[:-1]]
    (tmp_path / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    (tmp_path / "splits.tsv").write_text(
        "".join(f"{name}\t{'test' if name[-1] == '3' else 'train'}\n" for name in names)
    )
    write_pairs(tmp_path / "pairs.jsonl", [("river0", "river1", 1), ("river0", "music1", 0)])
    write_pairs(tmp_path / "valid.jsonl", [("stone0", "stone1", 1), ("stone0", "music2", 0)])
    return tmp_path


def report_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 0, answer.err
    report: dict[str, Any] = json.loads(answer.out)
    return report


def test_all_baselines_on_queries_and_pairs(evaluate: Evaluate) -> None:
    arguments = ["qrels.tsv", "--split", "splits.tsv", "--baselines", "all", "--blocks", "kept"]
    arguments += ["--pairs", "pairs.jsonl", "--valid-pairs", "valid.jsonl"]
    report = report_of(evaluate(*arguments, "--json"))
    names = [*OWN, *BASELINES]
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


def test_kept_blocks_give_what_reading_anew_gives(evaluate: Evaluate) -> None:
    anew = report_of(evaluate("qrels.tsv", "--json"))
    assert (anew["queries"], anew["documents"], anew["precision"]) == (12, 12, "int8")
    assert anew["recall@100"] == 1.0  # a hundred is more than there are
    for _ in range(2):
        kept = report_of(evaluate("qrels.tsv", "--blocks", "kept", "--json"))
        assert kept["tokens_read"] == anew["tokens_read"]
        assert kept["nDCG@10"] == pytest.approx(anew["nDCG@10"], abs=0.02)


def test_pairs_alone(evaluate: Evaluate) -> None:
    arguments = ["--pairs", "pairs.jsonl", "--baselines", "bm25,tfidf"]
    report = report_of(evaluate(*arguments, "--json"))
    assert "retrieval" not in report
    assert report["pairs"]["threshold_chosen_on"] == "the same pairs"
    assert "against" not in report["pairs"]["systems"]["tfidf"]
    assert "accuracy_upper_bound" in report["pairs"]["systems"]["semantic"]["against"]


@pytest.mark.parametrize(("mode", "stage"), [("semantic", 1), ("lexical", 2)])
def test_a_mode_is_measured_with_its_first_stage(evaluate: Evaluate, mode: str, stage: int) -> None:
    report = report_of(evaluate("qrels.tsv", "--mode", mode, "--json"))
    assert list(report["retrieval"]["systems"]) == [OWN[0], OWN[stage]]


def test_baselines_of_queries_that_are_no_documents(evaluate: Evaluate, data: Path) -> None:
    (data / "queries.jsonl").write_text('{"id": "q", "text": "A violin concert it is."}\n')
    (data / "q.tsv").write_text("q\t0\tmusic0\t1\nq\t0\tmusic3\t1\n")
    arguments = ["q.tsv", "--queries", "queries.jsonl", "--baselines", "bm25,tfidf,lsa", "--json"]
    report = report_of(evaluate(*arguments, "--pairs", "pairs.jsonl", "--blocks", "kept"))
    assert (report["queries"], report["documents"]) == (1, 12)
    for name in ("bm25", "tfidf", "lsa"):
        assert report["retrieval"]["systems"][name]["recall@10"]["value"] == 1.0
    assert report["pairs"]["pairs"] == 2


def test_queries_and_skipped_lines(evaluate: Evaluate, data: Path) -> None:
    with (data / "corpus.jsonl").open("a") as file:
        file.write("no JSON\n")
    (data / "queries.jsonl").write_text('{"id": "river0", "text": "The upper Rhone."}\n')
    (data / "q.tsv").write_text("river0\t0\tmusic0\t1\n")
    arguments = ["q.tsv", "--queries", "queries.jsonl", "--json"]
    status, out, err = evaluate(*arguments)
    assert status == 1
    assert err.count("corpus.jsonl:13") == 1
    assert json.loads(out)["documents"] == 12


def test_judgements_and_pairs_of_another_corpus_are_refused(evaluate: Evaluate, data: Path) -> None:
    write_pairs(data / "strange.jsonl", [("river0", "sea0", 1)])
    status, _, err = evaluate("--pairs", "strange.jsonl")
    assert status == 2
    assert "strange.jsonl:1: the corpus has no document 'sea0'" in err
    (data / "q.tsv").write_text("x\t0\ty\t1\n")
    status, _, err = evaluate("q.tsv")
    assert status == 2
    assert "no query" in err
