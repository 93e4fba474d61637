"""Build the image and run docker-compose.yml on a Docker engine: `make check-deploy` does.

    python -m tests.deploy.check_deploy

It uses the engine that `docker` reaches; without one, root starts dockerd with a socket and a
folder of this run. An image that cannot be pulled is made of Debian packages by debootstrap: that
of Python (in a copy of the Dockerfile), Redis and Prometheus. Grafana is no package of Debian:
without its image it is left out, which the output says. Ports 8000 and 9090 must be free.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = "longmatch-check"
DEBIAN = ROOT / "build/check-deploy/debian.tar"  # kept for the next run
TIMEOUT_S = 300.0
STOP_S = 30.0  # without requests in progress
URL = "http://127.0.0.1:8000"
SERIES = "http://127.0.0.1:9090/api/v1/query?query=longmatch_index_documents"
TEXT = "Rivers carry water and stones to the sea. They flood in spring. " * 5
STARS = f"Stars are hot balls of gas. {TEXT}"
PACKAGES = "ca-certificates,prometheus,python3,python3-venv,redis-server"
# What the official images have and a folder of Debian has not.
CHANGES = {
    "python": ["CMD python3"],
    "redis": ["WORKDIR /data", "VOLUME /data"],
    "prometheus": ['ENTRYPOINT ["/usr/bin/prometheus"]', "USER 65534:65534", "VOLUME /prometheus"],
}


def main() -> None:
    """Run all checks; exit with 1 at the first that fails."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix=PROJECT, dir="/var/tmp")
        folder = Path(stack.enter_context(temporary))
        folder.chmod(0o755)
        if not succeeds("docker", "info"):
            stack.enter_context(daemon(folder / "engine"))
        compose = Compose(folder, find_images(folder))
        stack.callback(compose, "down", "--volumes", "--timeout", "5")
        try:
            check(compose, folder)
        except (AssertionError, OSError) as error:
            print(compose("logs", "--tail", "50"), f"FAILED: {error}", sep="\n", flush=True)
            raise SystemExit(1) from None


@contextmanager
def daemon(folder: Path) -> Iterator[None]:
    """Run a Docker engine with its socket and all its files in a folder."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise SystemExit("no Docker engine runs, and only root with dockerd can start one")
    folder.mkdir()
    os.environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    command = ["unshare", "--mount", "dockerd", f"--host={os.environ['DOCKER_HOST']}"]
    command += [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/id"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait("an engine of this run starts", lambda: succeeds("docker", "info"))
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def find_images(folder: Path) -> dict[str, str]:
    """Build, pull or make images; return that of each service that can run."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    [base] = set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
    made = find_image("python", base) or base
    (folder / "Dockerfile").write_text(dockerfile.replace(f"FROM {base}", f"FROM {made}"))
    images = {"longmatch": f"{PROJECT}:built"}
    options = [] if made == base else ["--network", "host"]
    options += ["--tag", images["longmatch"], "--file", str(folder / "Dockerfile"), str(ROOT)]
    # The builder without BuildKit needs no plugin.
    run("docker", "build", *options, env=os.environ | {"DOCKER_BUILDKIT": "0"})
    report("the image is built")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    others = {name: service["image"] for name, service in services.items() if "image" in service}
    found = {name: find_image(name, image) for name, image in others.items()}
    return images | {name: image for name, image in found.items() if image}


def find_image(name: str, image: str) -> str | None:
    """Pull an image, or make one; return its name, or None."""
    if succeeds("docker", "pull", "--quiet", image):
        return image
    if name not in CHANGES:
        print(f"left out: {name}, whose image cannot be pulled", flush=True)
        return None
    if not DEBIAN.exists():
        bootstrap()
    changes = [part for change in CHANGES[name] for part in ("--change", change)]
    run("docker", "import", *changes, str(DEBIAN), f"{PROJECT}:{name}")
    print(f"made of Debian packages: {name}, whose image cannot be pulled", flush=True)
    return f"{PROJECT}:{name}"


def bootstrap() -> None:
    """Pack Debian from the mirror of this machine, with what its pip needs to reach an index."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    text = "".join(source.read_text() for source in sources if source.exists())
    mirror = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+)", text, re.MULTILINE)
    assert mirror, "no mirror of Debian in /etc/apt"
    [suite] = re.findall(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    DEBIAN.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DEBIAN.parent) as name:
        root = Path(name) / "root"
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase"]
        run(*command, f"--include={PACKAGES}", suite, str(root), mirror[1])
        (root / "usr/bin/python").symlink_to("python3")
        for path, user, group in (("data", 999, 1000), ("prometheus", 65534, 65534)):
            (root / path).mkdir()
            os.chown(root / path, user, group)
        listed = run(sys.executable, "-m", "pip", "config", "list")
        settings = dict(re.findall(r"\.(index-url|cert|trusted-host)='(.*)'", listed))
        if "cert" in settings:
            shutil.copy(settings["cert"], root / "etc/pip.crt")
            settings["cert"] = "/etc/pip.crt"
        lines = [f"{key} = {value}" for key, value in settings.items()]
        (root / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        run("tar", "-C", str(root), "-cf", f"{name}/packed", ".")
        Path(name, "packed").rename(DEBIAN)


class Compose:
    """docker compose on the compose file, with the images of this run."""

    def __init__(self, folder: Path, images: dict[str, str]) -> None:
        self.services = list(images)
        override = {"services": {name: {"image": image} for name, image in images.items()}}
        (folder / "images.yml").write_text(yaml.safe_dump(override))
        plugin = succeeds("docker", "compose", "version")
        self._command = ["docker", "compose"] if plugin else ["docker-compose"]
        self._command += ["--project-directory", str(ROOT), "--project-name", PROJECT]
        for file in (ROOT / "docker-compose.yml", folder / "images.yml"):
            self._command += ["--file", str(file)]

    def __call__(self, *arguments: str) -> str:
        return run(*self._command, *arguments)

    def state(self, service: str) -> Any:
        """Return what the engine knows of the container of a service."""
        return json.loads(run("docker", "inspect", self("ps", "--quiet", "-a", service)))[0]

    def wait_until_healthy(self, service: str, when: str) -> None:
        wait(
            f"{service} is healthy {when}",
            lambda: self.state(service)["State"]["Health"]["Status"] == "healthy",
        )

    def inside(self, script: str) -> str:
        """Return what a script of the shell prints in the container of longmatch."""
        return self("exec", "-T", "longmatch", "sh", "-c", script)


def check(compose: Compose, folder: Path) -> None:
    """Do what an operator does, and what happens to a machine."""
    compose("up", "--no-build", "--detach", *compose.services)
    for service in ("longmatch", "redis"):
        compose.wait_until_healthy(service, "at first")
    check_rights(compose)
    assert request("POST", "/index", {"documents": [{"id": "river", "text": TEXT}]})["indexed"] == 1
    report("a document is stored")
    assert request("GET", "/readyz")["degraded"] == []
    report("Redis takes the password of the compose file")
    wait("Prometheus has scraped longmatch", lambda: get(SERIES)["data"]["result"])
    check_kill(compose)
    check_offline_job(compose, folder)
    began = time.monotonic()
    compose("stop", "longmatch")
    seconds = time.monotonic() - began
    code = compose.state("longmatch")["State"]["ExitCode"]
    assert (code, seconds < STOP_S) == (0, True), f"stopped in {seconds:.1f} s with status {code}"
    report(f"it stops in {seconds:.1f} s")


def check_rights(compose: Compose) -> None:
    """See that the process has none."""
    assert compose.inside("id -u; id -g").split() == ["10001", "10001"]
    status = compose.inside("cat /proc/self/status")
    for row in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert row in status, row
    tried = "for f in / /opt/longmatch /etc /data /tmp; do (: >$f/x) 2>/dev/null && echo $f; done"
    assert compose.inside(f"{tried}; rm -f /data/x /tmp/x").split() == ["/data", "/tmp"]
    report("user 10001 without capabilities writes to /data and /tmp alone")


def check_kill(compose: Compose) -> None:
    """Kill every process in the container while documents are stored."""
    stored = ["river"]

    def store() -> None:
        while True:
            name = f"d{len(stored)}"
            try:
                request("POST", "/index", {"documents": [{"id": name, "text": f"{name}. {TEXT}"}]})
            except OSError:
                return
            stored.append(name)

    restarts = compose.state("longmatch")["RestartCount"]
    thread = threading.Thread(target=store)
    thread.start()
    wait("documents are being stored", lambda: len(stored) > 20)
    subprocess.run(["docker", "exec", compose.state("longmatch")["Id"], "sh", "-c", "kill -9 -1"])
    thread.join()
    wait("kill -9: restarted", lambda: compose.state("longmatch")["RestartCount"] > restarts)
    compose.wait_until_healthy("longmatch", "after kill -9")
    for name in stored:
        request("GET", f"/documents/{name}")
    matches = request("POST", "/match", {"text": TEXT, "top_k": 100})["matches"]
    assert "river" in [match["id"] for match in matches], matches
    report(f"none of {len(stored)} documents is lost")


def check_offline_job(compose: Compose, folder: Path) -> None:
    """Index a folder with the server stopped, as docs/operations.md says."""
    (folder / "corpus").mkdir()
    (folder / "corpus/offline.txt").write_text(STARS)
    compose("stop", "longmatch")
    job = ["longmatch", "longmatch", "index", "/corpus", "--data", "/data"]
    compose("run", "--rm", "-T", "--volume", f"{folder}/corpus:/corpus:ro", *job)
    compose("start", "longmatch")
    compose.wait_until_healthy("longmatch", "after the offline job")
    matches = request("POST", "/match", {"text": STARS})["matches"]
    assert "offline" in matches[0]["id"], matches
    report("the document of the offline job is found")


def request(method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    return get(urllib.request.Request(URL + path, data, headers, method=method))


def get(address: str | urllib.request.Request) -> Any:
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def wait(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not try_once(holds):
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(0.5)
    report(what)


def try_once(holds: Callable[[], object]) -> object:
    try:
        return holds()
    except OSError:
        return False  # nothing listens yet


def report(what: str) -> None:
    print(f"ok: {what}", flush=True)


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Return what a command prints; show all of it where it fails."""
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}{ended.stderr}FAILED: {' '.join(command)}")
    return ended.stdout.strip()


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
