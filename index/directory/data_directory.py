"""The data directory: the document store, its snapshot and the lock of the writing process.

docs/operations.md says what is in it.

`swap_in` replaces its content, all of it or nothing. A data directory may be a mount point, which
cannot be replaced by a rename. So its entries are moved one by one, and the next opening for
writing resumes a swap that a kill interrupted.

.arriving/      the new content while it is written; ignored and thrown away after a kill
.decided/       the new content, complete: from this rename on it counts. The old content is
                deleted, then this is moved in, the store first
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from filelock import FileLock, Timeout

from encoder.alignment.space import AlignmentSpace
from encoder.atomic_files import replace_durably, sync, write_atomically
from encoder.checkpoint import Checkpoint, split_fingerprint, with_reading_share
from index.alignment.alignment_index import BLOCKS_FILE
from index.engine.local import LocalEngine
from index.engine.port import Engine
from index.errors import DataDirectoryInUseError, EngineError, StoreError
from index.followers import FILE_ENDINGS
from index.lexical.segmented_index import LEXICAL_DIRECTORY
from index.near_duplicates.families import FAMILIES_FILE
from index.optional_dependencies import require_extra
from index.progress import SilentProgress
from index.store.document_store import DocumentStore
from index.store.schema import LOCK_FILE, has_store, read_space
from index.vectors.live_index import LiveIndex
from index.vectors.vector_index import Precision

STORE_FILE = "store.sqlite3"
SNAPSHOT_FILE = "vectors.faiss"
KEY_FILE = "keys.json"  # of a server; `service.keys` reads it
FOLLOWER_FILES = (FAMILIES_FILE, BLOCKS_FILE)
CALIBRATION_FILE = "calibration.json"
ENCODER_FILE = "encoder.json"
FUSION_FILE = "fusion.json"
SHADOW_TEST_FILE = "shadow-test.json"
SKIPPED_FILE = "skipped.jsonl"
DAMAGED_FILE = "damaged.jsonl"
# To the vectors, or of them.
FITTED = (CALIBRATION_FILE, ENCODER_FILE, FUSION_FILE, SHADOW_TEST_FILE)
# What belongs to one checkpoint, and is replaced by a swap of the content.
CONTENT = (
    STORE_FILE,
    f"{STORE_FILE}-wal",
    f"{STORE_FILE}-shm",
    SNAPSHOT_FILE,
    LEXICAL_DIRECTORY,
    *(f"{name}{ending}" for name in FOLLOWER_FILES for ending in FILE_ENDINGS),
    *FITTED,
)

ARRIVING = ".arriving"
_DECIDED = ".decided"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """An open data directory; `open_data_directory` makes it."""

    path: Path
    store: DocumentStore
    engine: Engine
    _open_files: ExitStack

    @property
    def index(self) -> LiveIndex:
        """The vectors that this process searches, where the store is not searched elsewhere."""
        return cast(LocalEngine, self.engine).index

    @property
    def documents(self) -> int:
        """How many documents are searched."""
        return len(self.store if self.store.searched_elsewhere else self.index)

    def close(self) -> None:
        """Close the store and release the lock; closing twice does nothing."""
        self._open_files.close()


def open_data_directory(  # noqa: PLR0913  its parameters are options
    path: Path,
    *,
    fingerprint: str,
    dimension: int,
    read_only: bool = False,
    find_families: bool = True,
    alignment: AlignmentSpace | None = None,
    index_precision: Precision | None = None,
    in_background: bool = False,
    engine: str | None = None,
    database: str | None = None,
) -> DataDirectory:
    """Open a data directory; create it when it is missing, unless `read_only`.

    One process at a time writes; any number of others read, each with the state at its opening
    until it calls `index.catch_up`.

    Args:
        path: the directory.
        fingerprint: of the checkpoint whose vectors it holds.
        dimension: of these vectors.
        read_only: take no lock, create nothing, publish nothing.
        find_families: look for near-duplicates of documents that are put.
        alignment: the space that blocks are aligned in until one is fitted to the collection, for
            a store that has none yet.
        index_precision: that the index holds vectors in; a snapshot of another one is built again.
            None for that of the snapshot, or the default if there is none.
        in_background: leave words that would take long to be counted to the maintenance;
            `store.counts_words` is true until then.
        engine: URL of the server that searches instead of this process. While it does not answer,
            the directory is open all the same.
        database: URL of the PostgreSQL that holds the store, instead of a file in the directory.

    Raises:
        DataDirectoryInUseError: another process has it open for writing.
        FingerprintMismatchError: its vectors are of another checkpoint.
        StoreError: it is not a directory, cannot be written, or its store is damaged.
    """
    with ExitStack() as open_files:
        if read_only:
            _check_exists(path, database)
        else:
            open_files.enter_context(locked(path))
        store = DocumentStore(
            path / STORE_FILE,
            fingerprint=fingerprint,
            dimension=dimension,
            read_only=read_only,
            find_families=find_families,
            space=alignment,
            database=database,
            searched_elsewhere=engine is not None,
        )
        open_files.callback(store.close)
        if engine is not None:
            require_extra("qdrant", "a Qdrant as the engine")
            from index.engine.qdrant.engine import connect  # its client takes long to import

            searched = connect(store, engine)
            if not read_only:
                try:
                    searched.catch_up()
                except EngineError as error:
                    _log.error("the engine does not follow the store: %s", error)
            return DataDirectory(path, store, searched, open_files.pop_all())
        index = LiveIndex(
            store,
            path / SNAPSHOT_FILE,
            read_only=read_only,
            precision=index_precision,
        )
        if not (in_background or read_only):
            store.lexical.finish(SilentProgress())
        return DataDirectory(path, store, LocalEngine(store, index), open_files.pop_all())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a data directory, which is created when it is missing.

    Raises:
        DataDirectoryInUseError: another process has it open for writing.
        StoreError: it is not a directory, or cannot be written.
    """
    _make_directory(path)
    with holding(path, LOCK_FILE, "in use by another process"):
        _finish_swap(path)
        yield


def settle(path: Path) -> None:
    """Finish a swap of the content that a kill interrupted, if there is one.

    Raises:
        DataDirectoryInUseError: another process has the directory open.
        StoreError: it cannot be written.
    """
    if swap_is_pending(path):
        with locked(path):
            pass  # taking the lock finishes it


def with_share_of(
    path: Path, checkpoint: Checkpoint, share: float | None = None, database: str | None = None
) -> Checkpoint:
    """Return a checkpoint with the reading share of a data directory, before it is opened.

    Args:
        path: the directory, which may be missing.
        checkpoint: any.
        share: to use; by default the one that the stored vectors were made with, or 1. Opening the
            directory compares them.
        database: URL of the PostgreSQL that holds the store, if one does.

    Raises:
        CheckpointError: it encodes every sentence block, and the share is less.
        StoreError: the store is damaged.
        ValueError: it is no share.
    """
    settle(path)
    store = path / STORE_FILE
    if share is None:
        space = read_space(store, database) if has_store(store, database) else None
        _, share = split_fingerprint("" if space is None else space.fingerprint)
    return with_reading_share(checkpoint, share)


def remembered_encoder(path: Path) -> str | None:
    """Return the name that a data directory remembers; None where it has none, or is damaged."""
    try:
        return str(json.loads((path / ENCODER_FILE).read_bytes())["encoder"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # the fingerprint of the vectors says whether another encoder fits


def remember_encoder(path: Path, checkpoint: Checkpoint) -> None:
    """Write the name of an encoder into a data directory whose vectors it has made.

    Raises:
        OSError: it cannot be written.
    """
    if remembered_encoder(path) != checkpoint.source:
        write_atomically(path / ENCODER_FILE, json.dumps({"encoder": checkpoint.source}) + "\n")


def _check_exists(path: Path, database: str | None) -> None:
    try:
        if swap_is_pending(path):
            raise StoreError(f"{path}: a swap of its content is unfinished: open it for writing")
        found = has_store(path / STORE_FILE, database)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    if not found:
        raise StoreError(f"{path}: there is no data directory here")


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{path}: is not a directory") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be created: {error}") from error


@contextmanager
def holding(path: Path, name: str, busy: str) -> Iterator[None]:
    """Hold a lock of a data directory during a block.

    Args:
        path: the directory.
        name: of the file in it.
        busy: what the error says if another process holds it.

    Raises:
        DataDirectoryInUseError: another process holds it.
        StoreError: the directory cannot be written.
    """
    # Not bound to this thread: a server opens in one thread and closes in another.
    lock = FileLock(path / name, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise DataDirectoryInUseError(f"{path}: {busy}") from error
    except (OSError, NotImplementedError) as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    try:
        yield
    finally:
        lock.release()


def swap_in(path: Path, new: str = ARRIVING) -> None:
    """Replace the content of a data directory by that of `new`, a folder in it.

    The caller holds the lock of the directory. After a kill the
    next opening finds the old content or the new one.

    Raises:
        StoreError: it could not be written.
    """
    try:
        sync_tree(path / new)
        replace_durably(path / new, path / _DECIDED)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    _finish_swap(path)


def _finish_swap(path: Path) -> None:
    """Finish a swap that was decided; does nothing where there is none.

    Raises:
        StoreError: it could not be written; a later call resumes.
    """
    decided = path / _DECIDED
    try:
        if (decided / STORE_FILE).exists():  # so nothing is moved in yet
            for name in CONTENT:
                delete(path / name)
            sync(path)
            (decided / STORE_FILE).replace(path / STORE_FILE)
        if decided.exists():
            for entry in decided.iterdir():
                entry.replace(path / entry.name)
            sync(path)
            decided.rmdir()
    except OSError as error:
        raise StoreError(f"{path}: a swap of its content is unfinished: {error}") from error


def swap_is_pending(path: Path) -> bool:
    """Return whether a swap was decided and not finished."""
    return (path / _DECIDED).exists()


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, if it is there.

    Raises:
        OSError: it cannot be deleted.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_tree(path: Path) -> None:
    """Write a directory and everything in it through to the disk.

    Raises:
        OSError: something cannot be written.
    """
    for folder, _, names in os.walk(path):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
