"""`longmatch pairs`: the pairs of a data directory, also after an interruption."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import index.search.pairs
import service.cli.pairs
from service.cli.checks import OptionError
from service.cli.main import make_app


def run(*arguments: str | Path) -> int:
    return CliRunner().invoke(make_app(), [*map(str, arguments)], catch_exceptions=False).exit_code


@pytest.fixture
def command(tiny_checkpoint: Path, tmp_path: Path) -> list[str | Path]:
    corpus = tmp_path / "corpus.jsonl"
    texts = [f"Colony {n} sends {n * n} foragers to the oak of nest {n % 3}." for n in range(7)]
    lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts)]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    data = tmp_path / "data"
    assert run("index", corpus, "--data", data, "--checkpoint", tiny_checkpoint) == 0
    return ["pairs", data, "--checkpoint", tiny_checkpoint, "-o", tmp_path / "pairs.jsonl"]


def test_an_interrupted_run_goes_on_and_writes_the_same(
    command: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, position = tmp_path / "pairs.jsonl", tmp_path / "pairs.jsonl.position"
    monkeypatch.setattr(index.search.pairs, "TILE", 2)
    monkeypatch.setattr(service.cli.pairs, "_SECONDS_BETWEEN_POSITIONS", 0.0)
    assert run(*command, "--min-score", "-1") == 0
    whole = output.read_bytes()
    assert len(whole.splitlines()) == 21
    assert not position.exists()

    find = service.cli.pairs.find_pairs
    begun_at = []

    def interrupted(search: Any, first_tile: int = 0) -> Any:
        begun_at.append(first_tile)
        for done, found in find(search, first_tile):
            yield done, found
            if done == first_tile + 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(service.cli.pairs, "find_pairs", interrupted)
    assert run(*command, "--min-score", "-1") == 130
    assert position.exists()
    with pytest.raises(OptionError, match=r"--output: .*other options"):
        run(*command, "--min-score", "0")
    assert run(*command, "--min-score", "-1") == 130
    monkeypatch.setattr(service.cli.pairs, "find_pairs", find)
    assert run(*command, "--min-score", "-1") == 0
    assert begun_at == [0, 3]
    assert output.read_bytes() == whole
    assert not position.exists()


def test_bounds_are_needed_and_must_be_calibrated(command: list[str | Path]) -> None:
    with pytest.raises(OptionError, match="--min-score: give this"):
        run(*command)
    with pytest.raises(OptionError, match=r"--max-false-positive-rate: .*calibrate"):
        run(*command, "--max-false-positive-rate", "0.1")
