"""The search processes of a server, and what of a search the server does itself.

A thread of the server hands a search to a process that has nothing to do, and waits for it without
the interpreter lock. Where no process can do it, as they are starting, have ended or cannot read
the data directory, the thread searches itself.
"""

import logging
import time
from dataclasses import replace

from index.directory.beside_writer import frequencies_of, position_of
from index.directory.data_directory import DataDirectory
from index.search.records import EncodedQuery, Examples
from index.vectors.vector_index import NO_VECTOR, Precision
from service.metrics import Metrics
from service.searchers.process import SearchProcess, ServedDirectory
from service.searchers.protocol import Opening, Reply, Search
from service.searchers.task import Outcome, Task

_log = logging.getLogger(__name__)


class SearchProcesses:
    """The search processes. Safe to use from many threads."""

    def __init__(self, number: int, precision: Precision | None, metrics: Metrics) -> None:
        """Start none yet.

        Args:
            number: of processes.
            precision: of the indexes, as of `open_data_directory`.
            metrics: where processes and searches are counted.
        """
        self._precision = precision
        self._metrics = metrics
        self._served: dict[int, ServedDirectory] = {}
        self._refusals: dict[int, str] = {}  # the last reason that was logged
        self._processes = [
            SearchProcess(one, self._directories, metrics) for one in range(1, number + 1)
        ]
        metrics.search_processes.set_function(self.ready)

    def start(self) -> None:
        """Start the processes, without waiting: until they are ready, threads search."""
        for one in self._processes:
            one.start()

    def ready(self) -> int:
        """Return how many processes can be asked."""
        return sum(one.ready for one in self._processes)

    def add(self, served: ServedDirectory) -> None:
        """Let processes search a data directory from now on."""
        self._served[served.number] = served

    def forget(self, number: int) -> None:
        """Let processes close a data directory, which is closed or removed after that."""
        self._served.pop(number, None)
        self._refusals.pop(number, None)
        for one in self._processes:
            one.close_directory(number)

    def search(self, served: ServedDirectory, task: Task) -> Outcome | None:
        """Let a process search.

        Returns:
            What it found; None if no process can do it.
        """
        reply, seconds = None, 0.0
        if not served.data.store.lexical.making or task.options.mode == "semantic":
            task, seconds = _with_terms(served.data, task)
            reply = self._ask(served, task)
        if reply is None or reply.refusal is not None:
            self._metrics.search_process_left.inc()
            return None
        for vector_id, part in reply.damaged:
            served.data.store.damage.note([vector_id], part)
        if reply.failure is not None:
            raise reply.failure.error()
        return _with_seconds(reply.outcome, seconds)

    def close(self) -> None:
        """End the processes; no thread may search any more."""
        for one in self._processes:
            one.stop()
        for one in self._processes:
            one.join()

    def _ask(self, served: ServedDirectory, task: Task) -> Reply | None:
        for one in self._processes:
            if not one.ready or not one.can_search(served.number):
                continue
            if one.lock.acquire(blocking=False):
                try:
                    return self._ask_one(one, served, task)
                finally:
                    one.lock.release()
        return None

    def _ask_one(self, process: SearchProcess, served: ServedDirectory, task: Task) -> Reply | None:
        opening = None if process.knows(served) else self._opening(served)
        message = Search(served.number, position_of(served.data), task, opening)
        reply = process.ask(message)
        if reply is not None and reply.asks:
            frequencies = frequencies_of(served.data)
            reply = process.ask(replace(message, frequencies=frequencies))
        if reply is not None and reply.refusal is None:
            process.note_opened(served)
        elif reply is not None:
            process.note_unable(served.number)
            self._log_refusal(served, str(reply.refusal))
        return reply

    def _log_refusal(self, served: ServedDirectory, reason: str) -> None:
        """Log why a process cannot search a data directory, once."""
        if self._refusals.get(served.number) != reason:
            self._refusals[served.number] = reason
            path = served.data.path
            _log.warning("%s: threads search instead of a search process: %s", path, reason)

    def _directories(self) -> list[tuple[ServedDirectory, Opening]]:
        return [(one, self._opening(one)) for one in list(self._served.values())]

    def _opening(self, served: ServedDirectory) -> Opening:
        store = served.data.store
        return Opening(
            served.number,
            served.data.path,
            store.fingerprint,
            store.dimension,
            self._precision,
            served.fusion,
            served.calibrator,
        )


def _with_terms(data: DataDirectory, task: Task) -> tuple[Task, float]:
    """Return a task whose texts are replaced by their terms, and the seconds that took.

    The server knows the titles of all documents, which are terms; and a long text need not travel.
    """
    if task.options.mode == "semantic" or isinstance(task.query, str):
        return task, 0.0
    started = time.perf_counter()

    def read(query: EncodedQuery) -> EncodedQuery:
        if query.vector_id != NO_VECTOR:
            return replace(query, text="", title="")
        terms = data.store.lexical.read(query.text, title=query.title)
        return replace(query, text="", title="", terms=terms)

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
