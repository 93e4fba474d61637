"""The study of reading: ways to choose blocks, smaller corpora, its table."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reading import checkpoints
from benchmarks.reading.choosers import CHOOSERS, BlockWords
from benchmarks.reading.parts import write_part
from benchmarks.reading.table import plot, table
from evaluation.judgements import read_qrels


@pytest.fixture
def words() -> BlockWords:
    draw = np.random.default_rng(5)
    features = np.abs(draw.normal(size=(30, 16))).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    rarity = draw.random(30).astype(np.float32)
    return BlockWords(features, rarity, np.full(30, 60, dtype=np.int64))


@pytest.mark.parametrize("name", CHOOSERS)
@pytest.mark.parametrize("number", [1, 7, 30])
def test_every_way_chooses_as_many_as_asked_in_order(
    words: BlockWords, name: str, number: int
) -> None:
    chosen = CHOOSERS[name](words, number).tolist()
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))
    assert len(chosen) == number
    assert CHOOSERS[name](words, 30).tolist() == list(range(30))


def test_ways_choose_what_they_say(words: BlockWords) -> None:
    assert CHOOSERS["first"](words, 4).tolist() == [0, 1, 2, 3]
    assert CHOOSERS["even"](words, 3).tolist() == [0, 10, 20]
    rarest = int(words.rarity[1:].argmax()) + 1
    assert CHOOSERS["rare words"](words, 2).tolist() == [0, rarest]


def test_a_part_has_its_documents_and_their_judgements(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with gzip.open(source / "corpus.jsonl.gz", "wt") as file:
        for name in "abcd":
            file.write(json.dumps({"id": name, "text": f"text of {name}"}) + "\n")
    (source / "qrels.tsv").write_text("a\t0\tb\t1\na\t0\tc\t2\nb\t0\td\t1\n")
    (source / "splits.tsv").write_text("a\ttest\nb\ttrain\nc\tvalid\nd\ttest\n")
    assert write_part(source, tmp_path / "part", ["test", "valid"]) == 3
    assert read_qrels(tmp_path / "part" / "qrels.tsv") == {"a": {"c": 2}}
    assert write_part(source, tmp_path / "less", ["test", "valid"], most=1) == 1
    assert (tmp_path / "less" / "qrels.tsv").read_text() == ""


def test_table_and_plot_have_every_share(tmp_path: Path) -> None:
    systems = ("lexical", "vector", "semantic", "unaligned hybrid", "hybrid")
    whole = {name: {"value": 0.5, "low": 0.4, "high": 0.6} for name in systems}
    loss = {"difference": -0.0021, "low": -0.01, "high": 0.005, "p": 0.5}
    reading = [
        {"chooser": "first", "share": share, "tokens": share, "loss": dict.fromkeys(systems, loss)}
        for share in (0.5, 0.25)
    ]
    one = {"documents": 9, "tokens": 900, "queries": 5, "all blocks": whole, "reading": reading}
    record = {"settings": {"split": "valid"}, "results": {"small": one, "other": one}}
    text = table(record)
    assert text.count("| -0.0021 |") == 8
    assert "-0.0021 (-0.0100 to +0.0050) p 0.5000" in text
    plot(record, tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().count("share of the blocks") >= 1


def test_two_checkpoints_are_compared_query_by_query() -> None:
    draw = np.random.default_rng(2)
    reference = {
        name: draw.random(40) for name in ("vector", "semantic", "unaligned hybrid", "hybrid")
    }
    smaller = {name: values - 0.01 for name, values in reference.items()}
    same = {"checkpoint": reference, "reference": reference}
    results = checkpoints.compare(
        {"one": {"checkpoint": smaller, "reference": reference}, "other": same}
    )
    assert [one["queries"] for one in results.values()] == [40, 40, 80]
    lower, equal, together = (one["systems"]["hybrid"]["difference"] for one in results.values())
    assert lower["difference"] == pytest.approx(-0.01)
    assert lower["p"] < 0.001
    assert (equal["difference"], equal["p"]) == (0, 1)
    assert together["difference"] == pytest.approx(-0.005)
    record = {"settings": {"checkpoint": "small", "reference": "large"}, "results": results}
    assert checkpoints.table(record).count("| all queries, 80 queries |") == 4
