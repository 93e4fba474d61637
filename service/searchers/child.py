"""A search process: messages in, replies out, until the server closes its end or is gone."""

import logging
import os
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from index.directory.data_directory import DataDirectory, open_data_directory
from index.directory.follower import follow_vectors, follow_words
from index.engine.parallel_steps import PARALLEL_STEPS
from index.errors import IndexingError
from service.errors import ServiceError
from service.searchers.protocol import (
    Begin,
    Close,
    Failure,
    Message,
    Opening,
    Reply,
    Search,
    perform,
)
from service.settings import LogFormat, LogLevel
from service.telemetry import configured_logs
from service.threads import cap_malloc_threshold, lower_priority


@dataclass(slots=True)
class _Opened:
    """An open data directory, and how it was to be opened."""

    opening: Opening
    data: DataDirectory


class Searcher:
    """Answers messages, one at a time."""

    def __init__(self) -> None:
        """Have no data directory open yet."""
        self._opened: dict[int, _Opened] = {}

    def answer(self, message: Message) -> Reply:
        """Do what a message asks for."""
        if isinstance(message, Begin):
            for opening in message.openings:
                self._open(opening)
            return Reply()
        if isinstance(message, Close):
            closed = self._opened.pop(message.number, None)
            if closed is not None:
                closed.data.close()
            return Reply()
        return self._search(message)

    def _open(self, opening: Opening) -> str | None:
        """Open a data directory, or change its scores; return why that is not possible."""
        if opening.number in self._opened:
            self._opened[opening.number].opening = opening
            return None
        try:
            data = open_data_directory(
                opening.path,
                read_only=True,
                fingerprint=opening.fingerprint,
                dimension=opening.dimension,
                index_precision=opening.precision,
            )
        except IndexingError as error:
            return str(error)
        self._opened[opening.number] = _Opened(opening, data)
        return None

    def _search(self, message: Search) -> Reply:
        problem = None if message.opening is None else self._open(message.opening)
        opened = self._opened.get(message.number)
        if opened is None:
            return Reply(refusal=problem or "it is not open")
        try:
            if not follow_vectors(opened.data, message.position):
                return Reply(refusal="the index of the server cannot be read")
            if message.task.options.mode != "semantic" and not follow_words(
                opened.data, message.position, message.frequencies
            ):
                return Reply(needs_frequencies=True)
        except IndexingError as error:  # the server need not read what it has in memory
            return Reply(refusal=str(error))
        outcome, failure = None, None
        try:
            outcome = perform(opened.data, message.task, opened.opening.scoring)
        except (IndexingError, ServiceError, ValueError) as error:
            failure = Failure.of(error)
        return Reply(outcome, failure)


def main(descriptor: int, level: LogLevel, form: LogFormat) -> None:
    """Answer the messages of the server until its end is closed; log as it does."""
    # The server decides when this process ends, also where a signal reaches all processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    cap_malloc_threshold()
    lower_priority()
    PARALLEL_STEPS.disable()
    connection, searcher = Connection(descriptor), Searcher()
    with configured_logs(level, form), suppress(EOFError, OSError):  # the server is gone
        while True:
            message = connection.recv()
            try:
                reply = searcher.answer(message)
            except Exception:  # the server does the search itself, and starts another process
                logging.getLogger(__name__).critical("%s", traceback.format_exc())
                connection.send(Reply(refusal="it failed"))
                os._exit(1)
            connection.send(reply)
