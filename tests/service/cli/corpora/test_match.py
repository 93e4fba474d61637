"""`longmatch match` and `families` as a user types them, on the tiny checkpoint."""

import json
from pathlib import Path

import pytest

from tests.tools.command import Run
from tests.tools.office_files import archive, docx_parts, epub_parts, paragraph


def test_index_then_match(longmatch: Run, corpus: Path) -> None:
    answer = longmatch("index", corpus)
    assert answer.status == 0
    assert "3 documents; 3 encoded" in answer.err
    answer = longmatch("match", corpus / "rivers.md", "--top-k", 2, "--json")
    assert answer.status == 0
    found = json.loads(answer.out)
    assert found["matches"][0]["id"] == "rivers.md"
    assert found["matches"][0]["score"] == pytest.approx(1.0, abs=1e-4)
    assert found["matches"][0]["title"] == "Rivers"
    assert len(found["matches"]) == 2
    assert found["receipt"]["tokens"] == found["receipt"]["tokens_read"] > 0
    table = longmatch("match", corpus / "rivers.md")
    assert table.status == 0
    assert "deep/music.txt" in table.out


def test_match_reads_what_index_reads(longmatch: Run, corpus: Path) -> None:
    text = "Lighthouses warn ships of rocks at night. " * 5
    (corpus / "light.docx").write_bytes(archive(docx_parts(paragraph(text))))
    (corpus / "book.epub").write_bytes(archive(epub_parts({"a.xhtml": f"<p>{text} Chapter."})))
    assert "5 documents; 5 encoded" in longmatch("index", corpus).err
    for name in ("light.docx", "book.epub"):
        answer = longmatch("match", corpus / name, "--top-k", 2, "--json")
        assert answer.status == 0
        found = json.loads(answer.out)["matches"]
        assert found[0]["id"] == name
        assert {one["id"] for one in found} == {"light.docx", "book.epub"}


def test_match_aligns_unless_told_not_to(longmatch: Run, corpus: Path) -> None:
    longmatch("index", corpus)
    asked = ("match", corpus / "rivers.md", "--mode", "semantic", "--json")
    for options, aligned in (((), True), (("--align",), True), (("--no-align",), False)):
        answer = longmatch(*asked, *options)
        assert answer.status == 0
        found = json.loads(answer.out)["matches"]
        assert len(found) == 3
        assert [one["alignment_score"] is not None for one in found] == [aligned] * 3
        assert all(-1 <= one["vector_score"] <= 1 for one in found)
        if aligned:
            assert found[0]["alignment_score"] == pytest.approx(1.0, abs=1e-3)


def test_match_by_words_names_them(longmatch: Run, corpus: Path) -> None:
    longmatch("index", corpus)
    for mode in ("lexical", "hybrid"):
        answer = longmatch("match", corpus / "rivers.md", "--mode", mode, "--json")
        assert answer.status == 0
        best = json.loads(answer.out)["matches"][0]
        assert best["id"] == "rivers.md"
        assert best["lexical_score"] == pytest.approx(1.0, abs=1e-4)
        assert {"stones", "water"} <= {term["term"] for term in best["terms"]}
        assert "stones" in longmatch("match", corpus / "rivers.md", "--mode", mode).out
    refused = longmatch("match", corpus / "rivers.md", "--mode", "fuzzy")
    assert refused.status == 2
    assert all(mode in refused.err for mode in ("semantic", "lexical", "hybrid"))


def test_match_with_a_filter(longmatch: Run, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lines = [{"id": f"d{n}", "text": f"Rivers carry {n} stones.", "year": n} for n in range(6)]
    corpus.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    longmatch("index", corpus)
    query = tmp_path / "query.txt"
    query.write_text("Rivers carry water.")
    where = json.dumps({"field": "year", "range": {"gte": 2}})
    for mode in ("semantic", "hybrid"):
        given = ("--mode", mode, "--filter", where, "--exclude", "d3", "--exclude", "d9", "--json")
        answer = longmatch("match", query, *given)
        assert answer.status == 0
        found = {match["id"] for match in json.loads(answer.out)["matches"]}
        assert found == {"d2", "d4", "d5"}
    for wrong, complaint in (
        ('{"field": "year"}', "give exactly one of"),
        ('{"and": [{"field": "year", "equal": []}]}', "#/and/0/equal"),
        ("{", "is not JSON"),
        ('{"not": ' * 5_000, "is not JSON"),
    ):
        refused = longmatch("match", query, "--filter", wrong)
        assert refused.status == 2
        assert complaint in refused.err


def test_families_are_listed_and_collapsed(longmatch: Run, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    texts = {"a": "Rivers carry stones.", "b": "Rivers carry stones.", "c": "Trees grow slowly."}
    corpus.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in texts.items()))
    longmatch("index", corpus)
    query = tmp_path / "query.txt"
    query.write_text("Rivers carry stones.")
    for mode in ("semantic", "hybrid"):
        asked = ("match", query, "--mode", mode, "--top-k", 2, "--json")
        assert {one["id"] for one in json.loads(longmatch(*asked).out)["matches"]} == {"a", "b"}
        found = json.loads(longmatch(*asked, "--collapse").out)["matches"]
        assert {one["id"] for one in found} in ({"a", "c"}, {"b", "c"})
    answer = longmatch("families", "--json")
    assert answer.status == 0
    [family] = json.loads(answer.out)["largest"]
    assert (family["documents"], family["texts"], family["first"]) == (2, 1, "a")
    table = longmatch("families")
    assert "1 families of 2 documents; 0 documents not compared" in table.err
    assert longmatch("families", "--data", tmp_path / "nothing").status == 2


def test_match_without_an_index(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    answer = longmatch("match", corpus / "rivers.md")
    assert answer.status == 2
    assert str(tmp_path / "data") in answer.err
    assert not (tmp_path / "data").exists()


def test_match_of_an_empty_file_is_refused_input(
    longmatch: Run, corpus: Path, tmp_path: Path
) -> None:
    longmatch("index", corpus)
    (tmp_path / "empty.txt").write_text("  \n")
    answer = longmatch("match", tmp_path / "empty.txt")
    assert answer.status == 1
    assert "empty" in answer.err


def test_control_characters_do_not_reach_the_terminal(longmatch: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    title = "[bold]T[/]\x1b[31m\x07"
    file.write_text(json.dumps({"id": "a", "title": title, "text": "Some text."}) + "\n")
    longmatch("index", file)
    (tmp_path / "q.txt").write_text("Some text.")
    table = longmatch("match", tmp_path / "q.txt").out
    assert "\x1b" not in table
    assert "[bold]T[/]" in table
