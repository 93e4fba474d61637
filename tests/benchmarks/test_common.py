import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import common


def test_percentiles_are_values_that_occurred() -> None:
    hundred = [float(value) for value in range(1, 101)]
    random.Random(1).shuffle(hundred)
    assert common.percentiles(hundred) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert common.percentiles([7.0]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_in_order(values: list[float]) -> None:
    found = common.percentiles(values)
    assert set(found.values()) <= set(values)
    assert found["p50"] <= found["p95"] <= found["p99"] <= max(values)


@pytest.mark.parametrize("summarise", [common.percentiles, common.spread])
def test_nothing_measured_is_an_error(summarise: Callable[[list[float]], object]) -> None:
    with pytest.raises(ValueError, match="measured"):
        summarise([])


def test_spread_is_median_lowest_and_highest() -> None:
    assert common.spread([3.0, 1.0, 2.0, 10.0]) == common.Spread(2.5, 1.0, 10.0)


def test_ratios_are_taken_round_by_round() -> None:
    # The second round is ten times slower for both: the ratio is the same in each.
    assert common.ratios([4.0, 40.0], [2.0, 20.0]) == common.Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument"):
        common.ratios([1.0], [1.0, 2.0])


def test_variants_run_in_turns_with_a_pause_before_each() -> None:
    happened: list[str] = []

    def variant(name: str) -> Callable[[int], str]:
        def run(number: int) -> str:
            happened.append(f"{name}{number}")
            return happened[-1]

        return run

    outcomes = common.interleave(
        {"a": variant("a"), "b": variant("b")}, 2, pause=lambda _: happened.append("-")
    )
    assert happened == ["-", "a0", "-", "b0", "-", "a1", "-", "b1"]
    assert outcomes == {"a": ["a0", "a1"], "b": ["b0", "b1"]}


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=80), st.data())
def test_documents_are_split_evenly(sizes: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(sizes)))
    split = common.split_evenly(sizes, parts)
    assert sorted(item for part in split for item in part) == list(range(len(sizes)))
    assert max(map(len, split)) - min(map(len, split)) <= 1


def test_long_documents_are_not_split_into_one_part() -> None:
    assert common.split_evenly([900, 10, 800, 20, 700, 30], 3) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(("documents", "parts"), [(3, 0), (2, 3), (0, 1)])
def test_parts_without_a_document_are_rejected(documents: int, parts: int) -> None:
    with pytest.raises(ValueError, match="cannot be split"):
        common.split_evenly([10] * documents, parts)


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


def test_a_table_is_markdown_with_three_digits() -> None:
    rows = [["a", 123_456.0, common.Spread(1.23456, 0.5, 2.0)], ["longer", 0.01234, 7]]
    assert common.markdown_table(["", "x", "y"], rows).splitlines() == [
        "|        |       x |            y |",
        "| ------ | ------: | -----------: |",
        "| a      | 123,000 | 1.23 (0.5-2) |",
        "| longer |  0.0123 |            7 |",
    ]
