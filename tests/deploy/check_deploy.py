"""Build the image and run docker-compose.yml on a Docker engine: `make check-deploy` does.

    python -m tests.deploy.check_deploy

It uses the engine that `docker` reaches; without one, root starts dockerd on a socket and in a
folder of this run. An image that cannot be pulled is made of Debian packages by debootstrap: that
of Python (in a copy of the Dockerfile), Redis and Prometheus. Grafana is no Debian package: without
its image it is left out, and the output says so. Ports 8000 and 9090 must be free.
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
IMAGE = f"{PROJECT}:built"
DEBIAN = ROOT / "build/check-deploy/debian.tar"  # kept for the next run
TIMEOUT_S = 300.0
STOP_S = 30.0  # without requests in progress
URL = "http://127.0.0.1:8000"
SERIES = "http://127.0.0.1:9090/api/v1/query?query=longmatch_index_documents"
TEXT = "Rivers carry water and stones to the sea. They flood in spring. " * 5
PACKAGES = "ca-certificates,prometheus,python3,python3-venv,redis-server"
# How the official images differ from a folder of Debian.
CHANGES = {
    "python": ["CMD python3"],
    "redis": ["WORKDIR /data", "VOLUME /data", "CMD redis-server"],
    "prometheus": ['ENTRYPOINT ["/usr/bin/prometheus"]', "USER 65534:65534", "VOLUME /prometheus"],
}


def main() -> None:
    """Run all checks; exit with 1 at the first that fails."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=PROJECT, dir="/var/tmp"))
        )
        if not succeeds("docker", "info"):
            stack.enter_context(daemon(folder / "engine"))
        services = build_images(folder)
        compose = Compose(folder, services)
        stack.callback(compose, "down", "--volumes", "--timeout", "5")
        try:
            check(compose, folder)
        except (AssertionError, OSError, subprocess.CalledProcessError) as error:
            print(f"FAILED: {error}", flush=True)
            compose("logs", "--tail", "50")
            raise SystemExit(1) from None


@contextmanager
def daemon(folder: Path) -> Iterator[None]:
    """Run a Docker engine with its socket and all its files in a folder."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise SystemExit("no engine runs, and only root with dockerd can start one")
    folder.mkdir()
    os.environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    # Its mounts end with it.
    command = [
        "unshare",
        "--mount",
        "dockerd",
        f"--host={os.environ['DOCKER_HOST']}",
        f"--data-root={folder}/data",
    ]
    command += [f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait("an engine of this run starts", lambda: succeeds("docker", "info"))
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def build_images(folder: Path) -> dict[str, str]:
    """Pull the images or make them of packages; return the image of each service that can run."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    [base] = set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
    options = []
    if not pull(base):
        import_image("python")
        dockerfile = dockerfile.replace(f"FROM {base}", f"FROM {PROJECT}:python")
        options = ["--network", "host"]
    (folder / "Dockerfile").write_text(dockerfile)
    built = [
        "docker",
        "build",
        "--quiet",
        "--tag",
        IMAGE,
        "--file",
        str(folder / "Dockerfile"),
        *options,
    ]
    # The builder without BuildKit needs no plugin.
    run(*built, str(ROOT), env=os.environ | {"DOCKER_BUILDKIT": "0"})
    images = {"longmatch": IMAGE}
    for name, service in services.items():
        if "image" not in service:
            continue
        if pull(service["image"]):
            images[name] = service["image"]
        elif name in CHANGES:
            images[name] = import_image(name)
    left_out = sorted(set(services) - set(images))
    print(f"services: {', '.join(images)}; left out: {', '.join(left_out) or 'none'}", flush=True)
    return images


def pull(image: str) -> bool:
    pulled = succeeds("docker", "pull", "--quiet", image)
    print(f"{'pulled' if pulled else 'cannot be pulled, '}: {image}", flush=True)
    return pulled


def import_image(name: str) -> str:
    """Make an image of a folder of Debian, which is kept for the next run."""
    if not DEBIAN.exists():
        bootstrap()
    changes = [part for change in CHANGES[name] for part in ("--change", change)]
    run("docker", "import", *changes, str(DEBIAN), f"{PROJECT}:{name}", stdout=subprocess.DEVNULL)
    return f"{PROJECT}:{name}"


def bootstrap() -> None:
    """Pack Debian's packages from the mirror of this machine, and how its pip finds an index."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    text = "".join(source.read_text() for source in sources if source.exists())
    mirror = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+)", text, re.MULTILINE)
    assert mirror, "no mirror of Debian in /etc/apt"
    [suite] = re.findall(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    DEBIAN.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DEBIAN.parent) as name:
        root = Path(name) / "root"
        command = [
            "unshare",
            "--mount",
            "debootstrap",
            "--variant=minbase",
        ]  # its mounts end with it
        command += [f"--include={PACKAGES}", suite, str(root), mirror[1]]
        run(*command, stdout=subprocess.DEVNULL)
        (root / "usr/bin/python").symlink_to("python3")
        for path, user, group in (("data", 999, 1000), ("prometheus", 65534, 65534)):
            (root / path).mkdir()
            os.chown(root / path, user, group)
        settings = dict(
            re.findall(
                r"\.(index-url|cert|trusted-host)='(.*)'",
                output(sys.executable, "-m", "pip", "config", "list"),
            )
        )
        if "cert" in settings:
            shutil.copy(settings["cert"], root / "etc/pip.crt")
            settings["cert"] = "/etc/pip.crt"
        lines = [f"{key} = {value}" for key, value in settings.items()]
        (root / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        packed = DEBIAN.with_suffix(".part")
        run("tar", "-C", str(root), "-cf", str(packed), ".")
        packed.rename(DEBIAN)


class Compose:
    """docker compose on the compose file, with the images of this run."""

    def __init__(self, folder: Path, images: dict[str, str]) -> None:
        self.services = list(images)
        override = {"services": {name: {"image": image} for name, image in images.items()}}
        (folder / "images.yml").write_text(yaml.safe_dump(override))
        plugin = succeeds("docker", "compose", "version")
        self._command = [*(["docker", "compose"] if plugin else ["docker-compose"])]
        self._command += ["--project-directory", str(ROOT), "--project-name", PROJECT]
        self._command += ["--file", str(ROOT / "docker-compose.yml")]
        self._command += ["--file", str(folder / "images.yml")]

    def __call__(self, *arguments: str) -> None:
        run(*self._command, *arguments)

    def output(self, *arguments: str) -> str:
        return output(*self._command, *arguments)

    def state(self, service: str) -> Any:
        """Return what the engine knows of the container of a service."""
        container = self.output("ps", "--quiet", "-a", service)
        return json.loads(output("docker", "inspect", container))[0]

    def is_healthy(self, service: str) -> bool:
        return bool(self.state(service)["State"]["Health"]["Status"] == "healthy")

    def inside(self, script: str) -> str:
        """Return what a script of the shell prints in the container of longmatch."""
        return self.output("exec", "-T", "longmatch", "sh", "-c", script)


def check(compose: Compose, folder: Path) -> None:
    """Do what an operator does, and what happens to a machine."""
    compose("up", "--no-build", "--detach", *compose.services)
    for service in ("longmatch", "redis"):
        if service in compose.services:
            wait(f"{service} is healthy", lambda name=service: compose.is_healthy(name))
    check_rights(compose)
    assert request("POST", "/index", {"documents": [{"id": "river", "text": TEXT}]})["indexed"] == 1
    report("a document is stored")
    assert request("GET", "/readyz")["degraded"] == []
    report("Redis takes the password of the compose file")
    if "prometheus" in compose.services:
        wait("Prometheus has scraped longmatch", lambda: bool(get(SERIES)["data"]["result"]))
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
    written = "for f in / /opt/longmatch /etc /data /tmp; do (: >$f/x) 2>/dev/null && echo $f; done"
    assert compose.inside(f"{written}; rm -f /data/x /tmp/x").split() == ["/data", "/tmp"]
    report("user 10001 without capabilities writes to /data and /tmp alone")


def check_kill(compose: Compose) -> None:
    """Kill every process in the container while documents are stored."""
    stored: list[str] = ["river"]

    def store() -> None:
        try:
            while True:
                name = f"d{len(stored)}"
                request("POST", "/index", {"documents": [{"id": name, "text": f"{name}. {TEXT}"}]})
                stored.append(name)
        except OSError:
            return

    restarts = compose.state("longmatch")["RestartCount"]
    thread = threading.Thread(target=store)
    thread.start()
    wait("documents are being stored", lambda: len(stored) > 20)
    compose("exec", "-T", "longmatch", "sh", "-c", "kill -9 -1")
    thread.join()
    wait("it is restarted", lambda: compose.state("longmatch")["RestartCount"] > restarts)
    wait("it is healthy after kill -9", lambda: compose.is_healthy("longmatch"))
    for name in stored:
        request("GET", f"/documents/{name}")
    found = request("POST", "/match", {"text": TEXT})["matches"]
    assert "river" in [match["id"] for match in found], found
    report(f"none of {len(stored)} documents is lost")


def check_offline_job(compose: Compose, folder: Path) -> None:
    """Index a folder with the server stopped, as docs/operations.md says."""
    corpus = folder / "corpus"
    corpus.mkdir()
    folder.chmod(0o755)
    (corpus / "offline.txt").write_text(f"Stars are hot balls of gas. {TEXT}")
    compose("stop", "longmatch")
    mount = ["--volume", f"{corpus}:/corpus:ro"]
    job = ["longmatch", "index", "/corpus", "--data", "/data"]
    compose("run", "--rm", *(["-T"] if sys.stdin.isatty() else []), *mount, "longmatch", *job)
    compose("start", "longmatch")
    wait("it is healthy after the offline job", lambda: compose.is_healthy("longmatch"))
    found = request("POST", "/match", {"text": f"Stars are hot balls of gas. {TEXT}"})["matches"]
    assert "offline" in found[0]["id"], found
    report("the offline job's document is found")


def request(method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    return get(urllib.request.Request(URL + path, data, headers, method=method))


def get(address: str | urllib.request.Request) -> Any:
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def wait(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if holds():
                return report(what)
        except (OSError, KeyError):
            pass  # not yet
        assert time.monotonic() < deadline, f"not in {TIMEOUT_S:.0f} s: {what}"
        time.sleep(0.5)


def report(what: str) -> None:
    print(f"ok: {what}", flush=True)


def run(*command: str, **options: Any) -> None:
    subprocess.run(command, check=True, **options)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
