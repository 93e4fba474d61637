"""Build the image and run docker-compose.yml on a Docker engine: `make check-deploy` does.

    python -m tests.deploy.check_deploy

It uses the engine that `docker` reaches. Ports 3000, 8000 and 9090 must be free.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT = "longmatch-check"
TIMEOUT_S = 300.0
SERIES = "http://127.0.0.1:9090/api/v1/query?query=longmatch_index_documents"
TEXT = "Rivers carry water and stones to the sea. They flood in spring. " * 5
STARS = f"Stars are hot balls of gas. {TEXT}"


def main() -> None:
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix=PROJECT, dir="/var/tmp")
        folder = Path(stack.enter_context(temporary))
        folder.chmod(0o755)
        os.environ["COMPOSE_PROJECT_NAME"] = PROJECT
        os.environ["COMPOSE_FILE"] = f"{ROOT}/docker-compose.yml"
        stack.callback(compose, "down", "--volumes", "--timeout", "5")
        try:
            check(folder)
        except (AssertionError, OSError) as error:
            print(compose("logs", "--tail", "50"), f"FAILED: {error}", sep="\n", flush=True)
            raise SystemExit(1) from None


def compose(*arguments: str) -> str:
    program = "docker compose" if succeeds("docker", "compose", "version") else "docker-compose"
    return run(*program.split(), *arguments)


def state(service: str) -> Any:
    return json.loads(run("docker", "inspect", compose("ps", "--quiet", "-a", service)))[0]


def wait_until_healthy(service: str, when: str) -> None:
    healthy = '"Status": "healthy"'
    wait(f"{service} is healthy {when}", lambda: healthy in json.dumps(state(service)["State"]))


def check(folder: Path) -> None:
    compose("up", "--build", "--detach")
    report("the image is built")
    for service in ("longmatch", "redis"):
        wait_until_healthy(service, "at first")
    check_rights()
    assert request("POST", "/index", {"documents": [{"id": "river", "text": TEXT}]})["indexed"] == 1
    report("a document is stored")
    assert request("GET", "/readyz")["degraded"] == []
    report("Redis takes the password of the compose file")
    wait("Prometheus has scraped longmatch", lambda: request("GET", SERIES)["data"]["result"])
    check_kill()
    check_offline_job(folder)
    began = time.monotonic()
    compose("stop", "longmatch")
    seconds = time.monotonic() - began
    assert state("longmatch")["State"]["ExitCode"] == 0
    assert seconds < 30, seconds  # no request is in progress
    report(f"it stops in {seconds:.1f} s")


def check_rights() -> None:
    shell = ("exec", "-T", "longmatch", "sh", "-c")
    assert compose(*shell, "id -u; id -g").split() == ["10001", "10001"]
    status = compose(*shell, "cat /proc/self/status")
    for row in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert row in status, row
    tried = "for f in / /opt/longmatch /etc /data /tmp; do (: >$f/x) 2>/dev/null && echo $f; done"
    assert compose(*shell, f"{tried}; rm -f /data/x /tmp/x").split() == ["/data", "/tmp"]
    report("user 10001 without capabilities writes to /data and /tmp alone")


def check_kill() -> None:
    stored = ["river"]

    def store() -> None:
        while True:
            name = f"d{len(stored)}"
            try:
                request("POST", "/index", {"documents": [{"id": name, "text": f"{name}. {TEXT}"}]})
            except OSError:
                return
            stored.append(name)

    thread = threading.Thread(target=store)
    thread.start()
    wait("documents are being stored", lambda: len(stored) > 20)
    subprocess.run(["docker", "exec", state("longmatch")["Id"], "sh", "-c", "kill -9 -1"])
    thread.join()
    wait("kill -9: restarted", lambda: state("longmatch")["RestartCount"])
    wait_until_healthy("longmatch", "after kill -9")
    for name in stored:
        request("GET", f"/documents/{name}")
    report(f"none of {len(stored)} documents is lost")


def check_offline_job(folder: Path) -> None:
    (folder / "corpus").mkdir()
    (folder / "corpus/offline.txt").write_text(STARS)
    compose("stop", "longmatch")
    job = ["longmatch", "longmatch", "index", "/corpus", "--data", "/data"]
    compose("run", "--rm", "-T", "--volume", f"{folder}/corpus:/corpus:ro", *job)
    compose("start", "longmatch")
    wait_until_healthy("longmatch", "after the offline job")
    matches = request("POST", "/match", {"text": STARS})["matches"]
    assert "offline" in matches[0]["id"], matches
    report("the document of the offline job is found")


def request(method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/json"}
    url = path if path.startswith("http:") else f"http://127.0.0.1:8000{path}"
    sent = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(sent, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def wait(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with suppress(OSError):  # nothing listens yet
            if holds():
                return report(what)
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(0.5)


def report(what: str) -> None:
    print(f"ok: {what}", flush=True)


def run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}{ended.stderr}FAILED: {' '.join(command)}")
    return ended.stdout.strip()


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
