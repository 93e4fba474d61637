import threading
from collections.abc import Callable

from index.rwlock import ReadersWriterLock

PATIENCE = 30.0  # seconds until a thread counts as stuck; nothing is measured


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def finished(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


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

    assert finished(*[start(one) for one in (write, read) * 3])
    assert (pair, torn) == ([900, 900], [])


def test_readers_who_never_pause_do_not_starve_a_writer() -> None:
    lock = ReadersWriterLock()
    written = threading.Event()
    overlap = threading.Semaphore(1)

    def read() -> None:
        # Holds the lock until the next reader has asked for it: without turns it is never free.
        while not written.is_set():
            with lock.reading():
                overlap.release()
                overlap.acquire(timeout=0.01)

    def write() -> None:
        with lock.writing():
            written.set()

    readers = [start(read) for _ in range(4)]
    assert finished(start(write), *readers)


def test_writers_who_never_pause_do_not_starve_a_reader() -> None:
    lock = ReadersWriterLock()
    read_once = threading.Event()

    def write() -> None:
        while not read_once.is_set():
            with lock.writing():
                pass

    def read() -> None:
        with lock.reading():
            read_once.set()

    writers = [start(write) for _ in range(4)]
    assert finished(start(read), *writers)


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
