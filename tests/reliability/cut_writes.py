"""Cuts every write of an operation, one after the other, and looks at what is left.

    python -m tests.reliability.cut_writes OPERATION FAILURE FOLDER [--sweep]

Runs the operation again and again in a child process, which fails at its n-th write, fsync,
rename, unlink or mkdir, n = 1, 2, 4, 8 … or with --sweep 1, 2, 3 … until it comes to its end.
"killed" ends the process before that call, "torn" in the middle of a write or just after any other
call; a name of errno and "MemoryError" are raised by the call. After each of them the data must
hold what was acknowledged. Prints how many such calls the operation makes. What SQLite writes
itself is not cut: SQLite's own tests do.
"""

import builtins
import errno
import io
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from encoder.blocks import Receipt
from index.directory import collections, data_directory
from index.directory.backup import restore_backup, write_backup
from index.document import Document
from index.errors import IndexingError
from index.store.records import EncodedDocument
from tests.kit.tiers import Tier

FINGERPRINT, DIMENSION = "a" * 64, 16
COUNTED = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "sendfile")
COMPLETED, FAILED, UNFORESEEN, KILLED = 0, 1, 3, 9
OLD, NEW = 40, 60  # documents


class Cutter:
    """Counts the calls that change the disk, and lets the n-th of them fail."""

    def __init__(self, point: int, failure: str) -> None:
        self.left, self.failure = point, failure

    def __call__(self, torn: Callable[[], object] | None = None) -> None:
        self.left -= 1
        if self.left != 0:
            return
        if self.failure == "killed":
            os._exit(KILLED)
        if self.failure == "torn":
            if torn is not None:
                torn()
            os._exit(KILLED)
        if self.failure == "MemoryError":
            raise MemoryError
        number = getattr(errno, self.failure)
        raise OSError(number, os.strerror(number))


class CutFile:
    """A file whose writes are counted."""

    def __init__(self, file: Any, cut: Cutter) -> None:
        self._file, self._cut = file, cut

    def write(self, data: Any) -> Any:
        def torn() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._cut(torn)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "CutFile":
        return self

    def __exit__(self, *about: object) -> None:
        self._file.close()


def cut_everything(cut: Cutter) -> None:
    """Replace the calls of this process that change the disk."""
    for name in COUNTED:
        setattr(os, name, counted(getattr(os, name), cut))
    opening = io.open

    def open_counted(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wxa"):
            return opening(file, mode, *rest, **named)
        cut()
        return CutFile(opening(file, mode, *rest, **named), cut)

    io.open = builtins.open = tarfile.bltn_open = open_counted  # type: ignore[assignment]


def counted(call: Callable[..., Any], cut: Cutter) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        cut(lambda: call(*arguments, **named))
        return call(*arguments, **named)

    return wrapped


def opened(path: Path) -> closing[data_directory.DataDirectory]:
    return closing(
        data_directory.open_data_directory(path, fingerprint=FINGERPRINT, dimension=DIMENSION)
    )


def entries(numbers: range) -> list[EncodedDocument]:
    vectors = np.random.default_rng(1).normal(size=(numbers.stop, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    receipt = Receipt(1, 1, 1, 0, 1)
    return [
        EncodedDocument(Document(f"d{n}", f"text of {n}"), vectors[n], receipt) for n in numbers
    ]


def fill(path: Path, count: int) -> None:
    with opened(path) as directory:
        directory.index.apply(directory.store.put(entries(range(count))))
        directory.index.publish()


def holds(path: Path, count: int) -> None:
    """Check that a directory holds these documents, and that its index finds each of them."""
    with opened(path) as directory:
        store, index = directory.store, directory.index
        assert store.find([f"d{n}" for n in range(NEW)]).keys() == {f"d{n}" for n in range(count)}
        ids, vectors = store.vectors(store.log.added_after(0)[1])
        assert index.search(vectors, 1, nprobe=index.nlist).ids[:, 0].tolist() == ids.tolist()
        assert len(index) == count


class Acknowledging:
    """A data directory, and a file that tells whether an operation on it was acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.receipt = folder / "acknowledged"
        fill(self.data, OLD)

    @property
    def acknowledged(self) -> bool:
        return self.receipt.exists() and self.receipt.read_bytes() == b"1"


class Publish(Acknowledging):
    """Put documents, publish the index, close."""

    def run(self) -> None:
        receipt = os.open(self.receipt, os.O_CREAT | os.O_WRONLY)
        with opened(self.data) as directory:
            change = directory.store.put(entries(range(NEW)))
            os.write(receipt, b"1")
            directory.index.apply(change)
            directory.index.publish()

    def check(self) -> None:
        holds(self.data, NEW if self.acknowledged else OLD)


class Backup:
    """Write a backup; what lies at its name is whole, and a second attempt succeeds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = folder / "backups" / "backup"
        fill(folder / "data", OLD)

    def run(self) -> None:
        write_backup(self.folder / "data", self.target)

    def check(self) -> None:
        if not self.target.exists():
            self.run()
        restored = self.folder / "checked"
        assert restore_backup(self.target, restored).documents == OLD
        holds(restored, OLD)
        holds(self.folder / "data", OLD)


class Restore(Backup):
    """Restore a backup: an empty directory is left, or the whole of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        super().run()
        self.data = folder / "restored"

    def run(self) -> None:
        restore_backup(self.target, self.data)

    def check(self) -> None:
        try:
            self.run()
        except IndexingError as error:
            if "is not empty" not in str(error):  # the restored one is there
                raise
        holds(self.data, OLD)


class Swap:
    """Swap a new content in: all of the old one is there, or all of the new one."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        fill(self.data, OLD)
        fill(self.data / data_directory.ARRIVING, NEW)
        (self.data / data_directory.ARRIVING / "lock").unlink()

    def run(self) -> None:
        with data_directory.locked(self.data):
            data_directory.swap_in(self.data)

    def check(self) -> None:
        arrived = not (self.data / data_directory.ARRIVING).exists()
        holds(self.data, NEW if arrived else OLD)
        assert {path.name for path in self.data.glob(".*")} <= {data_directory.ARRIVING}


class MakeCollection(Acknowledging):
    """Make a collection: it is there with all that it was made with, or it is not there."""

    def run(self) -> None:
        receipt = os.open(self.receipt, os.O_CREAT | os.O_WRONLY)
        collections.make_collection(self.data, "papers", lambda path: fill(path, OLD))
        os.write(receipt, b"1")

    def check(self) -> None:
        made = collections.collection_names(self.data)
        assert made in ([["papers"]] if self.acknowledged else [[], ["papers"]])
        if not made:
            collections.make_collection(self.data, "papers", lambda path: fill(path, OLD))
        holds(collections.collection_path(self.data, "papers"), OLD)
        holds(self.data, OLD)
        assert_clean(self.data)


class RemoveCollection(Acknowledging):
    """Remove a collection: all of it is there, or it is gone, and a start deletes what is left."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        collections.make_collection(self.data, "papers", lambda path: fill(path, NEW))

    def run(self) -> None:
        receipt = os.open(self.receipt, os.O_CREAT | os.O_WRONLY)
        collections.remove_collection(self.data, "papers")
        os.write(receipt, b"1")

    def check(self) -> None:
        left = collections.collection_names(self.data)
        assert left in ([[]] if self.acknowledged else [[], ["papers"]])
        if left:
            holds(collections.collection_path(self.data, "papers"), NEW)
            collections.remove_collection(self.data, "papers")
        holds(self.data, OLD)
        assert_clean(self.data)


def assert_clean(data: Path) -> None:
    """Check that nothing hidden is left of collections after a start."""
    collections.delete_remains(data)
    folder = data / collections.COLLECTIONS_DIRECTORY
    assert [path.name for path in folder.iterdir()] == collections.collection_names(data)


OPERATIONS = {
    "publish": Publish, "backup": Backup, "restore": Restore,
    "swap": Swap, "make": MakeCollection, "remove": RemoveCollection,
}  # fmt: skip


def attempt(run: Callable[[], None], cut: Cutter) -> int:
    """Run in this child process; return its exit status."""
    cut_everything(cut)
    try:
        run()
    except (IndexingError, OSError, MemoryError):
        return FAILED
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        return UNFORESEEN
    return COMPLETED


def main() -> None:
    name, failure, folder = sys.argv[1:4]
    cut_all(name, failure, Path(folder), Tier(sweep="--sweep" in sys.argv, seed=0))


def cut_all(name: str, failure: str, folder: Path, tier: Tier) -> None:
    for point in tier.numbers(10_000):
        place = folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        operation = OPERATIONS[name](place)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            cut = Cutter(point, failure)
            status = attempt(operation.run, cut)
            os.write(writing, str(point - cut.left).encode())
            os._exit(status if cut.left <= 0 or status != COMPLETED else COMPLETED + 100)
        os.close(writing)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with os.fdopen(reading) as pipe:
            calls = pipe.read()
        assert status != UNFORESEEN, f"point {point}"
        try:
            operation.check()
        except BaseException as error:
            raise AssertionError(f"{name}, {failure} at point {point}") from error
        if status == COMPLETED + 100:  # it came to its end before the point
            sys.stdout.write(f"{calls}\n")
            return


if __name__ == "__main__":
    main()
