"""`longmatch compare`: files and stored documents, for a person and for a program."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.checks import OptionError
from service.cli.main import make_app
from service.errors import DocumentNotFoundError

TEXT = " ".join(
    f"Colony {n} sends {n + 2} foragers to the oak in front of nest {n + 1}." for n in range(12)
)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(make_app(), [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def span(place: dict[str, Any]) -> tuple[int, int]:
    return place["start"], place["end"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    left, right = tmp_path / "left.txt", tmp_path / "right.md"
    left.write_text(TEXT, encoding="utf-8")
    right.write_text(f"# Of rivers\n\nRivers carve valleys.\n\n{TEXT[:400]}\n", encoding="utf-8")
    return left, right


def test_files_are_compared(tiny_checkpoint: Path, files: tuple[Path, Path]) -> None:
    printed = run("compare", *files, "--checkpoint", tiny_checkpoint)
    assert printed.startswith("near-copy (score ")
    assert "of the left text" in printed
    assert "Colony 0 sends 2 foragers" in printed
    assert "alignment score 0." in printed
    assert "left block begins" in printed


def test_json_and_a_page(tiny_checkpoint: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    printed = run("compare", *files, "--checkpoint", tiny_checkpoint, "--json", "--html", page)
    answer = json.loads(printed)
    assert answer["relation"] == "near-copy"
    place = answer["passages"][0]["left"]
    assert TEXT[place["start"] : place["end"]] == place["text"]
    assert 0 < answer["alignment_score"] <= 1
    pairs = answer["aligned_blocks"]
    assert sum(pair["share"] for pair in pairs) == pytest.approx(1.0)
    left, right = (file.read_text(encoding="utf-8") for file in files)
    for side, text in (("left", left), ("right", right)):
        assert all(text[slice(*span(pair[side]))] == pair[side]["text"] for pair in pairs)
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_a_colde_shows_its_sections_and_its_attention(
    tiny_colde: Path, files: tuple[Path, Path]
) -> None:
    given = ("compare", *files, "--checkpoint", tiny_colde)
    printed = run(*given)
    assert "blocks that attend to each other most" in printed
    assert "left attends" in printed
    answer = json.loads(run(*given, "--json"))
    assert answer["section_scores_from"] == "section vectors"
    strengths = [pair["times_average"] for pair in answer["attended_blocks"]]
    assert sum(strengths) / len(strengths) == pytest.approx(1, abs=1e-4)  # all pairs are there


def test_stored_documents_are_compared(
    tiny_checkpoint: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    run("index", files[0].parent, "--data", data, "--checkpoint", tiny_checkpoint)
    where = ("--data", data, "--checkpoint", tiny_checkpoint, "--json")
    same = json.loads(run("compare", "id:left.txt", files[0], *where))
    assert same["relation"] == "identical"
    assert same["left_coverage"] == same["right_coverage"] == 1.0
    assert same["alignment_score"] == pytest.approx(1.0, abs=1e-3)
    assert all(pair["left"] == pair["right"] for pair in same["aligned_blocks"])
    with pytest.raises(DocumentNotFoundError, match="nobody"):
        run("compare", "id:nobody", files[0], *where)


def test_a_page_for_no_folder_is_refused_before_the_work(files: tuple[Path, Path]) -> None:
    page = files[0].parent / "missing" / "report.html"
    result = CliRunner().invoke(make_app(), ["compare", *map(str, files), "--html", str(page)])
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith("--html: ")
