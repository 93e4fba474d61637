import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from index.vectors.faiss.faiss_index import ReadersWriterLock

PATIENCE = 120  # seconds until a thread counts as stuck; nothing is measured


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def finished(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Order:
    """Who got the lock, in the order in which they got it."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def enter(self, hold: Callable[[], AbstractContextManager[None]], name: str) -> None:
        with hold():
            self.entered.append(name)


def test_readers_read_together() -> None:
    lock = ReadersWriterLock()
    together = threading.Barrier(3, timeout=PATIENCE)

    def read() -> None:
        with lock.reading():
            together.wait()

    assert finished(*[start(read) for _ in range(3)])
    assert not together.broken


def test_a_writer_is_alone() -> None:
    lock = ReadersWriterLock()
    pair = [0, 0]
    torn: list[list[int]] = []

    def write() -> None:
        for _ in range(300):
            with lock.writing():
                pair[0] += 1
                pair[1] += 1

    def read() -> None:
        for _ in range(300):
            with lock.reading():
                if pair[0] != pair[1]:
                    torn.append(list(pair))

    assert finished(*[start(call) for call in (write, read) * 3])
    assert (pair, torn) == ([900, 900], [])


def test_a_reader_lets_a_waiting_writer_go_first() -> None:
    lock, order = ReadersWriterLock(), Order()
    with lock.reading():
        writer = start(lambda: order.enter(lock.writing, "writer"))
        until(lambda: lock._waiting_writers == 1)
        reader = start(lambda: order.enter(lock.reading, "reader"))
        until(lambda: lock._waiting_readers == 1 or order.entered != [])
    assert finished(writer, reader)
    assert order.entered == ["writer", "reader"]


def test_readers_that_waited_go_before_the_next_writer() -> None:
    lock, order = ReadersWriterLock(), Order()
    with lock.writing():
        writer = start(lambda: order.enter(lock.writing, "writer"))
        until(lambda: lock._waiting_writers == 1)
        readers = [start(lambda: order.enter(lock.reading, "reader")) for _ in range(2)]
        until(lambda: lock._waiting_readers == 2)
        assert order.entered == []
    assert finished(writer, *readers)
    assert order.entered == ["reader", "reader", "writer"]


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
