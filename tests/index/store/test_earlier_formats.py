"""R15: data that an earlier release wrote opens in this one, and answers as it did there."""

import importlib.util
import json
import shutil
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from index.doctor.derived_checks import examine_words
from index.doctor.store_checks import examine_database, examine_rows
from index.store.schema import SCHEMA_VERSION

DATA = Path(__file__).parents[2] / "data"
WRITTEN = sorted(DATA.glob("format-*"))


def load_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("maker", DATA / "make_data_directory.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    return maker


def test_the_present_format_is_kept_for_later_releases() -> None:
    assert f"format-{SCHEMA_VERSION}" in [path.name for path in WRITTEN]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda path: path.name)
def test_it_opens_and_answers_the_same(written: Path, tmp_path: Path) -> None:
    maker = load_maker()
    shutil.copytree(written, tmp_path / "data")
    expected = json.loads((written / "answers.json").read_text())
    for _ in range(2):  # as it was, and as this release has left it
        with closing(maker.open_directory(tmp_path / "data")) as directory:
            assert directory.index.generation == 2
            given = json.loads(json.dumps(maker.answers(directory)))
            assert given.pop("scores") == [
                pytest.approx(row, abs=2e-5) for row in expected["scores"]
            ]
            assert given == {key: expected[key] for key in given}
    store = tmp_path / "data" / "store.sqlite3"
    assert list(examine_database(store)) == []
    assert list(examine_rows(store, maker.DIMENSION)) == []
    assert list(examine_words(store)) == []


@pytest.mark.parametrize("written", WRITTEN, ids=lambda path: path.name)
def test_it_takes_changes(written: Path, tmp_path: Path) -> None:
    maker = load_maker()
    shutil.copytree(written, tmp_path / "data")
    with closing(maker.open_directory(tmp_path / "data")) as directory:
        change = directory.store.put(maker.entries([7], maker.unit(maker.DOCUMENTS, 1), " again"))
        directory.index.apply(change)
        assert directory.index.search(maker.unit(maker.DOCUMENTS, 1)[7:8], 1).ids.tolist() == [
            change.added.tolist()
        ]
        assert len(directory.index) == maker.DOCUMENTS
