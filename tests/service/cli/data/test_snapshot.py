"""`longmatch snapshot`, `restore` and `reencode` as a user types them."""

import resource
from contextlib import closing
from pathlib import Path

import pytest

from index.directory.collections import collection_path
from index.directory.data_directory import (
    FOLLOWER_FILES,
    open_data_directory,
)
from service.feedback.store import FeedbackStore, JudgedQuery
from service.state import open_state
from tests.kit.command import Run
from tests.service.cli.data.conftest import matches, query, vars_of


def test_snapshot_then_restore(
    longmatch: Run, data: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, new = tmp_path / "backup", tmp_path / "new"
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        judged = JudgedQuery(text="Which river carves valleys?", title="Rivers")
        given = feedback.put(judged, "d1", 2)
        answer = longmatch("snapshot", data, "-o", backup)  # while it is open
    assert (answer.status, "24 documents" in answer.err) == (0, True)
    monkeypatch.delenv("LONGMATCH_ENCODER")  # the backup says which it was
    answer = longmatch("restore", backup, new)
    assert (answer.status, "24 documents" in answer.err) == (0, True)
    assert matches(longmatch, new) == matches(longmatch, data)
    with closing(open_state(new)) as state:
        feedback = FeedbackStore(state)
        assert list(feedback.all()) == [given]
    assert longmatch("doctor", new).status == 0
    answer = longmatch("restore", corpus, tmp_path / "other")
    assert (answer.status, "is not a complete backup" in answer.err) == (2, True)


def test_a_collection_is_a_data_directory_by_its_path(
    longmatch: Run, data: Path, corpus: Path, tmp_path: Path
) -> None:
    papers = collection_path(data, "papers")
    papers_corpus = tmp_path / "papers.jsonl"
    papers_corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:9]))
    assert longmatch("index", papers_corpus, "--data", papers).status == 0
    assert longmatch("families", "--data", papers).status == 0
    for place in (data, papers):
        assert longmatch("doctor", place).status == 0
    answer = longmatch("snapshot", data, "-o", tmp_path / "all")
    assert "24 documents, the collection papers" in answer.err
    assert longmatch("snapshot", papers, "-o", tmp_path / "papers").status == 0
    assert longmatch("restore", tmp_path / "all", tmp_path / "new").status == 0
    copy = collection_path(tmp_path / "new", "copy")
    assert "9 documents" in longmatch("restore", tmp_path / "papers", copy).err
    for name in ("papers", "copy"):
        restored = collection_path(tmp_path / "new", name)
        assert matches(longmatch, restored) == matches(longmatch, papers)
    assert matches(longmatch, tmp_path / "new") == matches(longmatch, data)


def test_a_snapshot_on_a_full_disk_leaves_nothing_and_says_why(
    longmatch: Run, data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(0, 2_000_000, 40_000):  # of any file; what is over it is refused
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            answer = longmatch("snapshot", data, "-o", target)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if answer.status == 0:
            break
        assert answer.status == 2
        assert "Traceback" not in answer.err
        assert str(tmp_path) in answer.err
        assert {path.name for path in tmp_path.iterdir()} == {"data"}
    assert size > 40_000
    assert longmatch("restore", target, tmp_path / "new").status == 0
    assert longmatch("doctor", tmp_path / "new").status == 0
    assert longmatch("doctor", data).status == 0


def test_reencode_moves_to_another_checkpoint(
    longmatch: Run, data: Path, tiny_terms: Path, corpus: Path, tmp_path: Path
) -> None:
    assert longmatch("reencode", data).status == 2
    old = matches(longmatch, data)
    server = open_data_directory(data, **vars_of(data))
    try:
        answer = longmatch("reencode", data, "--encoder", tiny_terms)
        assert answer.status == 2
        assert "every document is encoded, and the old vectors still serve" in answer.err
        assert matches(longmatch, data) == old
        server.index.apply(server.store.delete(["d5"]))  # what goes meanwhile
    finally:
        server.close()
    answer = longmatch("reencode", data, "--encoder", tiny_terms)
    assert (answer.status, "23 documents, now of checkpoint tiny-terms" in answer.err) == (0, True)
    assert {path.name for path in data.iterdir()} == {
        *("store.sqlite3", "vectors.faiss", "lexical", "lock", ".reencoding-lock", "encoder.json"),
        *("map.json", *FOLLOWER_FILES),
    }
    answer = longmatch("match", query(data), "--data", data)
    assert (answer.status, "was made with the encoder" in answer.err) == (2, True)
    assert longmatch("doctor", data, "--encoder", tiny_terms).status == 0
    fresh = tmp_path / "fresh"
    assert longmatch("index", corpus, "--data", fresh, "--encoder", tiny_terms).status == 0
    options = ("--encoder", tiny_terms, "--top-k", 24, "--mode", "semantic")
    expected = [match for match in matches(longmatch, fresh, *options) if match["id"] != "d5"]
    assert matches(longmatch, data, *options) == expected
    answer = longmatch("reencode", data, "--encoder", tiny_terms)
    assert (answer.status, "already: nothing to do" in answer.err) == (2, True)
