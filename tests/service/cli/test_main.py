"""The command line itself: its help, its answer to wrong usage, and which commands it loads."""

import re
import subprocess
import sys

import pytest

from service.settings import Settings
from tests.kit.command import Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "nowhere", "--actors", "0"], "--actors"),
        (["match", "x.txt", "--top-k", "0"], "--top-k"),
        (["match", "x.txt", "--mode", "fuzzy"], "'semantic', 'lexical', 'hybrid'"),
        (["serve", "--port", "70000"], "--port"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_is_refused(longmatch: Run, arguments: list[str], message: str) -> None:
    answer = longmatch(*arguments)
    assert answer.status == 2
    assert message in answer.err


@pytest.mark.parametrize("command", ["serve", "evaluate", "lab train"])
def test_every_command_explains_itself(longmatch: Run, command: str) -> None:
    assert re.fullmatch(r"longmatch \d+\.\d+\.\d+\n", longmatch("--version").out)
    answer = longmatch(*command.split(), "--help")
    assert answer.status == 0
    assert f"longmatch {command}" in answer.out


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["train", "x", "--help"], "longmatch train is now longmatch lab train"),
        (["bench", "x"], "longmatch bench is now python -m benchmarks.models, in the repository"),
        (["match", "x.txt", "--checkpoint=best"], "--checkpoint: is now --encoder"),
        (["index", "x", "--precision", "int8"], "--precision: is now LONGMATCH_PRECISION"),
    ],
)
def test_what_was_removed_is_refused_with_what_replaces_it(
    longmatch: Run, words: list[str], instead: str
) -> None:
    assert longmatch(*words) == (2, "", f"error: {instead}\n")


def test_a_removed_setting_is_refused_by_every_command(
    longmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGMATCH_CHECKPOINT", "best")
    answer = longmatch("match", "x.txt")
    assert (answer.status, "any more: LONGMATCH_ENCODER" in answer.err) == (2, True)


def test_every_setting_is_printed(longmatch: Run) -> None:
    printed = longmatch("settings").out
    names = [line.split()[0] for line in printed.splitlines() if line.startswith("LONGMATCH_")]
    assert names == [f"LONGMATCH_{name.upper()}" for name in sorted(Settings.model_fields)]
    for name, field in Settings.model_fields.items():
        assert f"LONGMATCH_{name.upper()} (default: " in printed
        assert f"    {field.description}\n" in printed
    assert "LONGMATCH_DATA (default: longmatch-data)" in printed
    assert "LONGMATCH_ENCODER (default: none)" in printed
    assert "LONGMATCH_ALLOW_ANONYMOUS (default: false)" in printed


@pytest.mark.parametrize(
    ("words", "data"), [(["doctor", "--help"], "True"), (["--version"], "False")]
)
def test_a_command_is_the_only_one_of_its_process(words: list[str], data: str) -> None:
    code = "import atexit, sys; from service.cli.main import main; atexit.register(lambda: print("
    code += "*(f'service.cli.{name}' in sys.modules for name in ('data', 'lab')))); main()"
    run = [sys.executable, "-c", code, *words]
    found = subprocess.run(run, capture_output=True, text=True)
    assert found.stdout.split()[-2:] == [data, "False"], found.stderr


def test_a_server_loads_its_graphs_before_it_imports_the_rest() -> None:
    code = "import sys, service.cli.main, service.cli.serve; print("
    code += "*(name in sys.modules for name in ('fastapi', 'index.build', 'onnxruntime')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "False", "True"], found.stderr
