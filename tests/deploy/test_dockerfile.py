"""The image: not root, without torch, and its health check is right; an engine is not needed."""

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

from encoder.checkpoint import (
    BLOCK_GRAPH,
    DEFAULT_CHECKPOINT,
    DOCUMENT_GRAPH,
    WEIGHTS,
    load_checkpoint,
)

Instructions = list[tuple[str, str]]


def arguments_of(instructions: Instructions, name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions if instruction == name]


def exec_form(arguments: str) -> list[str]:
    command: list[str] = json.loads(arguments[arguments.index("[") :])
    return command


def pins_of(file: Path) -> dict[str, str]:
    """Versions by name; each with its hashes, unless it is the file of constraints."""
    text = file.read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        name, version, rest = re.fullmatch(r"([\w.-]+)==(\S+)(.*)", line).groups()  # type: ignore[union-attr]
        assert "--hash=sha256:" in rest or file.name == "constraints.txt", name
        found[name.lower()] = version
    return found


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_serving_needs_is_installed_by_hash(
    instructions: Instructions, root: Path, device: str
) -> None:
    installs = [run for run in arguments_of(instructions, "RUN") if "pip install" in run]
    assert "--require-hashes --requirement requirements.txt" in installs[0]
    assert "--require-hashes --requirement build.txt" in installs[1]
    assert all("--no-deps" in run for other in installs[1:] for run in other.split(" && ")[2:-1])
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"]
    if device == "gpu":
        of_gpu = {"faiss-cpu>=1.9": "faiss-gpu", "onnxruntime>=1.24": "onnxruntime-gpu"}
        needed = [of_gpu.get(name, name) for name in needed]
    pinned = pins_of(root / f"deploy/requirements/{device}.txt")
    assert {re.match(r"[\w-]+", name)[0].lower() for name in needed} <= set(pinned)  # type: ignore[index]
    assert "torch" not in pinned
    assert "hatchling" in pins_of(root / "deploy/requirements/build.txt")
    known = pins_of(root / "constraints.txt")
    shared = set(known) & set(pinned)
    assert len(shared) > 0.9 * len(pinned)  # all but those of other versions of Python
    assert {name: known[name] for name in shared} == {name: pinned[name] for name in shared}


def test_every_stage_starts_from_the_same_pinned_image(instructions: Instructions) -> None:
    images = {image.split(" AS ")[0] for image in arguments_of(instructions, "FROM")}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+@sha256:[0-9a-f]{64}", images.pop())


def test_every_package_is_copied_and_reaches_the_builder(
    instructions: Instructions, root: Path
) -> None:
    rules = (root / ".dockerignore").read_text().splitlines()
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    copied = [
        source
        for arguments in arguments_of(instructions, "COPY")
        if not arguments.startswith("--from=")
        for source in arguments.replace("${REQUIREMENTS}", "cpu").split()[:-1]
    ]
    for source in copied:
        assert (root / source).exists(), source
        assert any(fnmatch.fnmatch(source, f"{rule}*") for rule in let_in), source
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_image_for_a_gpu_has_what_graphs_in_fp16_read(
    instructions: Instructions, root: Path, tmp_path: Path, device: str
) -> None:
    run = next(run for run in arguments_of(instructions, "RUN") if WEIGHTS in run)
    installed = tmp_path / "lib/python3.12/site-packages/encoder/checkpoints/smith-minilm-l6"
    installed.mkdir(parents=True)
    line = run.replace("/opt/longmatch", str(tmp_path))
    subprocess.run(line, shell=True, check=True, cwd=root, env={"REQUIREMENTS": device})
    assert (installed / WEIGHTS).exists() == (device == "gpu")
    assert WEIGHTS not in (root / ".dockerignore").read_text()
    graphs = {graph for graph in load_checkpoint(DEFAULT_CHECKPOINT).files if "fp16" in graph}
    assert graphs == {f"fp16/{BLOCK_GRAPH}", f"fp16/{DOCUMENT_GRAPH}"}


def test_user_command_health_check_and_port_agree(instructions: Instructions) -> None:
    command = exec_form(arguments_of(instructions, "CMD")[0])
    port = command[command.index("--port") + 1]
    data = command[command.index("--data") + 1]
    assert command[:2] == ["longmatch", "serve"]
    assert arguments_of(instructions, "EXPOSE") == [port]
    assert arguments_of(instructions, "VOLUME") == [data]
    assert f"http://127.0.0.1:{port}/readyz" in arguments_of(instructions, "HEALTHCHECK")[0]
    uid, gid = arguments_of(instructions, "USER")[-1].split(":")
    assert int(uid) >= 10_000
    assert f"install -d -o {uid} -g {gid} -m 0750 {data}" in arguments_of(instructions, "RUN")[-1]


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
        ended = subprocess.run([sys.executable, *check[1:2], code], capture_output=True)
        server.shutdown()
    assert ended.returncode == exit_code


def test_onnx_runtime_is_told_not_to_report_home(instructions: Instructions) -> None:
    assert "ORT_DISABLE_TELEMETRY=1" in " ".join(arguments_of(instructions, "ENV"))
