"""The place in the queue that a request was given at the door, for all that is done for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from service.workers.scheduler import EncodeScheduler
from service.workers.work import Reservation

_PLACE: ContextVar[Reservation | None] = ContextVar("place", default=None)


@contextmanager
def use_reservation(place: Reservation) -> Iterator[None]:
    """Let what is called in the block use a place."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


@contextmanager
def current_reservation(
    scheduler: EncodeScheduler, tokens: int, *, background: bool = False
) -> Iterator[Reservation]:
    """Give the place of the request, or a new one to who has none: work of no request.

    Args:
        scheduler: whose queue.
        tokens: that are expected, for a new place.
        background: whether nobody waits; always a new place.

    Raises:
        OverloadedError: there is no room for a new place.
        UnavailableError: the scheduler is closing or broken.
    """
    held = None if background else _PLACE.get()
    # What a request began may go on after it: its place is gone by then.
    if held is not None and not held.released:
        yield held
        return
    with scheduler.reserve(tokens, background=background) as place:
        yield place
