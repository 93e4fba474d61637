"""Repeating a request: when it is safe, how long to wait before, and when to give up."""

import email.utils
import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx

from longmatch.errors import (
    ApiError,
    DeadlineExceededError,
    LongmatchError,
    ResponseError,
    api_error,
    connection_failed,
)
from longmatch.steps import Reply, Request, Send, Sleep, Steps

TIMEOUT_HEADER = "X-Request-Timeout-Ms"

_REFUSED = frozenset({429, 503})  # the server did nothing
_UNKNOWN = frozenset({408, 502, 504})  # by the server or a proxy: it may have been done
_KEY_IN_USE = "/problems/idempotency-key-in-use"
_DEADLINE_PASSED = "/problems/deadline-passed"
_MAX_TIMEOUT_MS = 24 * 3600 * 1000
_ERRORS = 300
_CLOCK = 0.01  # seconds by which a timeout may come early
# No byte of the request was sent: whatever it is, it may be repeated.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to repeat a request, and how long to wait before.

    The wait before repetition n is random, from 0 to `first_seconds` x 2^(n-1), at most
    `max_seconds`. Where the server says when to retry, that time is added to a random one of up to
    `first_seconds`, so that its clients do not come back all at once.

    Attributes:
        attempts: at most, the first one included; 1 to never repeat.
        first_seconds: longest wait before the first repetition.
        max_seconds: longest wait that the client chooses by itself.
    """

    attempts: int = 5
    first_seconds: float = 0.25
    max_seconds: float = 8.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first_seconds, self.max_seconds) < 0:
            raise ValueError("a request has at least one attempt, and waits are not negative")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after an attempt, counted from 1."""
        if retry_after is not None:
            return retry_after + _up_to(self.first_seconds)
        return _up_to(min(self.max_seconds, self.first_seconds * 2.0 ** (attempt - 1)))


class Caller:
    """Sends the requests of one call: all of them share its time."""

    def __init__(self, retry: Retry, timeout: float | None) -> None:
        """Begin to count.

        Args:
            retry: how to repeat.
            timeout: seconds of the call, waits and repetitions included; None for any time.
        """
        self._retry = retry
        self._timeout = timeout
        self._until = math.inf if timeout is None else time.monotonic() + timeout

    def again(self) -> "Caller":
        """Return a caller that has the full time for another call."""
        return Caller(self._retry, self._timeout)

    def unlimited(self) -> "Caller":
        """Return a caller whose calls may take any time, as long as bytes move."""
        return Caller(self._retry, None)

    def ask(self, request: Request) -> Steps[Reply]:
        """Send a request until it succeeds, or may not be repeated any more.

        Raises:
            ApiError: the server refused or failed.
            ConnectionFailedError: no answer arrived.
            DeadlineExceededError: the time is over.
        """
        attempt, unseen = 0, False
        while True:
            attempt += 1
            error: LongmatchError
            try:
                reply: Reply = yield Send(self._timed(request), self._left())
            except httpx.RequestError as failure:
                error, unknown = self._failure(failure), not isinstance(failure, _UNSENT)
            else:
                if reply.status < _ERRORS or (unseen and reply.status == request.done_status):
                    return reply
                error, unknown = _error_of(reply), reply.status in _UNKNOWN
            wait = self._wait(request, attempt, error)
            if wait is None:
                raise error
            unseen = unseen or unknown
            yield Sleep(wait)

    def _left(self) -> float | None:
        """Return the seconds that are left.

        Raises:
            DeadlineExceededError: none are.
        """
        if math.isinf(self._until):
            return None
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> DeadlineExceededError:
        return DeadlineExceededError(f"there was no answer within {self._timeout} s")

    def _timed(self, request: Request) -> Request:
        """Tell the server how long its answer is of use, so that it does not work in vain."""
        left = self._left()
        if left is None or request.file is not None:
            return request
        milliseconds = max(1, min(math.ceil(left * 1000), _MAX_TIMEOUT_MS))
        return replace(request, headers={**request.headers, TIMEOUT_HEADER: str(milliseconds)})

    def _failure(self, error: httpx.RequestError) -> LongmatchError:
        failure: LongmatchError
        if isinstance(error, httpx.TimeoutException) and time.monotonic() + _CLOCK >= self._until:
            failure = self._late()
        elif isinstance(error, httpx.TransportError):
            failure = connection_failed(error)
        else:
            failure = ResponseError(f"the answer cannot be read: {error}")
        failure.__cause__ = error
        return failure

    def _wait(self, request: Request, attempt: int, error: LongmatchError) -> float | None:
        """Return the seconds to wait before the request is repeated; None if it must not be."""
        if attempt >= self._retry.attempts or not request.retried:
            return None
        if isinstance(error, DeadlineExceededError | ResponseError):
            return None
        if isinstance(error, ApiError) and not _is_passing(error):
            return None
        after = error.retry_after if isinstance(error, ApiError) else None
        wait = self._retry.wait(attempt, after)
        return None if time.monotonic() + wait >= self._until else wait


def _up_to(seconds: float) -> float:
    return random.uniform(0, seconds)  # noqa: S311 - no secret


def _is_passing(error: ApiError) -> bool:
    """Return whether the same request may succeed later."""
    return error.status in _REFUSED | _UNKNOWN or error.type == _KEY_IN_USE


def _error_of(reply: Reply) -> LongmatchError:
    try:
        members: Any = json.loads(reply.content)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        start = reply.content[:200].decode("utf-8", "replace")
        members = {"detail": start} if start else {}
    if members.get("type") == _DEADLINE_PASSED:
        return DeadlineExceededError(str(members.get("detail")))
    return api_error(reply.status, members, retry_after(reply.headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks to wait; None without a valid one.

    A date is compared with that of the answer, if it has one, so that a wrong clock does no harm.

    Args:
        headers: by name in lower case.
    """
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdecimal():
        return float(given)
    then = _date(given)
    if then is None:
        return None
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (then - now).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return date.replace(tzinfo=date.tzinfo or UTC)
