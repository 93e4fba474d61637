from pathlib import Path

import pytest

from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.tools.index_fixtures import MakeEntry, OpenStore


def fill_and_delete(store: SQLiteDocumentStore, entry: MakeEntry) -> None:
    names = [f"d{number}" for number in range(60)]
    store.put([entry(name, f"{name} " + "word " * 20_000) for name in names])
    store.delete(names[5:])


@pytest.mark.slow
def test_the_space_of_deleted_documents_goes_back_to_the_disk(
    open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    store = open_store()
    fill_and_delete(store, entry)
    before = store.reclaim(0)
    assert before.free_share > 0.8
    assert before.free_bytes == before.free * before.page_size > 5_000_000

    step = store.reclaim(100)
    assert (step.free, step.pages) == (before.free - 100, before.pages - 100)
    after = store.reclaim(1_000_000)
    assert after.free == 0
    assert sorted(store.find([f"d{number}" for number in range(60)])) == [
        "d0", "d1", "d2", "d3", "d4"
    ]  # fmt: skip
    store.close()  # moves the log into the file

    assert (tmp_path / "store.sqlite3").stat().st_size == after.pages * after.page_size
    assert sql(store.path, "PRAGMA integrity_check") == [("ok",)]
