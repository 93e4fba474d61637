import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from index.directory.data_directory import (
    FOLLOWER_FILES,
    DataDirectory,
    open_data_directory,
    settle,
)
from index.errors import DataDirectoryInUseError, FingerprintMismatchError, StoreError
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT, Check, MakeEntry

Open = Callable[..., DataDirectory]

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[Open]:
    opened: list[DataDirectory] = []

    def open_one(
        path: Path = tmp_path / "data", *, fingerprint: str = FINGERPRINT, read_only: bool = False
    ) -> DataDirectory:
        opened.append(
            open_data_directory(
                path, fingerprint=fingerprint, dimension=DIMENSION, read_only=read_only
            )
        )
        return opened[-1]

    yield open_one
    for directory in opened:
        directory.close()


def test_everything_lies_in_one_directory(
    open_directory: Open, entry: MakeEntry, tmp_path: Path, assert_equals_store: Check
) -> None:
    directory = open_directory(tmp_path / "new" / "data")
    directory.index.apply(directory.store.put([entry("a", "one"), entry("b", "two")]))
    directory.close()
    directory.close()
    found = {path.name for path in directory.path.iterdir()} - {"lock"}
    assert found == {"store.sqlite3", "vectors.faiss", "lexical", *FOLLOWER_FILES}
    again = open_directory(tmp_path / "new" / "data")
    assert again.store.find(["a", "b"]).keys() == {"a", "b"}
    assert_equals_store(again.index, again.store)


def test_one_process_writes_and_others_read(
    open_directory: Open, entry: MakeEntry, tmp_path: Path, assert_equals_store: Check
) -> None:
    writer = open_directory()
    writer.index.apply(writer.store.put([entry("a")]))
    with pytest.raises(DataDirectoryInUseError, match=f"{writer.path}: in use"):
        open_directory()
    other = run_in_another_process(writer.path, "open_data_directory(path, **made)")
    assert other.returncode == 1
    assert f"DataDirectoryInUseError: {writer.path}: in use" in other.stderr
    other = run_in_another_process(
        writer.path,
        "d = open_data_directory(path, **made, read_only=True); print(len(d.index)); d.close()",
    )
    assert (other.returncode, other.stdout, other.stderr) == (0, "1\n", "")
    reader = open_directory(read_only=True)
    writer.store.put([entry("b", "two")])
    reader.index.catch_up()
    assert_equals_store(reader.index, reader.store)


def run_in_another_process(path: Path, statement: str) -> subprocess.CompletedProcess[str]:
    code = (
        "from pathlib import Path\n"
        "from index.directory.data_directory import open_data_directory\n"
        f"path = Path({str(path)!r})\n"
        f"made = dict(fingerprint={FINGERPRINT!r}, dimension={DIMENSION})\n"
        f"{statement}\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


def test_closing_in_another_thread_frees_the_directory(open_directory: Open) -> None:
    directory = open_directory()
    closing = threading.Thread(target=directory.close)
    closing.start()
    closing.join()
    open_directory()
    run = run_in_another_process(directory.path, "open_data_directory(path, **made)")
    assert "DataDirectoryInUseError" in run.stderr


def test_a_directory_that_cannot_be_opened_is_not_kept_locked(
    open_directory: Open, entry: MakeEntry, assert_equals_store: Check
) -> None:
    directory = open_directory()
    directory.store.put([entry("a")])
    directory.close()
    with pytest.raises(FingerprintMismatchError, match="made with the encoder aaaaaaaaaaaa"):
        open_directory(fingerprint="b" * 64)
    directory = open_directory()
    assert_equals_store(directory.index, directory.store)


def test_settle_finishes_a_decided_swap(
    open_directory: Open, entry: MakeEntry, tmp_path: Path
) -> None:
    data, decided = tmp_path / "data", tmp_path / "data" / ".decided"
    for path, name in ((data, "old"), (decided, "new")):
        directory = open_directory(path)
        directory.store.put([entry(name)])
        directory.close()
    (decided / "lock").unlink()
    settle(data)
    assert not decided.exists()
    assert open_directory(data).store.find(["old", "new"]).keys() == {"new"}


def test_reading_only_makes_nothing(open_directory: Open, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    for name in ("missing", "empty", "file", "file/below"):
        with pytest.raises(StoreError, match=f"{name}: there is no data directory here"):
            open_directory(tmp_path / name, read_only=True)
    assert {path.name for path in tmp_path.rglob("*")} == {"empty", "file"}


def test_a_path_that_is_no_directory_is_refused(open_directory: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="file: is not a directory"):
        open_directory(tmp_path / "file")
    with pytest.raises(StoreError, match="below: cannot be created"):
        open_directory(tmp_path / "file" / "below")
    (tmp_path / "odd" / "lock").mkdir(parents=True)
    with pytest.raises(StoreError, match="odd: cannot be written"):
        open_directory(tmp_path / "odd")
    assert (tmp_path / "file").read_text() == "text"
