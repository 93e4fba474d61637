"""A process that has loaded the command, and forks those that the tests start.

Loading it takes a process most of a second, which every start of a server would pay again. What
runs is the real command, or another program, in a process of its own, with its own arguments,
environment, folder and output. Where a test names another command, it is started from nothing.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
_BYTES = 1 << 20  # of a request
_LOADED = ("service.cli.serve", "service.cli.corpora", "service.process")
_LONGMATCH = "service.cli.main:main"


class Forked:
    """A process that was forked: what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit status, or None as long as it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 16)))
            os.close(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit status."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("longmatch", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _connection(preamble: str) -> socket.socket:
    """Start the process that forks; it ends with this one."""
    mine, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"{preamble}; from tests.kit.forking import serve_forks"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; serve_forks({others.fileno()})()"],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        pass_fds=[others.fileno()],
    )
    others.close()

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def fork(
    preamble: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    stdout: IO[bytes],
    stderr: IO[bytes],
    program: str = _LONGMATCH,
) -> Forked:
    """Start `longmatch ARGUMENTS`, after a preamble of Python, in the present folder.

    Args:
        preamble: what runs before anything is imported.
        arguments: of the program, without its name.
        env: its environment.
        stdout: its output.
        stderr: its errors.
        program: "module:function", the command if not given; the module is imported only once.
    """
    connection = _connection(preamble)
    status, written = os.pipe()
    request = json.dumps([program, list(arguments), dict(env), str(Path.cwd())]).encode()
    socket.send_fds(connection, [request], [stdout.fileno(), stderr.fileno(), written])
    os.close(written)
    return Forked(int(connection.recv(16)), status)


def serve_forks(number: int) -> Callable[[], None]:
    """Fork at each request that comes by a socket; in what was forked, return what is to run."""
    for name in _LOADED:
        __import__(name)
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=number)
    while True:
        request, files, _, _ = socket.recv_fds(connection, _BYTES, 3)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended
                pass
        if not request:
            os._exit(0)
        program, arguments, environment, folder = json.loads(request)
        module, _, function = program.partition(":")
        run: Callable[[], None] = getattr(import_module(module), function)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    stdout, stderr, status = files
    pid = os.fork()  # by a process that waits for it
    if pid:
        connection.send(str(pid).encode())
        os.write(status, str(os.waitpid(pid, 0)[1]).encode())
        os._exit(0)
    for file in (connection.detach(), status):
        os.close(file)
    for file, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(file, standard)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments
    return run
