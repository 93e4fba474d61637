"""One search process: started, asked, and started again when it has ended."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from service.metrics import Metrics
from service.searchers.protocol import Begin, Channel, Close, Message, Note, Opening, Reply

SEARCH_SECONDS = 10.0  # of a search; a process that takes longer is ended
OPENING_SECONDS = 600.0  # of the start, which may have to build what others find in files
FIRST_DELAY, LAST_DELAY = 0.5, 30.0  # seconds before an ended process is started again
UNABLE_SECONDS = 5.0  # before it is asked again about a data directory that it could not search
_STEADY_SECONDS = 60.0  # a process that lived so long was not ended by its start
_CLOSING_SECONDS = 5.0

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from service.searchers.child import main; main(int(sys.argv[1]))"
)
# Processes search in parallel; a second thread in each would only wait for the others.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ServedDirectory:
    """An open data directory of the server, in which processes search.

    Attributes:
        number: what processes know it by; another one if it is opened again.
        data: the data directory.
        fusion: joins its scores of vectors and words.
        calibrator: turns scores into probabilities.
    """

    number: int
    data: DataDirectory
    fusion: LinearFusion
    calibrator: ScoreCalibrator

    def same_as(self, other: "ServedDirectory | None") -> bool:
        """Return whether the parts are those of another one."""
        return (
            other is not None
            and self.data is other.data
            and self.fusion is other.fusion
            and self.calibrator is other.calibrator
        )


class SearchProcess:
    """A search process and the thread that keeps it running.

    Attributes:
        lock: held by the thread that asks.
    """

    def __init__(
        self,
        number: int,
        directories: Callable[[], list[tuple[ServedDirectory, Opening]]],
        metrics: Metrics,
    ) -> None:
        """Prepare it, for `start`.

        Args:
            number: of the process, for the log.
            directories: returns what it opens at its start, with how.
            metrics: where its starts and ends are counted.
        """
        self.lock = threading.Lock()
        self._number = number
        self._directories = directories
        self._metrics = metrics
        self._known: dict[int, ServedDirectory] = {}  # that it was asked to open, by number
        self._unable: dict[int, float] = {}  # and those that it cannot search, until when
        self._channel: Channel | None = None  # None while it cannot be asked
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(
            target=self._keep, name=f"search process {number}", daemon=True
        )

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""
        return self._channel is not None

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self._keeper.start()

    def knows(self, served: ServedDirectory) -> bool:
        """Return whether it was asked to open a data directory, with the same scores."""
        return served.same_as(self._known.get(served.number))

    def can_search(self, number: int) -> bool:
        """Return whether it has not left a search of a data directory to the server of late."""
        return self._unable.get(number, 0.0) <= time.monotonic()

    def ask(self, message: Message) -> Reply | None:
        """Send a message and wait for the reply; `lock` is held.

        Returns:
            The reply; None if the process has ended, or is ended as it takes too long.
        """
        channel = self._channel
        if channel is None:
            return None
        try:
            channel.send(message, SEARCH_SECONDS)
            reply: Reply = channel.receive(SEARCH_SECONDS)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                _log.warning(
                    "search process %d has not answered for %.0f s", self._number, SEARCH_SECONDS
                )
            self._channel = None
            self._kill()
            return None
        _log_notes(reply.notes)
        return reply

    def note_opened(self, served: ServedDirectory) -> None:
        """Remember that it has a data directory open; `lock` is held."""
        self._known[served.number] = served

    def note_unable(self, number: int) -> None:
        """Remember that it cannot open or follow a data directory now; `lock` is held."""
        self._known.pop(number, None)
        self._unable[number] = time.monotonic() + UNABLE_SECONDS

    def close_directory(self, number: int) -> None:
        """Let it close a data directory, if it has it open."""
        with self.lock:
            self._unable.pop(number, None)
            self._known.pop(number, None)
            self.ask(Close(number))

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
            process, channel = _spawn()
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

    def _begin(self, channel: Channel) -> None:
        """Let the process open the data directories; then it can be asked."""
        directories = self._directories()
        openings = tuple(opening for _, opening in directories)
        try:
            if self._stopping.is_set():
                raise EOFError
            channel.send(Begin(openings), OPENING_SECONDS)
            reply: Reply = channel.receive(OPENING_SECONDS)
        except (EOFError, OSError):
            self._kill()
            return
        _log_notes(reply.notes)
        with self.lock:
            self._known = {one.number: one for one, _ in directories}
            self._unable = {}
            if self._stopping.is_set():
                self._kill()
            else:
                self._channel = channel
            for number in self._known.keys() - {one.number for one, _ in self._directories()}:
                self.ask(Close(number))  # withdrawn meanwhile

    def _kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)


def _spawn() -> "tuple[subprocess.Popen[bytes], Channel]":
    """Start a process, and return it with the channel to it.

    It is in a session of its own: Ctrl-C in a terminal is for the server, with which it ends.
    """
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own code with our own interpreter
            [sys.executable, "-P", "-c", _CHILD, str(theirs.fileno()), json.dumps(sys.path)],
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
    return process, Channel(ours)


def _log_notes(notes: tuple[Note, ...]) -> None:
    for one in notes:
        logging.getLogger(one.logger).log(one.level, "%s", one.message)
