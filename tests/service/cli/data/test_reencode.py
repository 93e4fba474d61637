"""`longmatch reencode` with another checkpoint, as a user types it."""

from pathlib import Path

from index.directory.data_directory import ADAPTER_FILE, open_data_directory
from index.store.schema import read_space
from tests.service.cli.data.conftest import matches, query, vars_of
from tests.tools.command import Run


def test_reencode_moves_to_another_checkpoint(
    longmatch: Run, data: Path, tiny_terms: Path, corpus: Path, tmp_path: Path
) -> None:
    assert longmatch("reencode", data).status == 2
    old = matches(longmatch, data)
    server = open_data_directory(data, **vars_of(data))
    try:
        answer = longmatch("reencode", data, "--checkpoint", tiny_terms)
        assert answer.status == 2
        assert "every document is encoded, and the old vectors still serve" in answer.err
        assert matches(longmatch, data) == old
        server.index.apply(server.store.delete(["d5"]))  # what goes meanwhile
    finally:
        server.close()
    answer = longmatch("reencode", data, "--checkpoint", tiny_terms)
    assert (answer.status, "23 documents, now of checkpoint tiny-terms" in answer.err) == (0, True)
    assert {path.name for path in data.iterdir()} == {
        "store.sqlite3",
        "snapshots",
        "lexical",
        "lock",
        ".reencoding-lock",
        ".store-digest",
    }
    answer = longmatch("match", query(data), "--data", data)
    assert (answer.status, "was made with checkpoint" in answer.err) == (2, True)
    assert longmatch("doctor", data, "--checkpoint", tiny_terms).status == 0

    fresh = tmp_path / "fresh"
    assert longmatch("index", corpus, "--data", fresh, "--checkpoint", tiny_terms).status == 0
    options = ("--checkpoint", tiny_terms, "--top-k", 24, "--mode", "semantic")
    expected = [one for one in matches(longmatch, fresh, *options) if one["id"] != "d5"]
    assert matches(longmatch, data, *options) == expected
    answer = longmatch("reencode", data, "--checkpoint", tiny_terms)
    assert (answer.status, "already: nothing to do" in answer.err) == (2, True)


def test_reencode_fits_an_adapter_anew(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_terms: Path
) -> None:
    data = tmp_path / "adapted"
    assert longmatch("index", corpus, "--adapt", "--data", data).status == 0
    before = read_space(data / "store.sqlite3")
    assert longmatch("reencode", data, "--checkpoint", tiny_terms).status == 0
    assert (data / ADAPTER_FILE).exists()
    assert read_space(data / "store.sqlite3") != before
    assert len(matches(longmatch, data, "--checkpoint", tiny_terms)) == 10
    longmatch("snapshot", data, "-o", tmp_path / "backup", "--checkpoint", tiny_terms)
    new = tmp_path / "new"
    assert longmatch("restore", tmp_path / "backup", new, "--checkpoint", tiny_terms).status == 0
    assert (new / ADAPTER_FILE).read_bytes() == (data / ADAPTER_FILE).read_bytes()
