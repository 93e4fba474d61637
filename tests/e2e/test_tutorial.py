"""The commands of pages, in their order, in one shell, as a new user would type them.

Without a network: what asks for another machine gets to a proxy that is not there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit.process_fixtures import free_port

ROOT = Path(__file__).parents[2]
STEPS = 10  # with a block of commands
SECONDS = 900
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
NO_NETWORK |= {"no_proxy": "127.0.0.1,localhost"}
NO_NETWORK |= {name.upper(): value for name, value in NO_NETWORK.items()}
SMALLER = {"LONGMATCH_ENCODER": "fast", "LONGMATCH_READING_SHARE": "0.1"}  # encoding takes long
TUTORIAL = ("0 left out", "pickle.txt", '"note/2"', '"explanation"', "no problems found")
HOW_TO = ("0 left out", '"right"', '"bees"', '"wasps"', "pickle-old.txt 0.", "no problems found")


def commands(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.parametrize(
    ("page", "shown", "made"),
    [
        ("tutorial.md", TUTORIAL, {"report.html": "<!doctype html>", "key.txt": "lm_"}),
        pytest.param("how-to.md", HOW_TO, {"reader.txt": "lm_"}, marks=pytest.mark.slow),
    ],
)
def test_the_commands_of_a_page_work(
    page: str, shown: Sequence[str], made: Mapping[str, str], tmp_path: Path
) -> None:
    blocks = commands(page)
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
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LONGMATCH_")} | SMALLER
    path = f"{programs}:{kept['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=kept | NO_NETWORK | {"PATH": path, "PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    output = ended.stdout + ended.stderr
    for expected in shown:
        assert expected in output, expected
    for name, beginning in made.items():
        assert (tmp_path / name).read_text().startswith(beginning)
    assert "Traceback" not in output
