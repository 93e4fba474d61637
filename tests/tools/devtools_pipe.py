"""A headless Chromium as a process that takes its commands from a pipe."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import Any

PACKAGE = "chromium"  # of Debian and Ubuntu
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # its sandbox does not start for root, which containers run as
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # containers have little of it
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_END = b"\0"
_CHUNK = 1 << 20

Message = dict[str, Any]


class BrowserError(Exception):
    """The browser did not start, did not answer in time, or refused a command."""


def find_chromium() -> str | None:
    """Return the path of an installed Chromium."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class DevToolsPipe:
    """A Chromium with an empty profile; messages are JSON objects ended by a zero byte."""

    def __init__(self) -> None:
        program = find_chromium()
        if program is None:
            raise BrowserError(f"no Chromium found: install the package {PACKAGE}")
        self._received = b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [program, *_SWITCHES, f"--user-data-dir={self._profile.name}"]
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def send(self, message: Message) -> None:
        """Write a message."""
        data = json.dumps(message).encode() + _END
        while data:
            data = data[os.write(self._write, data) :]

    def receive(self, until: float) -> Message:
        """Return the next message; at `until` (time.monotonic) it is too late.

        Raises:
            BrowserError: none came in time, or the browser has ended.
        """
        while _END not in self._received:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise BrowserError("the browser does not answer")
            chunk = os.read(self._read, _CHUNK)
            if not chunk:
                raise BrowserError(f"the browser ended: exit status {self._process.wait(10)}")
            self._received += chunk
        message, _, self._received = self._received.partition(_END)
        decoded: Message = json.loads(message)
        return decoded

    def close(self) -> None:
        """End the browser, which it does when its pipe is closed, and forget its profile."""
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()
