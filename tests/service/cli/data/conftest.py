"""A data directory with 24 indexed documents, and what is asked of it."""

import json
import shutil
from pathlib import Path

import pytest

from index.store.schema import read_space
from tests.kit.command import Run, run_main

WORDS = ("violin orchestra sonata", "granite basalt lava", "harbour sailor anchor")


@pytest.fixture(scope="session")
def indexed(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the corpus and of the data directory, which are copied for each test."""
    folder = tmp_path_factory.mktemp("indexed")
    path = folder / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(24):
            text = f"{WORDS[number % 3]} number {number}. It is long, and it ends here."
            metadata = {"year": 1990 + number % 5, "sign": -1, "tags": ["a", {"b": number / 2}]}
            document = {"id": f"d{number}", "text": text, "metadata": metadata}
            file.write(json.dumps(document) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGMATCH_ENCODER", str(tiny_checkpoint))
        assert run_main(patch, "index", path, "--data", folder / "data") == 0
    return folder


@pytest.fixture
def corpus(indexed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(indexed / "corpus.jsonl", tmp_path))


@pytest.fixture
def data(indexed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(indexed / "data", tmp_path / "data"))


def query(data: Path) -> Path:
    file = data.parent / "query.txt"
    file.write_text(WORDS[1])
    return file


def matches(longmatch: Run, data: Path, *options: object) -> object:
    answer = longmatch("match", query(data), "--data", data, "--json", *options)
    assert answer.status == 0, answer.err
    rounded = json.loads(answer.out, parse_float=lambda number: round(float(number), 5))
    return rounded["matches"]


def vars_of(data: Path) -> dict[str, object]:
    space = read_space(data / "store.sqlite3")
    return {"fingerprint": space.fingerprint, "dimension": space.dimension}
