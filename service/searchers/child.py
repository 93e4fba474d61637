"""A search process: messages in, replies out, until the server closes its end or is gone."""

import logging
import os
import signal
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from index.directory.data_directory import DataDirectory, open_data_directory
from index.directory.follower import follow_vectors, follow_words
from index.errors import IndexingError
from index.search.calibrate import Scoring
from index.search.parallel_steps import PARALLEL_STEPS
from service.errors import ServiceError
from service.searchers.protocol import Close, Message, Opening, Reply, Search, perform
from service.settings import LogFormat, LogLevel
from service.telemetry import configured_logs
from service.threads import cap_malloc_threshold, lower_priority


class Searcher:
    """Answers messages, one at a time."""

    def __init__(self) -> None:
        """Have no data directory open yet."""
        self._opened: dict[int, tuple[DataDirectory, Scoring]] = {}

    def answer(self, message: Message) -> Reply:
        """Do what a message asks for."""
        try:
            match message:
                case Opening():
                    self._open(message)
                case Close(number):
                    if number in self._opened:
                        self._opened.pop(number)[0].close()
                case Search():
                    return self._search(message)
        except IndexingError as error:  # the server need not read what it has in memory
            return Reply(refusal=str(error))
        return Reply()

    def _open(self, opening: Opening) -> None:
        """Open a data directory, or change its scores."""
        if opening.number in self._opened:
            data, _ = self._opened[opening.number]
        else:
            data = open_data_directory(
                opening.path,
                read_only=True,
                fingerprint=opening.fingerprint,
                dimension=opening.dimension,
                index_precision=opening.precision,
            )
        self._opened[opening.number] = data, opening.scoring

    def _search(self, message: Search) -> Reply:
        if message.opening is not None:
            self._open(message.opening)
        data, scoring = self._opened[message.number]
        if not follow_vectors(data, message.position):
            return Reply(refusal="the index of the server cannot be read")
        if message.task.options.mode != "semantic" and not follow_words(
            data, message.position, message.frequencies
        ):
            return Reply(needs_frequencies=True)
        with suppress(IndexingError, ServiceError, ValueError):  # which the server raises, too
            return Reply(perform(data, message.task, scoring))
        return Reply()


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
                os._exit(1)
            connection.send(reply)
