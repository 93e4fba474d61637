import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import common


def test_percentiles_are_values_that_occurred() -> None:
    hundred = [float(value) for value in range(1, 101)]
    random.Random(1).shuffle(hundred)
    assert common.percentiles(hundred) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert common.percentiles([7.0]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}


def test_ratios_are_taken_round_by_round() -> None:
    # The second round is ten times slower for both: the ratio is the same in each.
    assert common.ratios([4.0, 40.0], [2.0, 20.0]) == common.Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument"):
        common.ratios([1.0], [1.0, 2.0])


def test_the_same_documents_are_sampled_every_time(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": f"d{number}", "text": f"Text {number}."}) for number in range(50)]
    corpus.write_text("\n".join(["no JSON", *lines]))
    first = common.read_documents(corpus, 5)
    assert len({document.id for document in first}) == 5
    assert [document.id for document in first] != [f"d{number}" for number in range(5)]
    assert common.read_documents(corpus, 5) == first
    assert len(common.read_documents(corpus, 500)) == 50


def test_a_record_says_what_it_ran_on_and_names_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    settings = {"corpus": common.corpus_name(tmp_path / "set" / "corpus.jsonl"), "threads": 2}
    path = common.write_record(
        common.make_record("encoder", common.commit(), settings, {"speed": 1.5})
    )
    text = path.read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(text)
    assert record["results"] == {"speed": 1.5}
    assert record["settings"] == {"corpus": "set/corpus.jsonl", "threads": 2}
    assert record["hardware"]["cores"] >= 1
    assert record["hardware"]["memory_gb"] > 0
    assert record["hardware"]["cpu"]
    assert record["versions"]["numpy"]
    assert len(record["commit"].rstrip("+")) == 12 or record["commit"] == "unknown"
    for place in (tmp_path, common.ROOT, Path.home()):
        assert f"{place}/" not in text
