"""`longmatch index` and `embed` as a user types them, on the tiny checkpoint."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import open_space
from encoder.block_archive import read_block_archive
from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory
from index.embed import read_aligned_corpus, read_embedded_corpus
from index.errors import CorpusError
from tests.tools.command import Run


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
    default = tmp_path / "data" / "skipped.jsonl"
    assert str(default) in answer.err
    lines = [json.loads(line) for line in default.read_text().splitlines()]
    assert [line["where"] for line in lines] == expected
    assert lines[0]["reason"] == "is not UTF-8 at byte 0"
    for name in expected:
        (corpus / name).unlink()
    assert longmatch("index", corpus).status == 0
    assert not default.exists()


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
