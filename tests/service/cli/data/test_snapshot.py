"""`longmatch snapshot` and `restore` as a user types them, on tiny checkpoints."""

import resource
from contextlib import closing
from pathlib import Path

import pytest

from index.directory.collections import collection_path
from service.feedback.store import FeedbackLimits, JudgedQuery, open_feedback
from tests.service.cli.data.conftest import matches
from tests.tools.command import Run


def test_snapshot_then_restore(longmatch: Run, data: Path, tmp_path: Path) -> None:
    answer = longmatch("snapshot", data, "-o", tmp_path / "backup.tar")
    assert (answer.status, "24 documents" in answer.err) == (0, True)
    answer = longmatch("restore", tmp_path / "backup.tar", tmp_path / "new")
    assert (answer.status, "24 documents" in answer.err) == (0, True)
    assert matches(longmatch, tmp_path / "new") == matches(longmatch, data)
    assert longmatch("doctor", tmp_path / "new").status == 0

    answer = longmatch("restore", tmp_path / "corpus.jsonl", tmp_path / "other")
    assert (answer.status, "is not a complete backup" in answer.err) == (2, True)
    answer = longmatch("snapshot", data, "-o", tmp_path / "backup.tar")
    assert (answer.status, "is never replaced" in answer.err) == (2, True)


def test_a_collection_is_a_data_directory_by_its_path(
    longmatch: Run, data: Path, corpus: Path, tmp_path: Path
) -> None:
    papers = collection_path(data, "papers")
    papers_corpus = tmp_path / "papers.jsonl"
    papers_corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:9]))
    assert longmatch("index", papers_corpus, "--data", papers).status == 0
    assert longmatch("families", "--data", papers).status == 0
    for one in (data, papers):
        assert longmatch("doctor", one).status == 0
    answer = longmatch("snapshot", data, "-o", tmp_path / "all.tar")
    assert "24 documents, the collection papers" in answer.err
    assert longmatch("snapshot", papers, "-o", tmp_path / "papers.tar").status == 0
    assert longmatch("restore", tmp_path / "all.tar", tmp_path / "new").status == 0
    copy = collection_path(tmp_path / "new", "copy")
    assert "9 documents" in longmatch("restore", tmp_path / "papers.tar", copy).err
    for one in ("papers", "copy"):
        restored = collection_path(tmp_path / "new", one)
        assert matches(longmatch, restored) == matches(longmatch, papers)
    assert matches(longmatch, tmp_path / "new") == matches(longmatch, data)


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_a_snapshot_on_a_full_disk_leaves_nothing_and_says_why(
    longmatch: Run, data: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / name
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(0, 2_000_000, 20_000):  # of any file; what is over it is refused
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
        assert {one.name for one in tmp_path.iterdir()} == {"corpus.jsonl", "data"}
    assert size > 20_000
    assert longmatch("restore", target, tmp_path / "new").status == 0
    assert longmatch("doctor", tmp_path / "new").status == 0
    assert longmatch("doctor", data).status == 0


def test_restore_with_another_checkpoint_names_both(
    longmatch: Run, data: Path, tmp_path: Path, tiny_terms: Path
) -> None:
    longmatch("snapshot", data, "-o", tmp_path / "backup")
    answer = longmatch("restore", tmp_path / "backup", tmp_path / "new", "--checkpoint", tiny_terms)
    assert answer.status == 2
    assert "checkpoint tiny (" in answer.err
    assert "not with tiny-terms (" in answer.err
    assert not (tmp_path / "new").exists()


def test_a_backup_has_the_feedback(longmatch: Run, data: Path, tmp_path: Path) -> None:
    with closing(open_feedback(data)) as feedback:
        query = JudgedQuery(text="Which river carves valleys?", title="Rivers")
        given = feedback.put(query, "d1", 2, FeedbackLimits(10, 10**6))
        for name in ("backup", "backup.tar"):  # while it is open
            assert longmatch("snapshot", data, "-o", tmp_path / name).status == 0
            restored = tmp_path / f"restored {name}"
            assert longmatch("restore", tmp_path / name, restored).status == 0
            with closing(open_feedback(restored, read_only=True)) as copy:
                assert list(copy.all()) == [given]
            assert longmatch("doctor", restored).status == 0
