"""`longmatch evaluate --mode`: the modes are measured beside the vectors."""

import json
import sys
from pathlib import Path

import pytest

from service.cli import main


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
    arguments += ["--checkpoint", str(tiny_checkpoint), "--reference", "lexical"]
    arguments += ["--mode", "hybrid"]
    monkeypatch.setattr(sys, "argv", ["longmatch", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    report = json.loads(capsys.readouterr().out)
    for question in ("retrieval", "pairs"):
        assert set(report[question]["systems"]) == {"semantic", "lexical", "hybrid"}
    lexical = report["retrieval"]["systems"]["lexical"]
    assert json.dumps(lexical).count("1.0") > 0  # words alone put every relevant document first
