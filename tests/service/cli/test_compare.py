"""`longmatch compare`: files and stored documents, for a person and for a program."""

import json
from pathlib import Path

import pytest

from tests.kit.command import Run

TEXT = " ".join(
    f"Colony {n} sends {n + 2} foragers to the oak in front of nest {n + 1}." for n in range(12)
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    left, right = tmp_path / "left.txt", tmp_path / "right.md"
    left.write_text(TEXT, encoding="utf-8")
    right.write_text(f"# Of rivers\n\nRivers carve valleys.\n\n{TEXT[:400]}\n", encoding="utf-8")
    return left, right


def test_files_are_compared(longmatch: Run, files: tuple[Path, Path]) -> None:
    printed = longmatch("compare", *files).out
    assert printed.startswith("near-copy (score ")
    assert "of the left text" in printed
    assert "Colony 0 sends 2 foragers" in printed


def test_differences_are_printed(longmatch: Run, files: tuple[Path, Path]) -> None:
    printed = longmatch("compare", *files, "--differences").out
    assert "that the right text has and the left text lacks" in printed
    assert "Rivers carve valleys" in printed
    answer = json.loads(longmatch("compare", *files, "--differences", "--json").out)["differences"]
    assert "Colony 11 sends 13" in " ".join(entry["text"] for entry in answer["left"])
    same = json.loads(longmatch("compare", files[0], files[0], "--differences", "--json").out)
    assert same["differences"] == {"left": [], "right": []}


def test_json_and_a_page(longmatch: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    printed = longmatch("compare", *files, "--json", "--html", page)
    answer = json.loads(printed.out)
    assert answer["relation"] == "near-copy"
    place = answer["passages"][0]["left"]
    assert TEXT[place["start"] : place["end"]] == place["text"]
    assert 0 < answer["alignment_score"] <= 1
    pairs = answer["aligned_blocks"]
    assert sum(pair["share"] for pair in pairs) == pytest.approx(1.0)
    left, right = (file.read_text(encoding="utf-8") for file in files)
    for side, text in (("left", left), ("right", right)):
        places = [pair[side] for pair in pairs]
        assert all(text[place["start"] : place["end"]] == place["text"] for place in places)
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_stored_documents_are_compared(
    longmatch: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    assert longmatch("index", files[0].parent).status == 0
    where = ("--data", tmp_path / "data", "--json")
    same = json.loads(longmatch("compare", "id:left.txt", files[0], *where).out)
    assert same["relation"] == "identical"
    assert same["left_coverage"] == same["right_coverage"] == 1.0
    assert same["alignment_score"] == pytest.approx(1.0, abs=1e-3)
    assert all(pair["left"] == pair["right"] for pair in same["aligned_blocks"])
    unknown = longmatch("compare", "id:nobody", files[0], *where)
    assert (unknown.status, "nobody" in unknown.err) == (2, True)
