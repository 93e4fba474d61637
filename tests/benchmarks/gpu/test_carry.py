"""Files come whole out of the parts they were cut into, or not at all."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.carry import CarryError, join, main, split

SIZE = 10_000
ROOT = Path(__file__).parents[3]


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "given" / "checkpoint"
    (folder / "fp16").mkdir(parents=True)
    (folder / "fp16" / "graph.onnx").write_bytes(random.Random(1).randbytes(35_000))
    (folder / "config.json").write_text("{}")
    wheel = tmp_path / "given" / "one.whl"
    wheel.write_bytes(random.Random(2).randbytes(12_345))
    return [folder, wheel]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_split_is_joined(sources: list[Path], tmp_path: Path) -> None:
    count = split(sources, tmp_path / "parts", SIZE)
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) == count > 4
    assert all((part / "data").stat().st_size <= SIZE for part in parts)
    assert sorted(join(tmp_path / "parts", tmp_path / "out")) == ["checkpoint", "one.whl"]
    assert content(tmp_path / "out") == content(tmp_path / "given")


def test_missing_and_damaged_parts_are_named(sources: list[Path], tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    split(sources, parts, SIZE)
    shutil.rmtree(parts / "part-002")
    damaged = parts / "part-004" / "data"
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    with pytest.raises(CarryError, match=r"part-002, part-004"):
        join(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_without_the_first_one(tmp_path: Path) -> None:
    with pytest.raises(CarryError, match=r"manifest\.json: cannot be read"):
        join(tmp_path, tmp_path / "out")


def test_nothing_is_written_over(sources: list[Path], tmp_path: Path) -> None:
    split(sources, tmp_path / "parts", SIZE)
    with pytest.raises(CarryError, match="already"):
        split(sources, tmp_path / "parts", SIZE)
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    with pytest.raises(CarryError, match="checkpoint: is there already"):
        join(tmp_path / "parts", tmp_path / "out")


def test_what_cannot_be_split_is_refused(sources: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CarryError, match="same name"):
        split([sources[1], sources[1]], tmp_path / "parts", SIZE)
    with pytest.raises(CarryError, match="not there"):
        split([tmp_path / "none"], tmp_path / "parts", SIZE)
    assert not (tmp_path / "parts").exists()


def test_joining_takes_nothing_but_python(sources: list[Path], tmp_path: Path) -> None:
    assert main(["split", *map(str, sources), "-o", str(tmp_path / "parts")]) == 0
    command = [sys.executable, "-I", "-S", ROOT / "benchmarks" / "gpu" / "carry.py"]
    done = subprocess.run(
        [*command, "join", tmp_path / "parts", "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "unpacked: checkpoint, one.whl\n"
    assert content(tmp_path / "out") == content(tmp_path / "given")
    again = [*command, "join", tmp_path / "parts", "-o", tmp_path / "out"]
    refused = subprocess.run(again, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "already" in refused.stderr
