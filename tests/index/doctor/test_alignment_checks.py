"""The doctor finds what is wrong with the aligned blocks, and makes them again."""

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import neutral_space
from index.doctor.findings import Remedy
from index.doctor.repair import rebuild_alignment_tables
from index.doctor.store_checks import examine_alignment, examine_database
from index.progress import SilentProgress
from index.sqlite.connections import SQLiteConnections
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, OpenStore
from tests.tools.paragraphs import entry_of

DOCUMENTS = 600  # more than are checked at a time


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is filled once; do not change it."""
    path = tmp_path_factory.mktemp("sound") / "store.sqlite3"
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    with closing(SQLiteDocumentStore(path, **about)) as store:
        store.alignment.start_with(neutral_space(DIMENSION))
        store.put([entry_of(f"d{n}", [n % 50, n % 7], blocks=n > 0) for n in range(DOCUMENTS)])
    return path


@pytest.fixture
def filled(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound.parent, tmp_path, dirs_exist_ok=True)) / sound.name


def test_nothing_is_wrong_with_a_sound_store(filled: Path) -> None:
    assert list(examine_alignment(filled)) == []
    assert list(examine_database(filled)) == []


def test_a_store_without_a_space_has_nothing_to_check(store: SQLiteDocumentStore) -> None:
    store.put([entry_of("a", [1])])
    assert list(examine_alignment(store.path)) == []


DAMAGES = [
    ("UPDATE alignment_blocks SET content = zeroblob(24) WHERE vector_id = 7", "vector id 7 are"),
    ("UPDATE alignment_blocks SET content = 'text' WHERE vector_id = 599", "vector id 599 are"),
    ("UPDATE alignment_blocks SET checksum = 0 WHERE vector_id = 3", "vector id 3 are damaged"),
    ("DELETE FROM alignment_blocks WHERE vector_id IN (5, 9)", "2 documents with block vectors"),
    ("UPDATE alignment_spaces SET content = x'00'", "alignment space 1 is missing or damaged"),
    ("DROP TABLE alignment_blocks", "no such table: alignment_blocks"),
    ("DROP TABLE alignment_spaces", "no such table: alignment_spaces"),
]


@pytest.mark.parametrize(("statement", "problem"), DAMAGES)
def test_what_is_wrong_is_found_and_made_again(
    filled: Path, open_store: OpenStore, statement: str, problem: str
) -> None:
    ids = list(range(2, DOCUMENTS + 1))
    with closing(open_store(filled)) as store:
        before = store.alignment.read(ids)
        assert before is not None
    sql(filled, statement)
    [finding] = examine_alignment(filled)
    assert problem in finding.problem
    assert finding.remedy == Remedy.ALIGN
    with closing(SQLiteConnections(filled, read_only=False)) as connections:
        rebuild_alignment_tables(connections)
    store = open_store(filled)
    store.alignment.start_with(neutral_space(DIMENSION))
    assert store.alignment.pending() == DOCUMENTS - 1
    store.alignment.refresh(SilentProgress(), fit=False)
    assert list(examine_alignment(filled)) == []
    after = store.alignment.read(ids)
    assert after is not None
    assert set(after.blocks) == set(before.blocks) == set(ids)
    for vector_id in ids:
        np.testing.assert_array_equal(after.blocks[vector_id].codes, before.blocks[vector_id].codes)
        np.testing.assert_array_equal(
            after.blocks[vector_id].hubness, before.blocks[vector_id].hubness
        )
