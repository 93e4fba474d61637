"""Names and folders of collections; what a kill leaves is in tests/reliability/cut_writes.py."""

from pathlib import Path

import pytest

from index.directory import collections
from index.errors import StoreError


@pytest.mark.parametrize("name", ["a", "0", "papers", "papers_2026-old", "a" * 63, "default"])
def test_names(name: str) -> None:
    assert collections.is_collection_name(name)


@pytest.mark.parametrize(
    "name", ["", "A", "_a", "-a", ".a", "a.b", "a/b", "..", "a b", "a\n", "ä", "a" * 64]
)
def test_what_is_no_name(name: str) -> None:
    assert not collections.is_collection_name(name)


def test_the_default_one_is_the_data_directory_itself(tmp_path: Path) -> None:
    assert collections.collection_path(tmp_path, collections.DEFAULT_COLLECTION) == tmp_path
    assert collections.collection_names(tmp_path) == []
    (tmp_path / "collections/default").mkdir(parents=True)
    (tmp_path / "collections/file").touch()
    assert collections.collection_names(tmp_path) == []


def test_a_folder_without_a_store_is_no_collection(tmp_path: Path) -> None:
    collections.make_collection(tmp_path, "a", lambda folder: folder.mkdir())
    with pytest.raises(StoreError, match="no data directory"):
        collections.check_collection(collections.collection_path(tmp_path, "a"))


def test_a_collection_may_be_a_link_to_another_disk(tmp_path: Path) -> None:
    data, disk = tmp_path / "data", tmp_path / "disk"
    (data / "collections").mkdir(parents=True)
    disk.mkdir()
    (disk / "store.sqlite3").touch()
    (data / "collections/a").symlink_to(disk)
    assert collections.collection_names(data) == ["a"]
    collections.remove_collection(data, "a")
    assert collections.collection_names(data) == []
    assert not disk.exists()
    assert list((data / "collections").iterdir()) == []


def test_a_failure_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"collections/a: cannot be created: .*No space"):
        collections.make_collection(tmp_path, "a", fail)
    (tmp_path / "collections/a").write_text("a file, not a folder")
    with pytest.raises(StoreError, match="collections/a: cannot be removed"):
        collections.remove_collection(tmp_path, "a")
