"""`longmatch index`, `embed`, `match` and `families` as a user types them."""

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from index.directory.data_directory import locked
from tests.kit.command import Run
from tests.kit.corpora import json_lines
from tests.kit.forking import fork
from tests.kit.office_files import archive, docx_parts, epub_parts, paragraph
from tests.kit.process_fixtures import BEGINNING, environment, free_port
from tests.kit.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    (folder / "deep").mkdir(parents=True)
    (folder / "rivers.md").write_text("# Rivers\n\nRivers carry water and stones. " * 5)
    (folder / "deep" / "music.txt").write_text("Music is made of notes and silence. " * 5)
    (folder / "page.html").write_text("<title>Trees</title><p>Trees grow slowly in winter.</p>")
    return folder


def test_a_folder_lives(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    (corpus / "gone.txt").write_text("Gates are made of iron and wood. " * 5)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.txt").write_text("Ants find short paths. " * 5)
    assert longmatch("index", other).status == longmatch("index", corpus).status == 0
    (corpus / "gone.txt").unlink()
    (corpus / "rivers.md").rename(corpus / "deep" / "streams.md")
    reported = longmatch("index", corpus)
    assert reported.status == 0
    assert "6 documents; 0 encoded" in reported.err
    assert "note: gone.txt: is gone; its document stays; --prune removes it" in reported.err
    assert "note: rivers.md: is now deep/streams.md; its document stays" in reported.err
    assert "2 gone\n" in reported.err
    assert "gone.txt" in (tmp_path / "data" / "skipped.jsonl").read_text()
    pruned = longmatch("index", corpus, "--prune")
    assert "4 documents; 0 encoded" in pruned.err
    assert "2 gone and removed" in pruned.err
    again = longmatch("index", corpus, "--prune")
    assert "4 documents; 0 encoded" in again.err
    assert "0 gone" in again.err
    found = json.loads(longmatch("match", corpus / "deep/streams.md", "--json").out)["matches"]
    assert found[0]["id"] == "deep/streams.md"
    assert found[0]["score"] == pytest.approx(1.0, abs=1e-4)
    assert {match["id"] for match in found} >= {"x.txt"}


def test_a_folder_is_watched(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    log = tmp_path / "log"
    arguments = ["index", str(corpus), "--watch", "--prune", "--data", str(tmp_path / "data")]
    with log.open("wb") as output:
        process = fork(BEGINNING, arguments, environment(tiny_checkpoint), output, output)
    try:

        def wait_for(line: str) -> None:
            wait_until(lambda: process.poll() is not None or line in log.read_text(), line)
            assert process.poll() is None, log.read_text()

        wait_for("3 documents; 3 encoded")
        (corpus / "deep").rename(corpus / "deeper")
        wait_for("deep/music.txt: is now deeper/music.txt; its document is removed")
        wait_for("3 documents; 0 encoded")
        (corpus / "page.html").unlink()
        wait_for("2 documents; 0 encoded")
        (corpus / ".hidden.md").write_text("Nothing of this is read.")
        (corpus / "rivers.md").write_text("Glaciers carry stones, too. " * 5)
        wait_for("2 documents; 1 encoded")
        deleted = longmatch("delete", "rivers.md")  # between two runs
        assert deleted.status == 0, deleted.err
        with locked(tmp_path / "data"):
            (corpus / "rivers.md").write_text("Glaciers carry stones, too. " * 6)
            wait_for("in use by another process; the changes wait")
        wait_until(lambda: log.read_text().count("2 documents; 1 encoded") == 2, "the change")
        shutil.rmtree(corpus / "deeper")
        (corpus / "rivers.md").unlink()
        wait_for(f"{corpus}: has no document; nothing is removed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert log.read_text().endswith("stopped\n")
    (tmp_path / "query.txt").write_text("Glaciers")
    found = json.loads(longmatch("match", tmp_path / "query.txt", "--json").out)["matches"]
    assert [match["id"] for match in found] == ["rivers.md", "deeper/music.txt"]


def test_documents_are_deleted(longmatch: Run, tmp_path: Path) -> None:
    lines = ({"id": f"d{n}", "text": f"Text {n}.", "metadata": {"year": n}} for n in range(9))
    (tmp_path / "x.jsonl").write_text(json_lines(lines))
    longmatch("index", tmp_path / "x.jsonl")
    deleted = longmatch("delete", "d3", "d4", "gone")
    assert deleted.status == 1
    assert "unknown: gone\n" in deleted.err
    assert "7 documents; 2 deleted, 1 unknown" in deleted.err
    where = '{"field": "year", "range": {"gte": 4}}'
    by_filter = longmatch("delete", "--filter", where)
    assert by_filter.status == 0
    assert "3 documents; 4 deleted, 0 unknown" in by_filter.err
    (tmp_path / "query.txt").write_text("Text 5.")
    found = json.loads(longmatch("match", tmp_path / "query.txt", "--json").out)["matches"]
    assert sorted(match["id"] for match in found) == ["d0", "d1", "d2"]


def test_index_reads_a_query(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE papers (id INTEGER, name TEXT, body TEXT, year INTEGER)")
        for number in range(12):
            topic = ("Rivers carry stones", "Music has notes", "Trees grow in winter")[number % 3]
            body = f"{topic}, as {number} says. " * 9 if number != 7 else None
            values = (number, f"Paper {number}", body, 2000 + number)
            connection.execute("INSERT INTO papers VALUES (?, ?, ?, ?)", values)
    query = "SELECT id, name AS title, body AS text, year FROM papers"
    answer = longmatch("index", f"sqlite:///{tmp_path}/x.db", "--query", query)
    assert answer.status == 1
    assert "11 documents; 11 encoded" in answer.err
    assert "x.db: row 8: text: is missing" in answer.err
    where = '{"field": "year", "range": {"gte": 2003, "lt": 2004}}'
    answer = longmatch("match", corpus / "rivers.md", "--filter", where, "--json")
    assert [match["title"] for match in json.loads(answer.out)["matches"]] == ["Paper 3"]


def test_embed(
    longmatch: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = {}
    for precision in ("int8", "fp32"):
        file = tmp_path / f"{precision}.npz"
        monkeypatch.setenv("LONGMATCH_PRECISION", precision)
        assert longmatch("lab", "embed", corpus, "-o", file).status == 0
        with np.load(file) as arrays:
            assert arrays["ids"].tolist() == ["deep/music.txt", "page.html", "rivers.md"]
            vectors[precision] = arrays["vectors"]
    assert not np.array_equal(vectors["int8"], vectors["fp32"])
    for setting, wrong in (("PRECISION", "fp8"), ("PROVIDERS", "tpu")):
        monkeypatch.setenv(f"LONGMATCH_{setting}", wrong)
        answer = longmatch("index", corpus)
        assert (answer.status, wrong in answer.err) == (2, True)


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
    assert "bad19.txt" in answer.err
    assert "bad20.txt" not in answer.err
    assert "skipped 10 more" in answer.err
    default = tmp_path / "data" / "skipped.jsonl"
    assert str(default) in answer.err
    lines = [json.loads(line) for line in default.read_text().splitlines()]
    assert [line["where"] for line in lines] == expected
    assert lines[0]["reason"] == "is not UTF-8 at byte 0"
    for name in expected:
        (corpus / name).unlink()
    assert longmatch("index", corpus).status == 0
    assert not default.exists()


@pytest.mark.slow
def test_three_broken_files_of_ten_thousand_are_named(longmatch: Run, corpus: Path) -> None:
    for number in range(10_000):
        (corpus / f"{number}.txt").write_text(f"Note {number} on rivers.")
    broken = ("a.pdf", "b.docx", "c.txt")
    for name in broken:
        (corpus / name).write_bytes(b"\xff")
    answer = longmatch("index", corpus)
    assert answer.status == 1
    assert "10003 documents; 10003 encoded" in answer.err
    assert all(f"skipped {name}: " in answer.err for name in broken)


def test_links_are_followed_only_when_told_to(longmatch: Run, corpus: Path) -> None:
    (corpus / "passwords.txt").symlink_to("/etc/passwd")
    answer = longmatch("index", corpus)
    assert answer.status == 1
    assert "passwords.txt: is a link out of the corpus" in answer.err
    assert "3 documents" in answer.err
    answer = longmatch("index", corpus, "--follow-links")
    assert answer.status == 0
    assert "4 documents; 1 encoded" in answer.err


def test_data_in_use_is_said(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    longmatch("index", corpus)
    with locked(tmp_path / "data"):
        for command in (("index", corpus), ("serve", "--port", 0)):
            answer = longmatch(*command)
            assert answer.status == 2
            assert "in use by another process" in answer.err
        assert longmatch("match", corpus / "rivers.md").status == 0  # reading is free


def test_data_remember_their_encoder(
    longmatch: Run, corpus: Path, tiny_colde: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longmatch("index", corpus)
    for command in ("index", "match"):
        answer = longmatch(command, corpus / "rivers.md", "--encoder", tiny_colde)
        assert answer.status == 2
        assert "`longmatch reencode DATA --encoder NEW`" in answer.err
    monkeypatch.delenv("LONGMATCH_ENCODER")
    assert "3 unchanged" in longmatch("index", corpus).err  # nothing was lost
    assert longmatch("match", corpus / "rivers.md").status == 0


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
    assert "stones" in table.out  # a word that both have
    (corpus / "empty.txt").write_text("  \n")
    empty = longmatch("match", corpus / "empty.txt")
    assert (empty.status, "empty.txt: has no text" in empty.err) == (2, True)


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
        assert {match["id"] for match in found} == {"light.docx", "book.epub"}


def test_match_aligns(longmatch: Run, corpus: Path) -> None:
    longmatch("index", corpus)
    answer = longmatch("match", corpus / "rivers.md", "--mode", "semantic", "--json")
    assert answer.status == 0
    found = json.loads(answer.out)["matches"]
    assert len(found) == 3
    assert all(-1 <= match["vector_score"] <= 1 for match in found)
    assert found[0]["alignment_score"] == pytest.approx(1.0, abs=1e-3)


def test_families_are_listed(longmatch: Run, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    texts = {"a": "Rivers carry stones.", "b": "Rivers carry stones.", "c": "Trees grow slowly."}
    corpus.write_text(json_lines({"id": n, "text": t} for n, t in texts.items()))
    longmatch("index", corpus)
    answer = longmatch("families", "--json")
    assert answer.status == 0
    [family] = json.loads(answer.out)["largest"]
    assert (family["documents"], family["texts"], family["first"]) == (2, 1, "a")
    table = longmatch("families")
    assert "1 families of 2 documents; 0 documents not compared" in table.err


def test_control_characters_do_not_reach_the_terminal(longmatch: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    title = "[bold]T[/]\x1b[31m\x07"
    file.write_text(json.dumps({"id": "a", "title": title, "text": "Some text."}) + "\n")
    longmatch("index", file)
    (tmp_path / "q.txt").write_text("Some text.")
    table = longmatch("match", tmp_path / "q.txt").out
    assert "\x1b" not in table
    assert "[bold]T[/]" in table


def test_the_extra_of_ray_is_named(
    longmatch: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.optional_dependencies.find_spec", lambda name: None)
    answer = longmatch("index", corpus, "--on", "ray")
    assert answer.status == 2
    assert "encoding on Ray needs the extra 'ray': pip install 'longmatch[ray]'" in answer.err


def test_an_address_where_nothing_listens_is_refused(
    longmatch: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    given = longmatch("index", corpus, "--on", "ray", "--ray-address", address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    for answer in (given, longmatch("index", corpus, "--on", "ray")):
        assert answer.status == 2
        assert answer.err == f"error: Ray at {address}: cannot be reached: Connection refused\n"
    assert not (tmp_path / "data").exists()
