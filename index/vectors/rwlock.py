"""A readers-writer lock in which neither side starves."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadersWriterLock:
    """Many readers at once, or one writer.

    The two sides alternate: readers that arrive while a writer waits let it go first, and readers
    that waited behind a writer go before the next one. So a search waits for one change at most,
    and a change only for the searches that had already started. Not reentrant.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting_readers = 0
        self._admitted_readers = 0
        self._writing = False
        self._waiting_writers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._changed:
            self._waiting_readers += 1
            try:
                self._changed.wait_for(self._readers_may_enter)
                self._readers += 1
            finally:
                self._waiting_readers -= 1
                self._admitted_readers = max(0, self._admitted_readers - 1)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._waiting_writers += 1
            try:
                self._changed.wait_for(self._a_writer_may_enter)
                self._writing = True
            finally:
                self._waiting_writers -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._admitted_readers = self._waiting_readers
                self._changed.notify_all()

    def _readers_may_enter(self) -> bool:
        return not self._writing and (self._admitted_readers > 0 or self._waiting_writers == 0)

    def _a_writer_may_enter(self) -> bool:
        return not self._writing and self._readers == 0 and self._admitted_readers == 0
