import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from index.vectors.faiss.faiss_index import ReadersWriterLock

TIMEOUT_SECONDS = 120  # until a thread counts as stuck; nothing is measured
MOMENT = 0.05  # to go wrong in


def start(hold: Callable[[], AbstractContextManager[None]], entered: list[str]) -> threading.Thread:
    """Note in a thread that it got the lock."""

    def enter() -> None:
        with hold():
            entered.append(hold.__name__)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return thread


def test_a_reader_lets_a_waiting_writer_go_first() -> None:
    lock, entered = ReadersWriterLock(), list[str]()
    with lock.reading():
        beside = start(lock.reading, entered)
        beside.join(TIMEOUT_SECONDS)
        writer = start(lock.writing, entered)
        while not lock._entry.locked():
            writer.join(0.001)
        reader = start(lock.reading, entered)
        reader.join(MOMENT)
        assert entered == ["reading"]
    for thread in (writer, reader):
        thread.join(TIMEOUT_SECONDS)
    assert entered == ["reading", "writing", "reading"]


@pytest.mark.parametrize("other", ["reading", "writing"])
def test_a_writer_is_alone_and_an_error_inside_frees_the_lock(other: str) -> None:
    lock, entered = ReadersWriterLock(), list[str]()
    for hold in (lock.reading, lock.writing):
        with pytest.raises(KeyError), hold():
            raise KeyError
    with lock.writing():
        waiting = start(getattr(lock, other), entered)
        waiting.join(MOMENT)
        assert entered == []
    waiting.join(TIMEOUT_SECONDS)
    assert entered == [other]
