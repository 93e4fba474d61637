"""`longmatch keys`: make, list and revoke API keys."""

from pathlib import Path

from index.directory.data_directory import KEY_FILE
from service.keys import KeyRing
from tests.kit.command import Run


def test_a_key_is_made_listed_and_revoked(longmatch: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = longmatch("keys", "create", "Ana", "--scope", "write", "--scope", "read", "--data", data)
    assert made.status == 0
    token = made.out.strip()
    key = KeyRing(data / KEY_FILE).find(token)
    assert key is not None
    listed = longmatch("keys", "list", "--data", data)
    assert listed.out.split()[:3] == [key.id, "valid", "read,write"]
    assert listed.out.strip().endswith("Ana")
    assert token.rpartition("_")[2] not in listed.out
    (corpus := tmp_path / "a.txt").write_text("A heron stands in the marsh.")
    assert longmatch("index", corpus, "--data", data).status == 0
    assert longmatch("keys", "list", "--data", data) == listed
    assert longmatch("keys", "revoke", key.id, "--data", data).status == 0
    assert KeyRing(data / KEY_FILE).find(token) is None
    assert longmatch("keys", "list", "--data", data).out == ""


def test_a_key_is_bound_to_a_collection(longmatch: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = longmatch("keys", "create", "Ana", "--collection", "papers", "--data", data)
    assert made.status == 0
    assert "no collection papers yet" in made.err
    key = KeyRing(data / KEY_FILE).find(made.out.strip())
    assert key is not None
    assert key.collection == "papers"
    assert longmatch("keys", "create", "Bo", "--data", data).status == 0
    listed = longmatch("keys", "list", "--data", data).out.splitlines()
    assert {tuple(line.split()[-2:]) for line in listed} == {("papers", "Ana"), ("-", "Bo")}


def test_without_keys_the_list_says_that_none_is_needed(longmatch: Run, tmp_path: Path) -> None:
    answer = longmatch("keys", "list", "--data", tmp_path)
    assert answer.status == 0
    assert "requests need none" in answer.err
