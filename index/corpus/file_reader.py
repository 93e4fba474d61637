"""Files are read in a child process with limits of memory and time (`index.corpus.file_worker`).

A damaged or hostile file can make a parser crash, run for hours or take all memory. Then the child
ends, the file is refused, and the next file is read by a new child. One child reads many files,
since starting one takes longer than reading a usual file.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from index.corpus.file_worker import COUNT_ROWS, OUT_OF_MEMORY, READ, READ_ROWS
from index.corpus.formats.content import FileText
from index.corpus.formats.ocr import OCR_SECONDS
from index.errors import CorpusError

_TICK_SECONDS = 0.25
# Allocators reserve addresses far beyond what they use, Arrow's own and glibc's for each thread.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
# The child imports what this process imports, wherever it runs.
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from index.corpus.file_worker import main; main(*map(int, sys.argv[2:]))"
)


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """What reading one file may take.

    Attributes:
        memory_bytes: address space of the child, or on macOS, which does not limit that, memory
            in use, examined four times a second.
        cpu_seconds: processor time.
        wait_seconds: time without an answer, which also ends a child that waits for a dead disk.
        enforced: the kernel enforces `memory_bytes`; else this process examines it.
    """

    memory_bytes: int = 2 * 2**30
    cpu_seconds: int = 60
    wait_seconds: float = 300.0
    enforced: bool = sys.platform != "darwin"


class FileReader:
    """Reads files in a child process, which is started when it is needed; `close` ends it.

    Safe to use from many threads; one file is read at a time.
    """

    def __init__(self, limits: ReadingLimits = ReadingLimits()) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the child, if there is one."""
        child = self._child
        return None if child is None else child.pid

    def close(self) -> None:
        """End the child, if there is one; the next file starts another."""
        with self._lock:
            self._end()

    def read(self, path: Path) -> FileText:
        """Read one file of a kind in `readable_suffixes`.

        Raises:
            CorpusError: as `read_file_text`; or reading takes more than the limits, or crashes. The
                message does not name the file.
        """
        with self._lock:
            return FileText(**self._request_twice(READ, path))

    def count_rows(self, path: Path) -> int:
        """Count the rows of a Parquet file."""
        with self._lock:
            count: int = self._request_twice(COUNT_ROWS, path)["count"]
            return count

    def read_rows(self, path: Path) -> Iterator[dict[str, Any] | str]:
        """Yield the rows of a Parquet file, as `index.corpus.formats.parquet.read_rows`.

        No other file can be read in the meantime. The limits are those of each row.

        Raises:
            CorpusError: as `read`.
        """
        with self._lock:
            self._end()  # what other files have left must not count
            try:
                reply = self._request(READ_ROWS, path)
                while self._child and reply:
                    if "error" in reply:
                        raise CorpusError(reply["error"])
                    yield reply["row"]
                    reply = self._child.receive()
            except _ChildEndedError as ended:
                raise CorpusError(str(ended)) from None
            finally:
                self._end()

    def _request_twice(self, task: str, path: Path) -> dict[str, Any]:
        fresh = self._child is None
        try:
            reply = self._request(task, path)
        except _ChildEndedError as ended:
            if fresh:
                raise CorpusError(str(ended)) from None
            # It may have ended because of what the files before have left in it.
            try:
                reply = self._request(task, path)
            except _ChildEndedError as again:
                raise CorpusError(str(again)) from None
        if "error" in reply:
            raise CorpusError(reply["error"])
        return reply

    def _request(self, task: str, path: Path) -> dict[str, Any]:
        try:
            if self._child is None:
                self._child = _Child(self._limits)
            return self._child.request({"task": task, "path": os.fspath(path.absolute())})
        except BaseException:  # Ctrl-C, too: an answer that nobody read would be taken for the next
            self._end()
            raise

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _ChildEndedError(Exception):
    """The child ended, or was ended, without a reply; says why."""


class _Child:
    """A running process of `index.corpus.file_worker`."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._connection, theirs = Pipe()
        memory = limits.memory_bytes if limits.enforced else 0
        numbers = map(str, (theirs.fileno(), memory, limits.cpu_seconds))
        # Ctrl-C reaches all processes of a terminal. The child ends with this process, which
        # decides when; until then it inherits that the signal is blocked.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own code with our own interpreter
                [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), *numbers],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # parsers in C print warnings
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | _ENVIRONMENT | {OCR_SECONDS: str(0.6 * limits.wait_seconds)},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            theirs.close()
        self.pid = self._process.pid

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and wait for its reply.

        Raises:
            _ChildEndedError: the child ended, or was ended, without one; says why.
        """
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except BrokenPipeError:
            raise _ChildEndedError(self._why()) from None
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Wait for a reply, as `request` does."""
        waited = 0.0
        began = time.monotonic()
        while not self._connection.poll(_TICK_SECONDS):
            # Added up, not a deadline: while this process is stopped, no time is spent.
            waited += min(time.monotonic() - began, _TICK_SECONDS)
            began = time.monotonic()
            if waited >= self._limits.wait_seconds:
                raise _ChildEndedError(
                    f"takes longer than {self._limits.wait_seconds:g} seconds to read"
                )
            if not self._limits.enforced and self._memory() > self._limits.memory_bytes:
                raise _ChildEndedError(self._too_large())
        try:
            data = self._connection.recv_bytes(self._limits.memory_bytes)
        except (EOFError, ConnectionError):
            raise _ChildEndedError(self._why()) from None
        except OSError:
            raise _ChildEndedError(self._crashed("an answer that is too long")) from None
        reply: dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
        return reply

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _memory(self) -> int:
        """Return the memory that the process uses, in bytes; 0 if that is not known."""
        command = ["ps", "-o", "rss=", "-p", str(self.pid)]
        shown = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603
        return int(shown or 0) * 1024

    def _why(self) -> str:
        """Return why the process has ended, or is about to."""
        try:
            status = self._process.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            return self._crashed("closed its output")
        if status == OUT_OF_MEMORY:
            return self._too_large()
        if status == -signal.SIGXCPU:
            return f"takes more than {self._limits.cpu_seconds} seconds of processor time to read"
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return self._crashed(name)

    def _too_large(self) -> str:
        return f"takes more than {self._limits.memory_bytes // 2**20} MiB of memory to read"

    def _crashed(self, how: str) -> str:
        return f"makes its reader fail ({how}): it is damaged, or {self._too_large()}"
