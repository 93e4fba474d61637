"""The collections of one data directory in a Milvus, as a backend of the live index.

Every generation of the index is a collection of its own, `longmatch_OWNER_RANDOM`. The first half
of the owner is random, and in the data directory:

    milvus.json     {"owner": "…"}

The second half is a digest of the inode and the ctime of that file, which no program can copy. So a
copy of the data directory, such as a restored backup, has collections of its own: two processes
never write to one.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from encoder.arrays import Float32
from encoder.atomic_files import write_atomically
from index.errors import SnapshotError, StoreError, VectorEngineError
from index.vectors.backends import Backend
from index.vectors.lists import choose_nlist
from index.vectors.milvus.connection import MilvusAddress, MilvusConnection
from index.vectors.milvus.id_filters import ID_FIELD
from index.vectors.milvus.milvus_index import VECTOR_FIELD, MilvusIndex
from index.vectors.milvus.words_engine import WordsEngine
from index.vectors.vector_index import VectorIndex

OWNER_FILE = "milvus.json"
MOST_LISTS = 65_536  # of Milvus

_NOBODY = "nobody"  # has no collections

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MilvusEngine:
    """An open Milvus, and the part of it that belongs to one data directory."""

    connection: MilvusConnection
    owner: str

    @property
    def backend(self) -> Backend:
        """The backend that keeps the vectors of this data directory."""
        return Backend(
            name="milvus-fp32",
            choose_nlist=self._choose_nlist,
            train=self._make,
            load=self._load,
            settle=_settle,
            drop_others=self.drop_others,
            problem=lambda: self.connection.problem,
            check=self.connection.check,
            keeps_changes=True,
        )

    @property
    def words(self) -> WordsEngine:
        """What keeps the words of this data directory."""
        return WordsEngine(self.connection, self.owner)

    def drop_others(self, saved: Collection[Path], live: VectorIndex | None = None) -> None:
        """Drop the collections of this data directory but those in use, and words if not in use.

        Args:
            saved: files of the snapshots that are in use.
            live: the index in use.

        Raises:
            VectorEngineError: Milvus does not answer.
        """
        kept = {_saved_name(one) for one in saved}
        if isinstance(live, MilvusIndex):
            kept.add(live.name)
        for name in self.connection.call("list_collections"):
            if name.startswith(self._prefix) and name not in kept:
                _log.info("dropping the collection %s, which is no longer used", name)
                self.connection.call("drop_collection", name)
        if not self.connection.address.words:
            self.words.drop_others()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @property
    def _prefix(self) -> str:
        return f"longmatch_{self.owner}_"

    def _choose_nlist(self, count: int) -> int:
        return self._possible_nlist(choose_nlist(count))

    def _possible_nlist(self, nlist: int) -> int:
        # A Milvus Lite ignores how many lists it is asked for: there, all vectors are compared.
        return 1 if self.connection.is_lite else min(nlist, MOST_LISTS)

    def _make(self, sample: Float32, nlist: int) -> VectorIndex:
        name = f"{self._prefix}{secrets.token_hex(4)}"
        nlist = self._possible_nlist(nlist)
        return _make_collection(self.connection, name, sample.shape[1], nlist)

    def _load(self, path: Path) -> VectorIndex:
        name, _ = _read_saved(path)
        if not name.startswith(self._prefix):
            raise SnapshotError(f"{path}: the collection {name} is of another data directory")
        return _load_collection(self.connection, path)


def open_milvus(address: MilvusAddress, data: Path, *, read_only: bool) -> MilvusEngine:
    """Connect to a Milvus for a data directory, which exists.

    Raises:
        StoreError: the owner of the collections cannot be written.
        VectorEngineError: the Milvus cannot be used.
    """
    owner = _read_owner(data)
    if owner is None and not read_only:
        _write_owner(data)
        owner = _read_owner(data)
    return MilvusEngine(MilvusConnection(address), owner or _NOBODY)


def drop_collections(address: MilvusAddress, data: Path) -> None:
    """Drop all collections of a data directory, which is being removed, with its words.

    Raises:
        VectorEngineError: they could not be dropped.
    """
    owner = _read_owner(data)
    if owner is None:
        return
    engine = MilvusEngine(MilvusConnection(address), owner)
    try:
        engine.drop_others([])
        engine.words.drop_others()
    finally:
        engine.close()


def _make_collection(
    connection: MilvusConnection, name: str, dimension: int, nlist: int
) -> MilvusIndex:
    """Make a new, empty collection.

    Raises:
        VectorEngineError: it cannot be made.
    """
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ID_FIELD, DataType.INT64, is_primary=True)
    schema.add_field(VECTOR_FIELD, DataType.FLOAT_VECTOR, dim=dimension)
    lists = MilvusClient.prepare_index_params()
    kind, parameters = ("FLAT", {}) if nlist == 1 else ("IVF_FLAT", {"nlist": nlist})
    lists.add_index(VECTOR_FIELD, index_type=kind, metric_type="IP", params=parameters)
    connection.call("create_collection", name, schema=schema, consistency_level="Session")
    connection.call("create_index", name, lists, sync=False)  # there is nothing to wait for
    connection.call("load_collection", name)
    return MilvusIndex(connection, name, dimension, nlist)


def _load_collection(connection: MilvusConnection, path: Path) -> MilvusIndex:
    """Use the collection that `MilvusIndex.save` named in a file.

    Raises:
        SnapshotError: the file cannot be read, or there is no such collection.
        VectorEngineError: Milvus does not answer.
    """
    name, nlist = _read_saved(path)
    if not connection.call("has_collection", name):
        raise SnapshotError(f"{path}: {connection.address} has no collection {name}")
    load_seconds = connection.address.load_seconds
    try:
        fields = connection.call("describe_collection", name)["fields"]
        dimension = next(one["params"]["dim"] for one in fields if one["name"] == VECTOR_FIELD)
        connection.call("load_collection", name, seconds=load_seconds)
        index = MilvusIndex(connection, name, int(dimension), nlist)
        index.read_ids()
    except VectorEngineError as error:
        if not error.answered:
            raise
        raise SnapshotError(f"{path}: the collection {name} cannot be used: {error}") from error
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise SnapshotError(f"{path}: the collection {name} was not made by Longmatch") from error
    return index


def _read_saved(path: Path) -> tuple[str, int]:
    """Return the name of the collection and the number of lists in a file that `save` wrote.

    Raises:
        SnapshotError: the file cannot be read.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return str(saved["collection"]), int(saved["nlist"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error


def _settle(index: VectorIndex) -> None:
    if isinstance(index, MilvusIndex):
        index.settle()


def _saved_name(path: Path) -> str:
    try:
        return _read_saved(path)[0]
    except SnapshotError:
        return ""  # of another engine, or damaged


def _read_owner(data: Path) -> str | None:
    try:
        owner = json.loads((data / OWNER_FILE).read_text(encoding="utf-8"))["owner"]
        file = (data / OWNER_FILE).stat()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    digest = hashlib.sha256(f"{file.st_ino} {file.st_ctime_ns}".encode()).hexdigest()
    return f"{owner}{digest[:8]}"


def _write_owner(data: Path) -> None:
    text = json.dumps({"owner": secrets.token_hex(8)}) + "\n"
    try:
        write_atomically(data / OWNER_FILE, text)
    except OSError as error:
        raise StoreError(f"{data / OWNER_FILE}: cannot be written: {error}") from error
