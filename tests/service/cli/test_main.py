"""The command line itself: its help, its answer to wrong usage, and which commands it loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.command import Run


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["index", "nowhere"], 2, "nowhere"),
        (["match", "nowhere.txt"], 2, "nowhere.txt"),
        (["embed", "nowhere", "-o", "v.npz"], 2, "nowhere"),
        (["embed", ".", "-o", "no/such/folder/v.npz"], 2, "is not a folder"),
        (["evaluate", ".", "noqrels"], 2, "noqrels"),
        (["index", ".", "--precision", "int4"], 2, "int4"),
        (["index", ".", "--provider", "cuda"], 2, "cuda"),
        (["index", ".", "--checkpoint", "nocheckpoint"], 2, "nocheckpoint"),
        (["index", "nowhere", "--threads", "0"], 2, "--threads"),
        (["match", "x.txt", "--top-k", "0"], 2, "--top-k"),
        (["serve", "--port", "70000"], 2, "--port"),
        (["export", "nocheckpoint", "--precision", "int8"], 2, "nocheckpoint"),
        (["create-checkpoint", "norecipe", "--bert", "x", "-o", "y"], 2, "norecipe"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    longmatch: Run,
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = longmatch(*arguments)
    assert answer.status == status
    assert message in answer.err


@pytest.mark.parametrize("command", ["index", "serve", "match", "embed", "evaluate", "demo"])
def test_every_command_explains_itself(longmatch: Run, command: str) -> None:
    answer = longmatch(command, "--help")
    assert answer.status == 0
    assert f"longmatch {command}" in answer.out


@pytest.mark.slow
def test_a_command_is_the_only_one_of_its_process_and_any_other_word_brings_all() -> None:
    code = "import sys; from service.cli.main import make_app; make_app(sys.argv[1]); print("
    code += "*(f'service.cli.{name}' in sys.modules for name in ('data', 'training')))"
    for asked, expected in (
        ("doctor", "True False"),
        ("train", "False True"),
        ("docter", "True True"),
    ):
        found = subprocess.run([sys.executable, "-c", code, asked], capture_output=True, text=True)
        assert found.stdout.split() == expected.split(), found.stderr


def test_a_server_begins_to_load_its_graphs_before_it_imports_the_rest() -> None:
    code = "import sys, service.cli.main, service.cli.serving.serve; print("
    code += "*(name in sys.modules for name in ('fastapi', 'index.build', 'onnxruntime')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "False", "True"], found.stderr
