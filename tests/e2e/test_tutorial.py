"""The commands of the tutorial, in their order, in one shell, as a new user would type them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.tools.process_fixtures import free_port

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorial.md"
STEPS = 10  # with a block of commands
SECONDS = 240


def commands() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)


def test_the_commands_of_the_tutorial_work(tmp_path: Path) -> None:
    blocks = commands()
    assert len(blocks) >= STEPS
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, call in {
        "longmatch": "-c 'from service.cli.main import main; main()'",
        "python": "",
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        (programs / name).chmod(0o755)
    ended_with_it = "set -em; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script = ended_with_it + "\n".join(blocks).replace("8000", str(free_port()))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LONGMATCH_")}
    path = f"{programs}:{kept['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=kept | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = ended.stdout + ended.stderr
    for expected in ("0 left out", "pickle.txt", '"note/2"', '"explanation"', "no problems found"):
        assert expected in shown, expected
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "key.txt").read_text().startswith("lm_")
    assert "Traceback" not in shown
