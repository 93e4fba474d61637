"""The examples in the README of the Python client, as they stand there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "clients/python/README.md"


def test_the_examples_work(
    serve: Callable[..., Any],
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 4
    printed = []
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        names = {"url": server.url}
        for example in examples:
            exec(compile(example, README, "exec"), names)
            printed.append(capsys.readouterr().out)
    first, second, third, fourth = printed
    assert first.startswith("bees Bees {'year': 2021} ")
    assert "tokens were read" in first
    assert "500 indexed, 0 failed []" in second
    assert "100% indexed" in second
    assert "notes/new" in third
    assert fourth.startswith("422 /problems/invalid-input ")
    assert "#/text: the text is empty" in fourth
