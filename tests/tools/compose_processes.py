"""What `docker compose up` runs, as processes: for a machine without an engine.

    python -m tests.tools.compose_processes

The steps of the Dockerfile are taken in a folder and a clean virtual environment; then each service
whose program is on this machine runs with the very command, environment and health check of
docker-compose.yml. They run in a network of their own, where the names of the services mean this
machine, so that every port is free and is the one of the compose file. Only paths are others.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
WITHIN = "LONGMATCH_COMPOSE_PROCESSES"  # set inside the network of its own
HEALTHY_SECONDS = 120
SCRAPED_SECONDS = 60
PAGE = "Rivers carry water and stones to the sea. They flood in spring. " * 5

Instructions = list[tuple[str, str]]


def main() -> None:
    """Run everything, or say what failed and exit with 1."""
    if WITHIN not in os.environ:
        command = ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
        # Installing needs the network of the machine.
        with tempfile.TemporaryDirectory() as folder:
            image = build_image(Path(folder))
            ended = subprocess.run(
                [*command, sys.executable, "-m", "tests.tools.compose_processes", str(image)],
                env=os.environ | {WITHIN: "1"},
                cwd=ROOT,
            )
        raise SystemExit(ended.returncode)
    isolate()
    walk(Path(sys.argv[1]))


def build_image(folder: Path, requirements: str = "cpu") -> Path:
    """Take the steps of the Dockerfile's first stage; return the environment it leaves."""
    image, source = folder / "longmatch", folder / "src"
    source.mkdir()
    environment = clean_environment()
    for name, arguments in read_dockerfile():
        if name == "FROM" and " AS " not in arguments:
            break
        if name == "ENV":
            for key, value in re.findall(r"(\w+)=(\S+)", arguments):
                filled = value.replace("/opt/longmatch", str(image))
                environment[key] = filled.replace("$PATH", environment["PATH"])
        elif name == "COPY":
            *sources, target = arguments.replace("${REQUIREMENTS}", requirements).split()
            for one in sources:
                copy(ROOT / one, source / target, within=len(sources) > 1 or target == "./")
        elif name == "RUN":
            print(f"RUN {arguments}", flush=True)
            command = arguments.replace("/opt/longmatch", str(image))
            subprocess.run(["sh", "-ec", command], cwd=source, env=environment, check=True)
    return image


def copy(source: Path, target: Path, *, within: bool) -> None:
    """Copy as COPY does, without what .dockerignore leaves out of a package."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    elif within:
        shutil.copy(source, target / source.name)
    else:
        shutil.copy(source, target)


def read_dockerfile() -> Instructions:
    """Return the instructions of the Dockerfile, continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.strip().split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), arguments) for name, arguments in parts]


def clean_environment() -> dict[str, str]:
    """Return what a container inherits: nothing of this machine but how to reach a registry."""
    kept = ("PATH", "HOME", "LANG")
    return {k: v for k, v in os.environ.items() if k in kept or k.startswith(("PIP_", "SSL_"))}


def isolate() -> None:
    """Bring up the network of this process, where the names of the services mean 127.0.0.1."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    names = " ".join(read_compose()["services"])
    with tempfile.NamedTemporaryFile("w", delete=False) as hosts:
        hosts.write(f"127.0.0.1 localhost {names}\n")
    subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


def read_compose(file: Path = COMPOSE_FILE) -> dict[str, Any]:
    """Return a compose file with the default values of its variables filled in.

    What a service extends is filled in, too; a mounted file replaces the one at the same place.
    """
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", file.read_text())
    loaded: dict[str, Any] = yaml.safe_load(text)
    for name, service in loaded["services"].items():
        places = [volume.split(":") for volume in service.get("volumes", [])]
        service["volumes"] = [":".join([absolute(file, part[0]), *part[1:]]) for part in places]
        if "extends" in service:
            extended = service.pop("extends")
            base = read_compose(file.parent / extended["file"])["services"][extended["service"]]
            targets = {part[1] for part in places}
            kept = [one for one in base["volumes"] if one.split(":")[1] not in targets]
            volumes = [*kept, *service["volumes"]]
            loaded["services"][name] = base | service | {"volumes": volumes}
    return loaded


def absolute(file: Path, source: str) -> str:
    """Return the path of a mounted file, which a compose file names relative to itself."""
    return str((file.parent / source).resolve()) if source.startswith(".") else source


def walk(image: Path) -> None:
    """Start every service, walk its health check, use it, and stop it."""
    services = read_compose()["services"]
    instructions = dict(read_dockerfile())  # of each kind the last
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        for other, entrypoint in (("redis", []), ("prometheus", ["prometheus"])):
            command = [*entrypoint, *place(services[other], folder / other)]
            running.enter_context(process(other, command, services[other], folder))
        service = services["longmatch"]
        command = [*json.loads(instructions["CMD"])]
        command = [part.replace("/data", str(folder / "data")) for part in command]
        service["environment"]["PATH"] = f"{image / 'bin'}:{os.environ['PATH']}"
        with process("longmatch", command, service, folder) as longmatch:
            check = exec_form(instructions["HEALTHCHECK"])
            healthy("longmatch", [str(image / "bin/python"), *check[1:]])
            _, *check = services["redis"]["healthcheck"]["test"]
            healthy("redis", check, services["redis"]["environment"], expect="PONG")
            use_it()
            grace = float(service["stop_grace_period"].removesuffix("s"))
            longmatch.terminate()
            report("longmatch stops in its time", longmatch.wait(grace) == 0)
    skipped = set(services) - {"longmatch", "redis", "prometheus"}
    print(f"not run, for want of the program: {', '.join(sorted(skipped))}")


def place(service: dict[str, Any], folder: Path) -> list[str]:
    """Return the command of a service with its volumes in a folder; files mounted are copied."""
    folder.mkdir()
    command = " ".join(service["command"])
    for volume in service["volumes"]:
        source, target = volume.split(":")[:2]
        local = folder / target.strip("/")
        if source.startswith("/"):
            local.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, local)
        else:
            local.mkdir(parents=True, exist_ok=True)
        command = re.sub(rf"{target}(?=\s|$)", str(local), command)
    return command.split()


@contextmanager
def process(
    name: str, command: list[str], service: dict[str, Any], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command of a service; its output is shown if it ends by itself."""
    environment = clean_environment() | service.get("environment", {})
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        time.sleep(0.5)
        if running.poll() is not None:
            print(log.read_text(), file=sys.stderr)
        report(f"{name} runs: {' '.join(command[:2])} ...", running.poll() is None)
        yield running
    finally:
        running.kill()
        running.wait()


def exec_form(arguments: str) -> list[str]:
    """Return the list at the end of an instruction."""
    command: list[str] = json.loads(arguments[arguments.index("[") :])
    return command


def healthy(
    name: str, command: list[str], more: dict[str, str] | None = None, expect: str = ""
) -> None:
    """Repeat the health check of a service until it passes."""
    deadline = time.monotonic() + HEALTHY_SECONDS
    environment = clean_environment() | (more or {})
    while time.monotonic() < deadline:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ended.returncode == 0 and expect in ended.stdout:
            report(f"{name} is healthy", True)
            return
        time.sleep(0.5)
    print(ended.stdout, ended.stderr, file=sys.stderr)
    report(f"{name} is healthy", False)


def use_it() -> None:
    """Index and match through the published port, and see Redis and Prometheus know of it."""
    stored = {"documents": [{"id": "river", "text": PAGE}]}
    report("POST /index", post("/index", stored)["indexed"] == 1)
    report("POST /match", post("/match", {"text": PAGE})["matches"][0]["id"] == "river")
    ready = get("http://longmatch:8000/readyz")
    report("Redis takes its password", ready["degraded"] == [])
    query = "http://prometheus:9090/api/v1/query?query=longmatch_index_documents"
    deadline = time.monotonic() + SCRAPED_SECONDS
    while not get(query)["data"]["result"] and time.monotonic() < deadline:
        time.sleep(1)
    report("Prometheus has scraped it", bool(get(query)["data"]["result"]))


def post(path: str, body: object, host: str = "longmatch") -> Any:
    """Return the answer to a body of JSON."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"http://{host}:8000{path}", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def get(url: str, *, parse: bool = True) -> Any:
    """Return what an address answers, as JSON or as it is."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer) if parse else answer.read()


def report(what: str, passed: bool) -> None:
    """Print a line, or end everything where it failed."""
    print(f"{'ok' if passed else 'FAILED'}: {what}", flush=True)
    if not passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
