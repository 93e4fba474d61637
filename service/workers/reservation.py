"""The reservation that admission made for a request, found by all that is done for the request."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from service.workers.scheduler import EncodeScheduler
from service.workers.work import Reservation

_CURRENT: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


@contextmanager
def use_reservation(reservation: Reservation) -> Iterator[None]:
    """Make a reservation the current one inside the block."""
    token = _CURRENT.set(reservation)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def current_reservation(
    scheduler: EncodeScheduler, tokens: int, *, background: bool = False
) -> Iterator[Reservation]:
    """Yield the reservation of the current request, or a new one outside of any request.

    Args:
        scheduler: where to reserve.
        tokens: of a new reservation, estimated.
        background: no client waits for the work; always a new reservation.

    Raises:
        OverloadedError: there is no room for a new reservation.
        UnavailableError: the scheduler is closing or broken.
    """
    current = None if background else _CURRENT.get()
    # What a request started may continue after it, when its reservation has ended.
    if current is not None and not current.released:
        yield current
        return
    with scheduler.reserve(tokens, background=background) as reservation:
        yield reservation
