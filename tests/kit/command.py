"""The command `longmatch`, run in the process of the test."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from service.cli.main import main


class Answer(NamedTuple):
    """What a command left: its exit status, and what it wrote to standard output and error."""

    status: int
    out: str
    err: str


Run = Callable[..., Answer]


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command with the environment as it is and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["longmatch", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "400")
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


@pytest.fixture
def longmatch(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> Run:
    """Run the command with the tiny checkpoint and the data directory `tmp_path / "data"`.

    Its lines are wide enough not to be wrapped.
    """
    monkeypatch.setenv("LONGMATCH_ENCODER", str(tiny_checkpoint))
    monkeypatch.setenv("LONGMATCH_DATA", str(tmp_path / "data"))

    def run(*arguments: object) -> Answer:
        status = run_main(monkeypatch, *arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(status, captured.out, captured.err)

    return run
