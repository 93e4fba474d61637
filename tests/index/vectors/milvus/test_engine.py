"""The collections of a data directory in a Milvus: whose they are, and what becomes of them."""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.directory.data_directory import SNAPSHOTS_DIRECTORY, DataDirectory, open_data_directory
from index.errors import VectorEngineError
from index.id_set import IdSet
from index.vectors.milvus.connection import MilvusAddress, MilvusConnection, parse_milvus_url
from index.vectors.milvus.engine import OWNER_FILE, drop_collections, open_milvus
from index.vectors.milvus.id_filters import IDS_A_REQUEST, id_filters
from index.vectors.milvus.milvus_index import MilvusIndex
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, MakeEntry, unit_vectors
from tests.tools.milvus import MilvusServer
from tests.tools.process_fixtures import START_SECONDS


@contextmanager
def opened(path: Path, milvus: MilvusAddress | None, **options: Any) -> Iterator[DataDirectory]:
    options = {"fingerprint": FINGERPRINT, "dimension": DIMENSION} | options
    with closing(open_data_directory(path, milvus=milvus, **options)) as directory:
        yield directory


def put(directory: DataDirectory, entry: MakeEntry, *names: str) -> None:
    directory.index.apply(directory.store.put([entry(name, f"text of {name}") for name in names]))


def found(directory: DataDirectory, name: str, entry: MakeEntry) -> list[int]:
    """Return the vector ids that are found for the text of a document, the nearest first."""
    vector = entry(name, f"text of {name}").vector
    ids = directory.index.search(vector[np.newaxis], 3).ids[0]
    return [one for one in ids.tolist() if one >= 0]


def is_first(directory: DataDirectory, name: str, entry: MakeEntry) -> bool:
    stored = directory.store.find([name])
    return name in stored and found(directory, name, entry)[:1] == [stored[name].vector_id]


def wait_for(directory: DataDirectory) -> None:
    """Wait until the client has reached a Milvus that was started again."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(VectorEngineError):
            directory.index.check()
            return


def collection(path: Path) -> str:
    """Return the collection that the current snapshot names."""
    root = path / SNAPSHOTS_DIRECTORY
    generation = (root / "CURRENT").read_text().split()[0]
    return str(json.loads((root / generation / "index.bin").read_text())["collection"])


def collections(address: MilvusAddress, path: Path) -> list[str]:
    """Return the collections of a data directory that are there."""
    owner = json.loads((path / OWNER_FILE).read_text())["owner"]
    with closing(MilvusConnection(address)) as connection:
        return [one for one in connection.call("list_collections") if owner in one]


@pytest.fixture
def data(tmp_path: Path, milvus_address: MilvusAddress, entry: MakeEntry) -> Iterator[Path]:
    """A data directory of three documents, whose vectors are in Milvus."""
    path = tmp_path / "data"
    with opened(path, milvus_address) as directory:
        put(directory, entry, "one", "two", "three")
    yield path
    drop_collections(milvus_address, path)


def test_what_is_stored_is_found_and_what_is_deleted_is_not(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    with opened(data, milvus_address) as directory:
        for number in range(20):
            put(directory, entry, f"new {number}")
            assert is_first(directory, f"new {number}", entry)
            gone = directory.store.find([f"new {number}"])[f"new {number}"].vector_id
            directory.index.apply(directory.store.delete([f"new {number}"]))
            assert gone not in found(directory, f"new {number}", entry)
        assert len(directory.index) == 3


def test_a_new_process_uses_the_same_collection_and_makes_up_for_changes(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    before = collection(data)
    with opened(data, milvus_address) as directory:
        directory.store.put([entry("four", "text of four")])  # and is killed before it is applied
        directory.store.delete(["one"])
    with opened(data, milvus_address) as directory:
        assert is_first(directory, "four", entry)
        assert len(directory.index) == 3
        assert directory.index.generation == 1
    assert collection(data) == before
    assert collections(milvus_address, data) == [before]


def test_another_generation_is_another_collection_and_the_old_one_is_dropped(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    before = collection(data)
    with opened(data, milvus_address) as directory:
        directory.index.rebuild()
        assert is_first(directory, "two", entry)
        after = collection(data)
        assert collections(milvus_address, data) == [after] != [before]


def test_what_a_kill_left_is_dropped(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    half = f"{collection(data).rpartition('_')[0]}_half"
    with closing(MilvusConnection(milvus_address)) as connection:
        connection.call("create_collection", half, dimension=DIMENSION)
        assert len(collections(milvus_address, data)) == 2
    with opened(data, milvus_address):
        assert collections(milvus_address, data) == [collection(data)]


def test_what_milvus_lost_or_has_besides_is_repaired(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    name = collection(data)
    with opened(data, milvus_address) as directory:
        directory.index.publish()
    with closing(MilvusConnection(milvus_address)) as connection:
        connection.call("delete", name, ids=[2])
        vector = unit_vectors(1, seed=9)[0]
        connection.call("upsert", name, data=[{"id": 99, "vector": vector}])
    with opened(data, milvus_address) as directory:
        assert directory.index.search(unit_vectors(1, seed=9), 9).ids.max() == 3
        assert all(is_first(directory, one, entry) for one in ("one", "two", "three"))
        assert collections(milvus_address, data) == [collection(data)] == [name]


@pytest.mark.parametrize("loss", ["collection", "snapshots"])
def test_it_is_built_again_from_the_store(
    data: Path,
    milvus_address: MilvusAddress,
    entry: MakeEntry,
    loss: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = collection(data)
    with opened(data, milvus_address) as directory:
        directory.index.publish()
    with closing(MilvusConnection(milvus_address)) as connection:
        if loss == "collection":
            connection.call("drop_collection", name)
        else:
            shutil.rmtree(data / SNAPSHOTS_DIRECTORY)
    with opened(data, milvus_address) as directory, caplog.at_level(logging.WARNING):
        assert len(directory.index) == 3
        assert all(is_first(directory, one, entry) for one in ("one", "two", "three"))
        assert collections(milvus_address, data) == [collection(data)] != [name]


def test_a_copy_of_a_data_directory_gets_collections_of_its_own(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    with opened(copy, milvus_address) as directory:
        put(directory, entry, "only here")
        directory.index.rebuild()
        assert len(collections(milvus_address, data)) == 2
    assert collection(copy) != collection(data)
    with opened(data, milvus_address) as directory:
        assert len(directory.index) == 3
    drop_collections(milvus_address, copy)
    with opened(data, milvus_address) as directory:
        assert is_first(directory, "one", entry)


def test_vectors_of_another_checkpoint_are_not_searched(
    data: Path, milvus_address: MilvusAddress
) -> None:
    before = collection(data)
    (data / "store.sqlite3").unlink()
    (data / ".store-digest").unlink()
    other = {"fingerprint": "b" * 64, "dimension": 2 * DIMENSION}
    with opened(data, milvus_address, **other) as directory:
        assert len(directory.index) == 0
        assert collections(milvus_address, data) == [collection(data)] != [before]


def test_from_faiss_and_back(data: Path, milvus_address: MilvusAddress, entry: MakeEntry) -> None:
    with opened(data, None) as directory:
        put(directory, entry, "four")
        assert is_first(directory, "four", entry)
    with opened(data, milvus_address) as directory:
        assert is_first(directory, "four", entry)
        assert collections(milvus_address, data) == [collection(data)]


def test_a_process_that_reads_finds_the_same(
    data: Path, milvus_address: MilvusAddress, entry: MakeEntry
) -> None:
    with opened(data, milvus_address) as writer:
        with opened(data, milvus_address, read_only=True) as reader:
            assert is_first(reader, "three", entry)
            put(writer, entry, "four")
            reader.index.catch_up()
            assert is_first(reader, "four", entry)
        assert collections(milvus_address, data) == [collection(data)]


def test_a_process_that_reads_beside_a_server_uses_its_collection(
    milvus_server: MilvusServer, tmp_path: Path, entry: MakeEntry
) -> None:
    address = parse_milvus_url(milvus_server.url)
    with opened(tmp_path, address) as writer:
        put(writer, entry, "one")
        writer.store.put([entry("two", "text of two")])  # is not in Milvus yet
        with opened(tmp_path, address, read_only=True) as reader:
            assert is_first(reader, "two", entry)
            writer.index.catch_up()
            reader.index.catch_up()
            assert is_first(reader, "two", entry)
        assert collections(address, tmp_path) == [collection(tmp_path)]


def test_a_change_that_failed_is_made_up_for(
    milvus_server: MilvusServer, tmp_path: Path, entry: MakeEntry
) -> None:
    address = parse_milvus_url(milvus_server.url, seconds=0.5)
    with opened(tmp_path, address) as directory:
        put(directory, entry, "one", "two")
        assert directory.index.problem is None
        milvus_server.kill()
        change = directory.store.put([entry("three", "text of three")])
        with pytest.raises(VectorEngineError):
            directory.index.apply(change)
        with pytest.raises(VectorEngineError):
            directory.index.search(unit_vectors(1, seed=1), 1)
        assert directory.index.problem is not None
        directory.store.delete(["three", "one"])
        milvus_server.start()
        wait_for(directory)
        directory.index.catch_up()
        put(directory, entry, "four")
        assert directory.index.problem is None
        assert is_first(directory, "four", entry)
        assert len(directory.index) == 2
    with opened(tmp_path, address) as directory:
        assert (len(directory.index), directory.index.generation) == (2, 1)


@pytest.mark.slow
def test_opening_without_the_milvus_is_an_error_and_loses_nothing(
    milvus_server: MilvusServer, tmp_path: Path, entry: MakeEntry
) -> None:
    address = parse_milvus_url(milvus_server.url, seconds=0.5)
    with opened(tmp_path, address) as directory:
        put(directory, entry, "one")
    milvus_server.kill()
    with pytest.raises(VectorEngineError), opened(tmp_path, address):
        pass
    milvus_server.start()
    with opened(tmp_path, address) as directory:
        assert is_first(directory, "one", entry)


def test_a_large_selection_is_searched_in_parts(milvus_address: MilvusAddress, data: Path) -> None:
    with opened(data, milvus_address) as directory:
        index = directory.index._live.index
        assert isinstance(index, MilvusIndex)
        count = 3 * IDS_A_REQUEST // 2
        listed = np.arange(10, 10 + count)
        for inverted in (False, True):
            filters = list(id_filters(IdSet(10 + count, listed, inverted), 5, index.ids))
            assert len(filters) == 2
        outside = IdSet(10 + count, np.append(np.arange(2), listed), inverted=False)
        assert index.search(unit_vectors(1, seed=3), 5, among=outside).ids[0].tolist()[:2] == [
            1,
            -1,
        ]
        within = IdSet(10 + count, listed, inverted=True)
        ids = index.search(unit_vectors(1, seed=3), 5, among=within).ids[0]
        assert sorted(ids.tolist()) == [-1, -1, 1, 2, 3]


def test_more_than_milvus_finds_at_once_are_found_in_parts(
    milvus_address: MilvusAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("id_filters", "milvus_index"):
        monkeypatch.setattr(f"index.vectors.milvus.{name}.MOST_FOUND", 5)
        monkeypatch.setattr(f"index.vectors.milvus.{name}.IDS_A_REQUEST", 5)
    vectors, query = unit_vectors(40, seed=1), unit_vectors(1, seed=2)
    with closing(open_milvus(milvus_address, tmp_path, read_only=False)) as engine:
        index = engine.backend.train(vectors[:0], 1)
        index.change(np.arange(40), vectors)
        best = np.argsort(-(vectors @ query[0]))
        assert index.search(query, 30).ids[0].tolist() == best[:30].tolist()
        for inverted in (False, True):
            among = IdSet(38, np.arange(0, 40, 2)[:19], inverted)
            kept = best[among.contains(best)]
            assert index.search(query, 15, among=among).ids[0].tolist() == kept[:15].tolist()
        engine.drop_others([])


@pytest.mark.parametrize("lost", ["upsert", "delete"])
def test_an_answer_that_is_lost_leaves_nothing_behind(
    milvus_address: MilvusAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Milvus does what it is asked to, and the process never learns of it."""
    vectors = unit_vectors(3, seed=1)
    with closing(open_milvus(milvus_address, tmp_path, read_only=False)) as engine:
        index = engine.backend.train(vectors[:0], 1)
        index.change(np.array([1]), vectors[:1])
        call = MilvusConnection.call

        def call_and_lose(self: MilvusConnection, name: str, *arguments: Any, **named: Any) -> Any:
            answer = call(self, name, *arguments, **named)
            if name == lost:
                raise VectorEngineError("the answer was lost")
            return answer

        with monkeypatch.context() as patched:
            patched.setattr(MilvusConnection, "call", call_and_lose)
            with pytest.raises(VectorEngineError, match="lost"):
                index.change(np.array([2]), vectors[1:2], removed=np.array([1]), sequence=7)
        assert (index.ids().tolist(), index.sequence) == ([1], 0)
        assert index.search(vectors[1:2], 3).ids.max() <= 1  # nothing of the change is found
        # The document was deleted before the change was repeated.
        index.change(np.array([3]), vectors[2:], removed=np.array([1]), sequence=8)
        assert index.search(vectors[1:2], 3).ids.tolist() == [[3, -1, -1]]
        assert isinstance(index, MilvusIndex)
        index.read_ids()
        assert index.ids().tolist() == [3]
        engine.drop_others([])
