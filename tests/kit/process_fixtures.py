"""The real command in a process of its own."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from index.directory.data_directory import KEY_FILE
from service.keys import Scope, change_keys, make_key
from tests.kit.forking import Forked, fork
from tests.kit.waiting import TIMEOUT_S

# A test run in the background of a shell ignores Ctrl-C, and so would its children. They listen to
# it by themselves: what Python does before their first line would fork this process, whose threads
# of gRPC may abort the fork.
LISTEN_TO_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
# Its objects are made at the start, and stay: fewer garbage collections save a tenth of a start.
COLLECT_SELDOM = "import gc; gc.set_threshold(10_000, 20, 20)"
BEGINNING = f"{LISTEN_TO_CTRL_C}; {COLLECT_SELDOM}"
COMMAND = [sys.executable, "-c", f"{BEGINNING}; from service.cli.main import main; main()"]


@dataclass(eq=False)
class Server:
    """A running `longmatch serve`."""

    process: subprocess.Popen[bytes] | Forked
    url: str
    log: Path
    tls: ssl.SSLContext | None = None

    def request(
        self, method: str, path: str, body: object = None, timeout: float = TIMEOUT_S
    ) -> tuple[int, Any]:
        """Return status and decoded answer; any status is an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.tls) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, content = error.code, error.read()
        try:
            return status, json.loads(content)
        except ValueError:
            return status, content

    def metric(self, name: str) -> float:
        """Return the value of a metric, the sum over its labels."""
        text = self.request("GET", "/metrics")[1].decode()
        rows = [line.split() for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(row[-1]) for row in rows)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(how)
        return self.process.wait(TIMEOUT_S)


def environment(checkpoint: Path | None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LONGMATCH_")}
    return kept | ({"LONGMATCH_ENCODER": str(checkpoint)} if checkpoint else {})


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            if server.request("GET", "/readyz")[0] == 200:
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"the server did not start:\n{server.log.read_text()}")


@contextmanager
def serving(
    folder: Path,
    data: Path,
    checkpoint: Path | None,
    command: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    **settings: object,
) -> Iterator[Server]:
    """Run `longmatch serve` on a free port, reached by `tls` if given; its log is in `folder`.

    `command` runs instead of `longmatch`, with the same arguments.
    """
    port = free_port()
    log = folder / f"server-{port}.log"
    variables = {f"LONGMATCH_{k.upper()}": str(v) for k, v in settings.items()}
    arguments = ["serve", "--data", str(data), "--port", str(port)]
    env = environment(checkpoint) | variables
    process: subprocess.Popen[bytes] | Forked
    with log.open("wb") as output:
        if command:
            process = subprocess.Popen(
                [*command, *arguments], env=env, stdout=output, stderr=output
            )
        else:
            process = fork(BEGINNING, arguments, env, output, output)
    scheme = "http" if tls is None else "https"
    server = Server(process, f"{scheme}://127.0.0.1:{port}", log, tls)
    try:
        wait_until_ready(server)
        yield server
    finally:
        process.kill()
        process.wait()


def add_key(data: Path, *scopes: Scope, collection: str | None = None) -> str:
    """Add a key to a data directory; return its token."""
    key, token = make_key("a test", frozenset(scopes), None, collection)
    change_keys(data / KEY_FILE, lambda known: known.update({key.id: key}))
    return token


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """Start a server: `with serve(data, checkpoint, SETTING=value) as server`."""
    return partial(serving, tmp_path)


def run(*arguments: object, checkpoint: Path | None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    given = list(map(str, arguments))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        status = fork(BEGINNING, given, environment(checkpoint), out, error).wait()
        texts = [(file.seek(0), file.read().decode())[1] for file in (out, error)]
    return subprocess.CompletedProcess(given, status, *texts)


def start_program(program: str, *arguments: object) -> Forked:
    """Start "module:function" in a process of its own; its errors are those of this process."""
    with Path(os.devnull).open("wb") as nothing:
        given = list(map(str, arguments))
        return fork(BEGINNING, given, os.environ, nothing, sys.__stderr__.buffer, program)


@pytest.fixture
def longmatch_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a process of its own, to its end."""
    return run


@pytest.fixture
def start_longmatch() -> Iterator[Callable[..., Forked]]:
    """Start the command and do not wait for it; what still runs at the end is killed."""
    started: list[Forked] = []

    def start(*arguments: object, checkpoint: Path | None) -> Forked:
        with Path(os.devnull).open("wb") as nothing:
            given = list(map(str, arguments))
            started.append(fork(BEGINNING, given, environment(checkpoint), nothing, nothing))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
