"""The command line as a user types it, on the tiny checkpoint."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.checkpoint_space import open_space
from encoder.block_archive import read_block_archive
from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory
from index.embed import read_aligned_corpus, read_embedded_corpus
from index.errors import CorpusError
from tests.tools.command import Run
from tests.tools.office_files import archive, docx_parts, epub_parts, paragraph


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    (folder / "deep").mkdir(parents=True)
    (folder / "rivers.md").write_text("# Rivers\n\nRivers carry water and stones. " * 5)
    (folder / "deep" / "music.txt").write_text("Music is made of notes and silence. " * 5)
    (folder / "page.html").write_text("<title>Trees</title><p>Trees grow slowly in winter.</p>")
    return folder


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


def test_index_reads_a_query(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE papers (id INTEGER, name TEXT, body TEXT, year INTEGER)")
        for number in range(12):
            topic = ("Rivers carry stones", "Music has notes", "Trees grow in winter")[number % 3]
            body = f"{topic}, as {number} says. " * 9 if number != 7 else None
            values = (number, f"Paper {number}", body, 2000 + number)
            connection.execute("INSERT INTO papers VALUES (?, ?, ?, ?)", values)
    query = "SELECT id, name AS title, body AS text, year FROM papers"
    answer = longmatch("index", f"sqlite:///{tmp_path}/x.db", "--query", query, "--adapt")
    assert answer.status == 1
    assert "11 documents; 11 encoded" in answer.err
    assert "x.db: row 8: text: is missing" in answer.err
    where = '{"field": "year", "range": {"gte": 2003, "lt": 2004}}'
    answer = longmatch("match", corpus / "rivers.md", "--filter", where, "--json")
    assert [one["title"] for one in json.loads(answer.out)["matches"]] == ["Paper 3"]
    empty = f"{query} WHERE year > 3000"
    answer = longmatch("index", f"sqlite:///{tmp_path}/x.db", "--query", empty)
    assert answer.status == 2
    assert "has no document" in answer.err


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


def test_index_again_encodes_nothing(longmatch: Run, corpus: Path) -> None:
    longmatch("index", corpus)
    assert "0 encoded (0 tokens, 0 left out), 3 unchanged" in longmatch("index", corpus).err


def test_refused_input_is_named_and_shows_in_the_status(longmatch: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": "a", "text": "Some text."}\n{oops\n{"id": "b", "text": ""}\n')
    answer = longmatch("index", file)
    assert answer.status == 1
    assert "c.jsonl:2" in answer.err
    assert "c.jsonl:3" in answer.err
    assert "1 documents; 1 encoded" in answer.err
    assert "2 skipped" in answer.err


def test_many_refusals_are_counted(longmatch: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text("{oops\n" * 50 + '{"id": "a", "text": "Some text."}\n')
    answer = longmatch("index", file)
    assert answer.err.count("oops") <= 20
    assert "skipped 30 more" in answer.err
    assert "50 skipped" in answer.err


def test_embed(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    for precision in ("int8", "fp32"):
        file = tmp_path / f"{precision}.npz"
        assert longmatch("embed", corpus, "-o", file, "--precision", precision).status == 0
        with np.load(file) as arrays:
            assert arrays["ids"].tolist() == ["deep/music.txt", "page.html", "rivers.md"]
            assert arrays["vectors"].shape == (3, 32)
            assert np.allclose(np.linalg.norm(arrays["vectors"], axis=1), 1, atol=1e-4)
            assert "codes" not in arrays


def test_embed_with_blocks_aligns_them_too(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    file, plain = tmp_path / "blocks.npz", tmp_path / "plain.npz"
    assert longmatch("embed", corpus, "-o", file, "--blocks", tmp_path / "kept").status == 0
    assert longmatch("embed", corpus, "-o", plain).status == 0
    embedded = read_aligned_corpus(file)
    assert embedded.aligned is not None
    # Three documents are too few for a space of their own.
    space = open_space(load_checkpoint(tiny_checkpoint))
    np.testing.assert_array_equal(embedded.aligned.space.projection, space.projection)
    archive = read_block_archive(tmp_path / "kept")
    lengths = {len(archive.vectors(row)) for row in range(3)}
    assert {len(one) for one in embedded.aligned} == lengths
    vectors = read_embedded_corpus(plain).vectors
    np.testing.assert_allclose(embedded.vectors, vectors, atol=1e-3)
    with pytest.raises(CorpusError, match=r"plain\.npz: holds no block vectors"):
        read_aligned_corpus(plain)


def test_evaluate(longmatch: Run, tmp_path: Path) -> None:
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

    (tmp_path / "ids").write_text("music0\n")
    only = json.loads(longmatch("evaluate", file, qrels, "--ids", tmp_path / "ids", "--json").out)
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


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["index", "nowhere"], 2, "nowhere"),
        (["match", "nowhere.txt"], 2, "nowhere.txt"),
        (["embed", "nowhere", "-o", "v.npz"], 2, "nowhere"),
        (["embed", ".", "-o", "no/such/folder/v.npz"], 2, "is not a folder"),
        (["evaluate", ".", "noqrels"], 2, "noqrels"),
        (["index", ".", "--precision", "int4"], 2, "int4"),
        (["index", ".", "--provider", "cuda"], 2, "cuda"),
        (["index", ".", "--checkpoint", "nocheckpoint"], 2, "nocheckpoint"),
        (["index", "nowhere", "--threads", "0"], 2, "--threads"),
        (["match", "x.txt", "--top-k", "0"], 2, "--top-k"),
        (["serve", "--port", "70000"], 2, "--port"),
        (["export", "nocheckpoint", "--precision", "int8"], 2, "nocheckpoint"),
        (["create-checkpoint", "norecipe", "--bert", "x", "-o", "y"], 2, "norecipe"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    longmatch: Run,
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = longmatch(*arguments)
    assert answer.status == status
    assert message in answer.err


def test_match_without_an_index(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    answer = longmatch("match", corpus / "rivers.md")
    assert answer.status == 2
    assert str(tmp_path / "data") in answer.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("content", [None, "\n \n"])
def test_an_empty_corpus_is_refused(longmatch: Run, tmp_path: Path, content: str | None) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "picture.png").write_bytes(b"x")
    if content is not None:
        corpus = corpus / "x.jsonl"
        corpus.write_text(content)
    answer = longmatch("index", corpus)
    assert answer.status == 2
    assert f"CORPUS: {corpus}: has no document" in answer.err
    assert not (tmp_path / "data").exists()


def test_all_that_is_skipped_is_in_a_file(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    for number in range(30):
        (corpus / f"bad{number:02}.txt").write_bytes(b"\xff")
    expected = [f"bad{number:02}.txt" for number in range(30)]
    answer = longmatch("index", corpus)
    assert answer.status == 1
    assert "30 skipped" in answer.err
    assert "skipped 10 more" in answer.err
    default, chosen = tmp_path / "data" / "skipped.jsonl", tmp_path / "report.jsonl"
    assert str(default) in answer.err
    lines = [json.loads(line) for line in default.read_text().splitlines()]
    assert [line["where"] for line in lines] == expected
    assert lines[0]["reason"] == "is not UTF-8 at byte 0"
    answer = longmatch("index", corpus, "--report", chosen)
    assert len(chosen.read_text().splitlines()) == 30
    for name in expected:
        (corpus / name).unlink()
    assert longmatch("index", corpus).status == 0
    assert not default.exists()
    refused = longmatch("index", corpus, "--report", tmp_path / "missing" / "x.jsonl")
    assert refused.status == 2
    assert "--report" in refused.err


def test_links_are_followed_only_when_told_to(longmatch: Run, corpus: Path) -> None:
    (corpus / "passwords.txt").symlink_to("/etc/passwd")
    answer = longmatch("index", corpus)
    assert answer.status == 1
    assert "passwords.txt: is a link out of the corpus" in answer.err
    assert "3 documents" in answer.err
    answer = longmatch("index", corpus, "--follow-links")
    assert answer.status == 0
    assert "4 documents; 1 encoded" in answer.err


def test_match_of_an_empty_file_is_refused_input(
    longmatch: Run, corpus: Path, tmp_path: Path
) -> None:
    longmatch("index", corpus)
    (tmp_path / "empty.txt").write_text("  \n")
    answer = longmatch("match", tmp_path / "empty.txt")
    assert answer.status == 1
    assert "empty" in answer.err


def test_data_in_use_is_said(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    longmatch("index", corpus)
    checkpoint = load_checkpoint(Path(os.environ["LONGMATCH_CHECKPOINT"]))
    data = open_data_directory(
        tmp_path / "data", fingerprint=checkpoint.fingerprint, dimension=checkpoint.dimension
    )
    try:
        answer = longmatch("index", corpus)
        assert answer.status == 2
        assert "in use by another process" in answer.err
        answer = longmatch("serve", "--port", 0)
        assert answer.status == 2
        assert "in use by another process" in answer.err
        assert longmatch("match", corpus / "rivers.md").status == 0  # reading is free
    finally:
        data.close()


def test_data_of_another_checkpoint_is_said(longmatch: Run, corpus: Path, tiny_colde: Path) -> None:
    longmatch("index", corpus)
    answer = longmatch("index", corpus, "--checkpoint", tiny_colde)
    assert answer.status == 2
    assert "another data directory" in answer.err
    assert "3 unchanged" in longmatch("index", corpus).err  # nothing was lost


def write_recipe(folder: Path) -> Path:
    """Write a recipe of one layer a level."""
    path = folder / "recipe.toml"
    path.write_text(
        'name = "other"\narchitecture = "smith"\nblock_length = 16\nmax_blocks = 8\n'
        'long_sentence = "split"\nlanguage = "en"\ndimension = 32\n'
        "initialise_from_bert = true\nbegin_as_mean = false\n"
        "[model]\nsentence_layers = 1\ndocument_layers = 1\n"
    )
    return path


@pytest.mark.slow
def test_export_adds_a_precision(longmatch: Run, tiny_bert: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    made = tmp_path / "made"
    created = longmatch("create-checkpoint", recipe, "--bert", tiny_bert, "-o", made)
    assert created.status == 0
    assert "int8: cosine to the model at least" in created.err
    assert longmatch("export", made, "--precision", "fp32").status == 0
    manifest = json.loads((made / "manifest.json").read_text())
    assert {name.split("/")[0] for name in manifest["files"] if "/" in name} == {"int8", "fp32"}


def test_control_characters_do_not_reach_the_terminal(longmatch: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    title = "[bold]T[/]\x1b[31m\x07"
    file.write_text(json.dumps({"id": "a", "title": title, "text": "Some text."}) + "\n")
    longmatch("index", file)
    (tmp_path / "q.txt").write_text("Some text.")
    table = longmatch("match", tmp_path / "q.txt").out
    assert "\x1b" not in table
    assert "[bold]T[/]" in table


@pytest.mark.parametrize("command", ["index", "serve", "match", "embed", "evaluate", "demo"])
def test_every_command_explains_itself(longmatch: Run, command: str) -> None:
    answer = longmatch(command, "--help")
    assert answer.status == 0
    assert f"longmatch {command}" in answer.out


def test_one_depth_of_metadata_holds_and_doctor_names_what_is_deeper(
    longmatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    lists = "[" * 300 + "]" * 300
    line = f'{{"id": "deep", "text": "Rivers.", "metadata": {{"x": {lists}}}}}\n'
    corpus.write_text(line + '{"id": "flat", "text": "Music."}\n')
    answer = longmatch("index", corpus)
    assert answer.status == 1
    assert "metadata: is nested more than 64 levels deep" in answer.out + answer.err
    assert longmatch("doctor", tmp_path / "data").status == 0
    monkeypatch.setattr("index.document.MAX_METADATA_LEVELS", 1_000)
    assert longmatch("index", corpus).status == 0
    monkeypatch.setattr("index.document.MAX_METADATA_LEVELS", 64)
    answer = longmatch("doctor", tmp_path / "data")
    assert answer.status == 1
    assert "1 document (deep) is damaged in text, title, metadata" in answer.out + answer.err
