"""Measurements in parts: each is made once, and a part that might not end in time is not begun."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.gpu.parts import Part, run_parts


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    measured: list[str] = []

    def part(name: str) -> Part:
        def measure(results: dict[str, Any]) -> dict[str, int]:
            measured.append(name)
            return {"before": len(results)}

        return Part(name, measure)

    first = run_parts([part("a"), part("b")], tmp_path / "work", 1.0)
    again = run_parts([part("a"), part("b"), part("c")], tmp_path / "work", 1.0)
    assert first == {"a": {"before": 0}, "b": {"before": 1}}
    assert again == first | {"c": {"before": 2}}
    assert measured == ["a", "b", "c"]


def test_when_the_time_is_up_the_rest_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(results: dict[str, Any]) -> None:
        raise AssertionError("was begun")

    run_parts([Part("a", lambda _: 1)], tmp_path, 1.0)
    with pytest.raises(typer.Exit) as stopped:
        run_parts([Part("a", fails), Part("b", fails)], tmp_path, 0.0)
    assert stopped.value.exit_code == os.EX_TEMPFAIL
    assert "run the same command again" in capsys.readouterr().out


def test_a_part_that_fails_keeps_those_before(tmp_path: Path) -> None:
    def fails(results: dict[str, Any]) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        run_parts([Part("a", lambda _: 1), Part("b", fails)], tmp_path, 1.0)
    assert run_parts([Part("a", fails), Part("b", lambda _: 2)], tmp_path, 1.0) == {"a": 1, "b": 2}
