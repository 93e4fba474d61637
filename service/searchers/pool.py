"""The search processes of a server: started, called, and started again when they have ended.

A thread of the server hands a search to a process that has nothing to do, and waits for it without
the interpreter lock. Where no process can do it, as they are starting, have ended or cannot read
the data directory, the thread searches itself.
"""

import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from index.directory.data_directory import DataDirectory
from index.directory.follower import writer_state
from index.engine.query import EncodedQuery
from index.search.calibrate import Scoring
from index.search.records import Examples
from index.vectors.vector_index import NO_VECTOR, Precision
from service.metrics import Metrics
from service.searchers.protocol import (
    Begin,
    Close,
    Message,
    Opening,
    Outcome,
    Reply,
    Search,
    Task,
)
from service.settings import Settings

SEARCH_SECONDS = 10.0  # of a search; a process that takes longer is ended
SEND_SECONDS = 10  # of a message, whose process reads it at once
OPENING_SECONDS = 600.0  # of the start, which may have to build what others find in files
FIRST_DELAY, LAST_DELAY = 0.5, 30.0  # seconds before an ended process is started again
UNABLE_SECONDS = 5.0  # before it is tried again with a data directory that it could not search
_STEADY_SECONDS = 60.0  # a process that lived so long was not ended by its start
_CLOSING_SECONDS = 5.0

_CHILD = (
    *(sys.executable, "-P", "-c"),
    "import json, sys; sys.path[:], *given = json.loads(sys.argv[1]); "
    "from service.searchers.child import main; main(*given)",
)
# Processes search in parallel; a second thread in each would only wait for the others.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedDirectory:
    """An open data directory of the server, in which processes search."""

    number: int
    data: DataDirectory
    scoring: Scoring

    def opening(self, precision: Precision | None) -> Opening:
        """Return how a process opens it, with an index of this precision."""
        store = self.data.store
        shape = (store.fingerprint, store.dimension)
        return Opening(self.number, self.data.path, *shape, precision, self.scoring)


class SearchProcess:
    """A search process and the thread that keeps it running.

    Attributes:
        lock: held by the thread that asks.
    """

    def __init__(
        self,
        number: int,
        directories: Mapping[int, ServedDirectory],
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        """Prepare it, for `start`."""
        self.lock = threading.Lock()
        self._number = number
        self._directories = directories
        self._settings = settings
        self._metrics = metrics
        self._known: dict[int, ServedDirectory] = {}  # open in the process, by number
        self._unable: dict[int, float] = {}  # and those that it cannot search, until when
        self._channel: Connection | None = None  # None while it is not ready
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(
            target=self._keep, name=f"search process {number}", daemon=True
        )

    @property
    def ready(self) -> bool:
        """Whether it answers messages."""
        return self._channel is not None

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self._keeper.start()

    def can_search(self, number: int) -> bool:
        """Return whether it is ready, and has not left a data directory to the server of late."""
        return self.ready and self._unable.get(number, 0.0) <= time.monotonic()

    def search(self, served: ServedDirectory, task: Task) -> Reply | None:
        """Let it search a data directory, which it opens if it has to; `lock` is held."""
        known = self._known.get(served.number)
        same = known is not None and known.scoring is served.scoring
        opening = None if same else served.opening(self._settings.index_precision)
        message = Search(served.number, writer_state(served.data), task, opening)
        reply = self.call(message)
        if reply is not None and reply.needs_frequencies:
            frequencies = served.data.store.lexical.frequencies
            reply = self.call(replace(message, frequencies=frequencies))
        if reply is not None and reply.refusal is None:
            self._known[served.number] = served
        elif reply is not None:
            self._known.pop(served.number, None)
            self._unable[served.number] = time.monotonic() + UNABLE_SECONDS
        return reply

    def call(self, message: Message) -> Reply | None:
        """Send a message and wait for the reply; `lock` is held.

        Returns:
            The reply; None if the process has ended, or is ended as it takes too long.
        """
        channel = self._channel
        if channel is None:
            return None
        try:
            reply = _ask(channel, message, SEARCH_SECONDS)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                _log.warning(
                    "search process %d has not answered for %.0f s", self._number, SEARCH_SECONDS
                )
            self._channel = None
            self._kill()
            return None
        return reply

    def close_directory(self, number: int) -> None:
        """Let it close a data directory, if it has it open."""
        with self.lock:
            self._unable.pop(number, None)
            self._known.pop(number, None)
            self.call(Close(number))

    def stop(self) -> None:
        """Let the process end, once it has answered, and start no other."""
        self._stopping.set()
        with self.lock:
            if self._channel is None:
                self._kill()
            else:
                self._channel.close()
                self._channel = None

    def join(self) -> None:
        """Wait for the end of the process, which is ended if that takes too long."""
        if self._keeper.ident is None:
            return
        self._keeper.join(_CLOSING_SECONDS)
        while self._keeper.is_alive():
            self._kill()
            self._keeper.join(_CLOSING_SECONDS)

    def _keep(self) -> None:
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            began = time.monotonic()
            ended = self._run()
            if self._stopping.is_set():
                return
            delay = FIRST_DELAY if time.monotonic() - began > _STEADY_SECONDS else delay
            self._metrics.search_process_ends.inc()
            _log.error(
                "search process %d %s; threads search instead, and it is started again in %.1f s",
                *(self._number, ended, delay),
            )
            self._stopping.wait(delay)
            delay = min(2 * delay, LAST_DELAY)

    def _run(self) -> str:
        """Run one process to its end; return how it ended."""
        try:
            process, channel = _spawn(self._settings)
        except OSError as error:
            return f"cannot be started: {error}"
        self._process = process
        self._begin(channel)
        status = process.wait()
        with self.lock:
            self._channel = None
            channel.close()
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"(pid {process.pid}) {ended}"

    def _begin(self, channel: Connection) -> None:
        """Let the process open the data directories; then it is ready."""
        known = dict(self._directories)
        precision = self._settings.index_precision
        openings = tuple(served.opening(precision) for served in known.values())
        try:
            if self._stopping.is_set():
                raise EOFError
            _ask(channel, Begin(openings), OPENING_SECONDS)
        except (EOFError, OSError):
            self._kill()
            return
        with self.lock:
            self._known = known
            self._unable = {}
            if self._stopping.is_set():
                self._kill()
            else:
                self._channel = channel
            for number in known.keys() - self._directories.keys():
                self.call(Close(number))  # withdrawn meanwhile

    def _kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)


def _spawn(settings: Settings) -> "tuple[subprocess.Popen[bytes], Connection]":
    """Start a process, and return it with the channel to it.

    It is in a session of its own: Ctrl-C in a terminal is for the server, with which it ends.
    """
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own code with our own interpreter
            [
                *_CHILD,
                json.dumps([sys.path, theirs.fileno(), settings.log_level, settings.log_format]),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=os.environ | _ENVIRONMENT,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    # A process that takes no message fails the next one, rather than hold up its sender for good.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    return process, Connection(ours.detach())


def _ask(channel: Connection, message: Message, seconds: float) -> Reply:
    """Send a message, and return the reply, or raise TimeoutError, EOFError or OSError."""
    channel.send(message)
    if not channel.poll(seconds):
        raise TimeoutError
    reply: Reply = channel.recv()
    return reply


class SearchProcesses:
    """The search processes. Safe to use from many threads."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Start none yet."""
        self._metrics = metrics
        self._served: dict[int, ServedDirectory] = {}
        self._refusals: dict[int, str] = {}  # the last reason that was logged
        self._processes = [
            SearchProcess(number, self._served, settings, metrics)
            for number in range(1, settings.search_processes + 1)
        ]
        metrics.search_processes.set_function(self.ready)

    def start(self) -> None:
        """Start the processes, without waiting: until they are ready, threads search."""
        for process in self._processes:
            process.start()

    def ready(self) -> int:
        """Return how many processes are ready."""
        return sum(process.ready for process in self._processes)

    def add(self, served: ServedDirectory) -> None:
        """Let processes search a data directory from now on."""
        self._served[served.number] = served

    def forget(self, number: int) -> None:
        """Let processes close a data directory, which is closed or removed after that."""
        self._served.pop(number, None)
        self._refusals.pop(number, None)
        for process in self._processes:
            process.close_directory(number)

    def search(self, served: ServedDirectory, task: Task) -> Outcome | None:
        """Let a process search.

        Returns:
            What it found; None if no process can do it.
        """
        reply, seconds = None, 0.0
        if not served.data.store.lexical.building or task.options.mode == "semantic":
            task, seconds = _with_terms(served.data, task)
            reply = self._call(served, task)
        if reply is None or reply.refusal is not None:
            self._metrics.search_process_left.inc()
            return None
        if reply.failure is not None:
            raise reply.failure.error()
        return _with_seconds(reply.outcome, seconds)

    def close(self) -> None:
        """End the processes; no thread may search any more."""
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.join()

    def _call(self, served: ServedDirectory, task: Task) -> Reply | None:
        """Let the first process that is free search; log once why one cannot."""
        for process in self._processes:
            if process.can_search(served.number) and process.lock.acquire(blocking=False):
                try:
                    reply = process.search(served, task)
                finally:
                    process.lock.release()
                reason = None if reply is None else reply.refusal
                if reason is not None and self._refusals.get(served.number) != reason:
                    self._refusals[served.number] = reason
                    path = served.data.path
                    _log.warning("%s: threads search instead of a search process: %s", path, reason)
                return reply
        return None


def _with_terms(data: DataDirectory, task: Task) -> tuple[Task, float]:
    """Return a task whose texts have their terms, and the seconds that took.

    The server knows the titles of all documents, which are terms.
    """
    if task.options.mode == "semantic" or isinstance(task.query, str):
        return task, 0.0
    started = time.perf_counter()

    def read(query: EncodedQuery) -> EncodedQuery:
        if query.vector_id != NO_VECTOR:
            return query
        return replace(query, terms=data.store.lexical.read(query.text, title=query.title))

    query = task.query
    if isinstance(query, Examples):
        read_query: EncodedQuery | Examples = Examples(
            tuple(map(read, query.like)), tuple(map(read, query.unlike))
        )
    else:
        read_query = read(query)
    return replace(task, query=read_query), time.perf_counter() - started


def _with_seconds(outcome: Outcome | None, reading: float) -> Outcome | None:
    """Return an outcome with the time that the server took to read words."""
    if outcome is None or not reading:
        return outcome
    lexical = outcome.seconds.get("lexical", 0.0) + reading
    return replace(outcome, seconds={**outcome.seconds, "lexical": lexical})
