"""Searches in threads of the server, and in search processes, which are children of it.

A thread of the server hands a search to a process that has nothing to do, and waits for it without
the interpreter lock. Where no process can do it, as they are starting, have ended or cannot read
the data directory, the thread searches itself.

Calls of methods of `Searcher` travel as pickles over a `Connection` of `multiprocessing`: only a
process that the server itself has started has the other end, so both may trust what they read.
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
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from index.directory.data_directory import DataDirectory, open_data_directory
from index.directory.follower import WriterState, follow_vectors, follow_words, writer_state
from index.engine.parallel_steps import PARALLEL_STEPS
from index.engine.port import EncodedQuery
from index.errors import IndexingError
from index.lexical.frequencies import Frequencies
from index.lexical.scoring import TermWeight
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import Examples, Hit, SearchAnswer, SearchOptions
from index.vectors.vector_index import NO_VECTOR
from service.encode import EncodedText, StoredQuery, find_all_stored
from service.errors import ServiceError
from service.metrics import Metrics
from service.settings import LogFormat, LogLevel, Settings
from service.telemetry import configured_logs
from service.threads import Worker, cap_malloc_threshold

if TYPE_CHECKING:  # it imports this module
    from service.engine import Collection


@dataclass(frozen=True, slots=True)
class Task:
    """What to search for: a text, examples, or a stored document."""

    query: EncodedQuery | Examples | StoredQuery
    options: SearchOptions


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        answer: the hits.
        stored: the document that was searched for; none where that is not a stored one.
    """

    answer: SearchAnswer
    stored: tuple[EncodedText, ...] = ()


def perform(data: DataDirectory, task: Task, scoring: Scoring) -> Outcome:
    """Search a data directory."""
    query, stored = task.query, list[EncodedText]()
    if isinstance(query, StoredQuery):
        stored = find_all_stored(data, [query])
        query = stored[0]
    answer = search(data, query, task.options, scoring=scoring)
    return Outcome(answer, tuple(stored))


@dataclass(frozen=True, slots=True)
class Opening:
    """A data directory that a search process opens, with what its scores are made by.

    Attributes:
        number: by which calls name it.
        opened: returns it, opened for reading only.
        scoring: how its scores are combined and calibrated.
    """

    number: int
    opened: Callable[[], DataDirectory]
    scoring: Scoring


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call came to.

    Attributes:
        outcome: of a search; None for other calls, and where the server is to search: it then
            raises the error that the search ended with, if it was that.
        refusal: why the search was not done.
        needs_frequencies: whether the search has to be sent again with those of the server.
    """

    outcome: Outcome | None = None
    refusal: str | None = None
    needs_frequencies: bool = False


# A hundred of these are in an answer, and what dataclasses do by default takes the server as long
# as the rest of a request.
_HIT_FIELDS = attrgetter(*(field.name for field in fields(Hit)))
ForkingPickler.register(TermWeight, lambda weight: (TermWeight, (weight.term, weight.weight)))
ForkingPickler.register(Hit, lambda hit: (Hit, _HIT_FIELDS(hit)))

SEARCH_SECONDS = 10.0  # of a search; a process that takes longer is ended
SEND_SECONDS = 10  # of a call, whose process reads it at once
OPENING_SECONDS = 600.0  # of the start, which may have to build what others find in files
FIRST_DELAY, LAST_DELAY = 0.5, 30.0  # seconds before an ended process is started again
UNABLE_SECONDS = 5.0  # before it is tried again with a data directory that it could not search
_STEADY_SECONDS = 60.0  # a process that lived so long was not ended by its start

_CHILD = (
    *(sys.executable, "-P", "-c"),
    "import json, sys; sys.path[:], *given = json.loads(sys.argv[1]); "
    "from service.searchers import main; main(*given)",
)
# Processes search in parallel; a second thread in each would only wait for the others.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_log = logging.getLogger(__name__)


def _opening(collection: "Collection") -> Opening:
    """Return how a process opens the data directory of a collection."""
    opened = partial(
        open_data_directory,
        collection.data.path,
        read_only=True,
        fingerprint=collection.data.store.fingerprint,
        dimension=collection.data.store.dimension,
        index_precision=collection.engine.settings.index_precision,
    )
    return Opening(collection.number, opened, collection.scoring.present)


class SearchProcess:
    """A search process, which a thread of the server starts, and starts again when it has ended.

    Attributes:
        lock: held by the thread that asks.
        worker: the thread.
    """

    def __init__(
        self,
        number: int,
        served: Mapping[int, "Collection"],
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        """Prepare it, for the start of `worker`."""
        self.lock = threading.Lock()
        self._name = f"search process {number}"
        self.worker = Worker(self._name, self._run)
        self._served = served
        self._settings = settings
        self._metrics = metrics
        self._known: dict[int, Scoring] = {}  # of what is open in the process, by number
        self._channel: Connection | None = None  # None while it is not ready
        self._process: subprocess.Popen[bytes] | None = None
        self._delay = FIRST_DELAY

    @property
    def ready(self) -> bool:
        """Whether it answers calls."""
        return self._channel is not None

    def search(self, collection: "Collection", task: Task) -> Reply | None:
        """Let it search a collection, which it opens if it has to; `lock` is held."""
        number, data, opening = collection.number, collection.data, _opening(collection)
        known = self._known.pop(number, None) is opening.scoring
        what = (number, writer_state(data), task, None if known else opening)
        reply = self.call("search", *what)
        if reply is not None and reply.needs_frequencies:
            reply = self.call("search", *what, data.store.lexical.frequencies)
        if reply is not None and reply.refusal is None:
            self._known[number] = opening.scoring
        return reply

    def call(self, method: str, *arguments: object) -> Reply | None:
        """Call a method of its `Searcher` and wait for the reply; `lock` is held.

        Returns:
            The reply; None if the process has ended, or is ended as it takes too long.
        """
        if self._channel is None:
            return None
        try:
            return _ask(self._channel, SEARCH_SECONDS, method, *arguments)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                _log.warning("%s has not answered for %.0f s", self._name, SEARCH_SECONDS)
            self._channel = None
            self._kill()
            return None

    def close_directory(self, number: int) -> None:
        """Let it close a data directory, if it has it open."""
        with self.lock:
            self._known.pop(number, None)
            self.call("close", number)

    def close(self) -> None:
        """End the process, which writes nothing, and start no other; no thread may ask any more."""
        self.worker.stop()
        self._kill()
        self.worker.close()

    def _run(self) -> float:
        """Run a process to its end; return the seconds until the next one is started."""
        began = time.monotonic()
        try:
            self._process, channel = _spawn(self._settings)
        except OSError as error:
            return self._rest(f"cannot be started: {error}", began)
        if self.worker.stopping.is_set() or not self._open_all(channel):
            self._kill()
        status = self._process.wait()
        with self.lock:
            self._channel = None
            channel.close()
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return self._rest(f"(pid {self._process.pid}) {ended}", began)

    def _rest(self, ended: str, began: float) -> float:
        """Log how a process ended, and return the seconds before the next."""
        if self.worker.stopping.is_set():
            return 0.0
        delay = FIRST_DELAY if time.monotonic() - began > _STEADY_SECONDS else self._delay
        self._delay = min(2 * delay, LAST_DELAY)
        self._metrics.search_process_ends.inc()
        _log.error(
            "%s %s; threads search instead, and it is started again in %.1f s",
            *(self._name, ended, delay),
        )
        return delay

    def _open_all(self, channel: Connection) -> bool:
        """Let the process open the data directories; return whether it is ready then."""
        opened = dict(self._served)
        try:
            for collection in opened.values():
                _ask(channel, OPENING_SECONDS, "open", _opening(collection))
        except (EOFError, OSError):
            return False
        with self.lock:
            self._known, self._channel = {}, channel
            for number in opened.keys() - self._served.keys():
                self.call("close", number)  # withdrawn meanwhile
        return True

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _spawn(settings: Settings) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process, and return it with the channel to it.

    It is in a session of its own: Ctrl-C in a terminal is for the server, with which it ends.
    """
    ours, theirs = Pipe()
    with theirs:
        given = [sys.path, theirs.fileno(), settings.log_level, settings.log_format]
        process = subprocess.Popen(  # noqa: S603 - our own code with our own interpreter
            [*_CHILD, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env=os.environ | _ENVIRONMENT,
        )
    # A process that takes no call fails the next one, rather than hold up its sender for good.
    with socket.socket(fileno=os.dup(ours.fileno())) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    return process, ours


def _ask(channel: Connection, seconds: float, method: str, *arguments: object) -> Reply:
    """Send a call, and return the reply, or raise TimeoutError, EOFError or OSError."""
    channel.send((method, arguments))
    if not channel.poll(seconds):
        raise TimeoutError
    reply: Reply = channel.recv()
    return reply


class SearchProcesses:
    """The search processes. Safe to use from many threads."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Start none yet."""
        self._metrics = metrics
        self._served: dict[int, Collection] = {}
        # What processes could not search: until when threads do instead, and why.
        self._left: dict[int, tuple[float, str]] = {}
        self._processes = [
            SearchProcess(number, self._served, settings, metrics)
            for number in range(1, settings.search_processes + 1)
        ]
        metrics.search_processes.set_function(self.ready)

    def start(self) -> None:
        """Start the processes, without waiting: until they are ready, threads search."""
        for process in self._processes:
            process.worker.start()

    def ready(self) -> int:
        """Return how many processes are ready."""
        return sum(process.ready for process in self._processes)

    def add(self, collection: "Collection") -> None:
        """Let processes search a collection from now on."""
        self._served[collection.number] = collection

    def forget(self, number: int) -> None:
        """Let processes close a collection, which is closed or removed after that."""
        self._served.pop(number, None)
        self._left.pop(number, None)
        for process in self._processes:
            process.close_directory(number)

    def search(self, collection: "Collection", task: Task) -> Outcome | None:
        """Let the first process that is free search.

        Returns:
            What it found; None if the caller has to search, as no process can, or as the search
            ends with an error.
        """
        if not self._processes:
            return None
        data = collection.data
        until, said = self._left.get(collection.number, (0.0, ""))
        words = task.options.mode != "semantic"
        if until <= time.monotonic() and not (words and data.store.counts_words):
            for process in self._processes:
                if process.ready and process.lock.acquire(blocking=False):
                    try:
                        reply = process.search(collection, _with_terms(data, task))
                    finally:
                        process.lock.release()
                    if reply is not None and reply.outcome is not None:
                        return reply.outcome
                    if reply is not None and (reason := reply.refusal) is not None:
                        self._left[collection.number] = time.monotonic() + UNABLE_SECONDS, reason
                        if reason != said:
                            what = "threads search instead of a search process"
                            _log.warning("%s: %s: %s", data.path, what, reason)
                    break
        self._metrics.search_process_left.inc()
        return None

    def close(self) -> None:
        """End the processes; no thread may search any more."""
        for process in self._processes:
            process.close()


def _with_terms(data: DataDirectory, task: Task) -> Task:
    """Return a task whose texts have their terms.

    The server knows the titles of all documents, which are terms.
    """
    if task.options.mode == "semantic" or isinstance(task.query, StoredQuery):
        return task

    def read(query: EncodedQuery) -> EncodedQuery:
        if query.vector_id != NO_VECTOR:
            return query
        return replace(query, terms=data.store.lexical.read(query.text, title=query.title))

    if isinstance(task.query, Examples):
        like, unlike = (tuple(map(read, side)) for side in (task.query.like, task.query.unlike))
        return replace(task, query=Examples(like, unlike))
    return replace(task, query=read(task.query))


class Searcher:
    """Answers calls, one at a time."""

    def __init__(self) -> None:
        """Have no data directory open yet."""
        self._opened: dict[int, tuple[DataDirectory, Scoring]] = {}

    def answer(self, method: str, arguments: tuple[Any, ...]) -> Reply:
        """Do what a call asks for."""
        try:
            return getattr(self, method)(*arguments) or Reply()
        except IndexingError as error:  # the server need not read what it has in memory
            return Reply(refusal=str(error))

    def open(self, opening: Opening) -> None:
        """Open a data directory, or change its scores."""
        known = self._opened.get(opening.number)
        self._opened[opening.number] = known[0] if known else opening.opened(), opening.scoring

    def close(self, number: int) -> None:
        """Close a data directory, if it is open."""
        if number in self._opened:
            self._opened.pop(number)[0].close()

    def search(
        self,
        number: int,
        position: WriterState,
        task: Task,
        opening: Opening | None,
        frequencies: Frequencies | None = None,
    ) -> Reply:
        """Search a data directory.

        Args:
            number: of the data directory.
            position: what the search must see.
            task: what to do.
            opening: of a data directory that this process does not know.
            frequencies: of the server, if this process needs them.
        """
        if opening is not None:
            self.open(opening)
        data, scoring = self._opened[number]
        if not follow_vectors(data, position):
            return Reply(refusal="the index of the server cannot be read")
        words = task.options.mode != "semantic"
        if words and not follow_words(data, position, frequencies):
            return Reply(needs_frequencies=True)
        with suppress(IndexingError, ServiceError, ValueError):  # which the server raises, too
            return Reply(perform(data, task, scoring))
        return Reply()


def main(descriptor: int, level: LogLevel, form: LogFormat) -> None:
    """Answer the calls of the server until its end is closed; log as it does."""
    # The server decides when this process ends, also where a signal reaches all processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    cap_malloc_threshold()  # its priority is that of the thread that started it
    PARALLEL_STEPS.disable()
    connection, searcher = Connection(descriptor), Searcher()
    with configured_logs(level, form), suppress(EOFError, OSError):  # the server is gone
        while True:
            call = connection.recv()
            try:
                reply = searcher.answer(*call)
            except Exception:  # the server does the search itself, and starts another process
                _log.critical("%s", traceback.format_exc())
                os._exit(1)
            connection.send(reply)
