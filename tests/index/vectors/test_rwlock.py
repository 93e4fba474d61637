import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from index.vectors.faiss.faiss_index import ReadersWriterLock

TIMEOUT_SECONDS = 120  # seconds until a thread counts as stuck; nothing is measured


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def finished(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    return not any(thread.is_alive() for thread in threads)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def enter(hold: Callable[[], AbstractContextManager[None]], entered: list[str], name: str) -> None:
    """Note who got the lock."""
    with hold():
        entered.append(name)


def test_a_reader_lets_a_waiting_writer_go_first() -> None:
    lock, entered = ReadersWriterLock(), list[str]()
    with lock.reading():
        writer = start(lambda: enter(lock.writing, entered, "writer"))
        until(lambda: lock._waiting_writers == 1)
        reader = start(lambda: enter(lock.reading, entered, "reader"))
        until(lambda: lock._waiting_readers == 1 or entered != [])
    assert finished(writer, reader)
    assert entered == ["writer", "reader"]


def test_readers_that_waited_go_before_the_next_writer() -> None:
    lock, entered = ReadersWriterLock(), list[str]()
    with lock.writing():
        writer = start(lambda: enter(lock.writing, entered, "writer"))
        until(lambda: lock._waiting_writers == 1)
        readers = [start(lambda: enter(lock.reading, entered, "reader")) for _ in range(2)]
        until(lambda: lock._waiting_readers == 2)
        assert entered == []
    assert finished(writer, *readers)
    assert entered == ["reader", "reader", "writer"]


def test_an_error_inside_frees_the_lock() -> None:
    lock = ReadersWriterLock()
    for enter in (lock.reading, lock.writing):
        try:
            with enter():
                raise KeyError
        except KeyError:
            pass

    def write() -> None:
        with lock.writing():
            pass

    assert finished(start(write))
