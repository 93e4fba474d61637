"""Each rule of the architecture finds what it should, in planted source trees."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.test_architecture import (
    EVERYTHING,
    MOST_LINES,
    MOST_MODULES,
    against_faces,
    against_late_imports,
    against_order,
    against_owners,
    against_packages,
    against_serving,
    against_sizes,
)
from tests.tools.imports import SourceTree


def plant(root: Path, files: Mapping[str, str]) -> SourceTree:
    """Write a tree of modules, each of its imports."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree(root, EVERYTHING)


LATE = "def f():\n    import {}\n"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("encoder/blocks.py", "from index import errors", "encoder.blocks imports index.errors"),
        ("index/errors.py", "import evaluation.metrics", "imports evaluation.metrics"),
        ("service/encode.py", "from evaluation.metrics import f", "imports evaluation.metrics"),
        ("service/encode.py", LATE.format("service.cli.main"), "imports service.cli.main"),
        ("benchmarks/run.py", "from service.cli import main", "imports service.cli.main"),
        ("benchmarks/run.py", 'RUN = "service.cli.main:main"', "imports service.cli.main"),
    ],
)
def test_an_import_against_the_packages_is_found(
    tmp_path: Path, file: str, text: str, found: str
) -> None:
    names = ("index/errors", "evaluation/metrics", "service/cli/main", "service/cli/data")
    good = {f"{name}.py": "" for name in names} | {"service/cli/data.py": "import training.loop"}
    good |= {"training/loop.py": "import evaluation.metrics"}
    assert list(against_packages(plant(tmp_path / "good", good))) == []
    offenders = list(against_packages(plant(tmp_path / "bad", {**good, file: text})))
    assert len(offenders) == 1
    assert found in offenders[0]


def test_an_arrow_that_is_turned_round_is_found(tmp_path: Path) -> None:
    order = {"index": ("errors", "store", "search adapt")}
    good = {
        "index/errors.py": "",
        "index/store/table.py": "from index.errors import E\nfrom index.store import rows",
        "index/store/rows.py": "",
        "index/search/search.py": "from index.store.table import T",
        "index/adapt.py": "from index.store import table",
    }
    assert list(against_order(plant(tmp_path / "good", good), order)) == []
    for file, text, found in (
        ("index/errors.py", "import index.store.rows", "index.errors imports index.store.rows"),
        ("index/store/rows.py", LATE.format("index.adapt"), "index.store.rows imports index.adapt"),
        ("index/adapt.py", "from index.search import search", "index.adapt imports"),
        ("index/other.py", "", "index.other has no place"),
    ):
        planted = plant(tmp_path / found.replace(" ", "-"), {**good, file: text})
        assert [line for line in against_order(planted, order) if line.startswith(found)]
    (tmp_path / "good" / "index" / "errors.py").unlink()
    assert "index.errors is gone" in against_order(SourceTree(tmp_path / "good", ["index"]), order)


@pytest.mark.parametrize(
    "back",
    ["import index.a", "from index import a", "from index.a import f", LATE.format("index.a")],
)
def test_a_cycle_is_found(tmp_path: Path, back: str) -> None:
    files = {"index/a.py": "import index.b", "index/b.py": "import index.c", "index/c.py": ""}
    assert plant(tmp_path, files).cycle() == []
    assert {"index.a", "index.b", "index.c"} == {
        *plant(tmp_path, {**files, "index/c.py": back}).cycle()
    }


def test_a_late_import_is_found(tmp_path: Path) -> None:
    files = {
        "index/a.py": LATE.format("index.b"),
        "index/b.py": LATE.format("sklearn") + LATE.format("training.loop"),
        "training/loop.py": "",
        "service/a.py": "if TYPE_CHECKING:\n    from index.b import B",
    }
    assert list(against_late_imports(plant(tmp_path, files))) == [
        "index.a imports index.b late",
        "service.a imports index.b late",
    ]


def test_an_import_past_the_face_is_found(tmp_path: Path) -> None:
    faces = {"index.store": "store", "index": "errors"}
    files = {
        "index/errors.py": "",
        "index/store/store.py": "import index.errors\nimport index.store.tables",
        "index/store/tables.py": "from index import secret",
        "index/secret.py": "",
        "index/build.py": "import index.store.store",
        "service/a.py": "import index.errors",
    }
    assert list(against_faces(plant(tmp_path, files), faces)) == []
    files["service/b.py"] = "import index.secret"
    files["index/build.py"] = "import index.store.tables"
    assert sorted(against_faces(plant(tmp_path, files), faces)) == [
        "index.build imports index.store.tables, which is private to index.store",
        "index.store.store is listed, and no other folder imports it",
        "service.b imports index.secret, which is private to index",
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("encoder/blocks.py", "import torch.nn as nn"),
        ("index/store/a.py", "import faiss"),
        ("service/encode.py", "from starlette import requests"),
        ("index/a.py", LATE.format("onnxruntime")),
        ("service/cli/a.py", "from onnx import helper"),
        ("encoder/models/a.py", "import onnx"),
    ],
)
def test_a_library_in_the_wrong_place_is_found(tmp_path: Path, file: str, text: str) -> None:
    good = {
        "encoder/models/smith.py": "import torch",
        "encoder/export/a.py": "import torch, onnx, onnxruntime",
        "index/vectors/faiss/faiss_index.py": "import faiss",
        "service/api/app.py": "import fastapi",
    }
    assert list(against_owners(plant(tmp_path / "good", good))) == []
    assert len(list(against_owners(plant(tmp_path / "bad", {**good, file: text})))) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("encoder/blocks.py", "import encoder.models.smith"),
        ("index/a.py", LATE.format("encoder.models.smith")),
        ("service/cli/a.py", "from encoder.models import smith"),
    ],
)
def test_serving_with_the_training_half_is_found(tmp_path: Path, file: str, text: str) -> None:
    good = {
        "encoder/models/smith.py": "",
        "encoder/export/a.py": "import encoder.models.smith",
        "training/loop.py": "import encoder.models.smith",
        "service/cli/a.py": LATE.format("encoder.models.smith"),
    }
    assert list(against_serving(plant(tmp_path / "good", good))) == []
    assert len(list(against_serving(plant(tmp_path / "bad", {**good, file: text})))) == 1


def test_what_has_grown_is_found(tmp_path: Path) -> None:
    files = {f"index/m{number}.py": "" for number in range(MOST_MODULES - 1)}
    files |= {"index/__init__.py": "", "index/m0.py": "\n" * MOST_LINES}
    assert list(against_sizes(plant(tmp_path, files))) == []
    files |= {"index/one_more.py": "\n" * (MOST_LINES + 1)}
    assert list(against_sizes(plant(tmp_path, files))) == [
        f"index.one_more has {MOST_LINES + 1} lines",
        f"index has {MOST_MODULES + 1} modules",
    ]
