"""The image: small, not root, without torch, and its health check tells the truth."""

import fnmatch
import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

Instructions = list[tuple[str, str]]


def arguments_of(instructions: Instructions, name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions if instruction == name]


def final_stage(instructions: Instructions) -> Instructions:
    starts = [place for place, (name, _) in enumerate(instructions) if name == "FROM"]
    return instructions[starts[-1] :]


def exec_form(arguments: str) -> list[str]:
    command: list[str] = json.loads(arguments[arguments.index("[") :])
    return command


def test_what_serving_needs_is_installed_and_nothing_of_training(
    instructions: Instructions, root: Path
) -> None:
    commands = " ".join(arguments_of(instructions, "RUN"))
    [script] = re.findall(r"python -c '([^']*)' > requirements.txt", commands)
    listed = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert listed.stdout.splitlines() == project["dependencies"] + extras["cpu"]
    assert "torch" not in listed.stdout + commands


def test_it_runs_as_a_user_without_rights_and_with_a_fixed_number(
    instructions: Instructions,
) -> None:
    stage = final_stage(instructions)
    uid, gid = arguments_of(stage, "USER")[-1].split(":")
    assert int(uid) >= 10_000
    assert int(gid) >= 10_000
    assert f"install -d -o {uid} -g {gid}" in " ".join(arguments_of(stage, "RUN"))


def test_every_stage_starts_from_the_same_pinned_image(instructions: Instructions) -> None:
    images = {image.split(" AS ")[0] for image in arguments_of(instructions, "FROM")}
    assert len(images) == 1
    assert images.pop().startswith("python:3.12-slim-")


def test_dependencies_are_installed_before_the_code_is_copied(instructions: Instructions) -> None:
    steps = [f"{name} {arguments}" for name, arguments in instructions]
    [dependencies] = [n for n, step in enumerate(steps) if "-r requirements.txt" in step]
    code = [n for n, step in enumerate(steps) if step.startswith(("COPY encoder", "COPY service"))]
    assert "-c constraints.txt" in steps[dependencies]
    assert code
    assert dependencies < min(code)


def test_what_is_copied_exists_and_reaches_the_builder(
    instructions: Instructions, root: Path
) -> None:
    rules = (root / ".dockerignore").read_text().splitlines()
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    copied = [
        source
        for arguments in arguments_of(instructions, "COPY")
        if not arguments.startswith("--from=")
        for source in arguments.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (root / source).exists(), source
        assert any(fnmatch.fnmatch(source, rule) for rule in let_in), source


def test_every_package_of_the_project_is_copied(instructions: Instructions, root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = " ".join(arguments_of(instructions, "COPY")).split()
    assert set(packages) <= set(copied)


def test_command_health_check_and_exposed_port_agree(instructions: Instructions) -> None:
    stage = final_stage(instructions)
    command = exec_form(arguments_of(stage, "CMD")[0])
    port = command[command.index("--port") + 1]
    assert command[:2] == ["longmatch", "serve"]
    assert arguments_of(stage, "EXPOSE") == [port]
    assert arguments_of(stage, "VOLUME") == [command[command.index("--data") + 1]]
    assert f"http://127.0.0.1:{port}/readyz" in arguments_of(stage, "HEALTHCHECK")[0]


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
def test_health_check_follows_readyz(
    instructions: Instructions, status: int, exit_code: int
) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    check = exec_form(arguments_of(instructions, "HEALTHCHECK")[0])
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = check[2].replace(":8000/", f":{server.server_port}/")
        ended = subprocess.run([sys.executable, *check[1:2], code], capture_output=True, timeout=30)
        server.shutdown()
    assert ended.returncode == exit_code


def test_health_check_fails_when_nothing_listens(instructions: Instructions) -> None:
    check = exec_form(arguments_of(instructions, "HEALTHCHECK")[0])
    code = check[2].replace(":8000/", ":1/")
    ended = subprocess.run([sys.executable, *check[1:2], code], capture_output=True, timeout=30)
    assert ended.returncode == 1


def test_onnx_runtime_is_told_not_to_report_home(instructions: Instructions) -> None:
    assert "ORT_DISABLE_TELEMETRY=1" in " ".join(arguments_of(final_stage(instructions), "ENV"))
