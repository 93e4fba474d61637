"""The errors of the client.

* LongmatchError
  * ConnectionFailedError     no answer arrived: the network, or the server went away
  * DeadlineExceededError     the time of a call, or of waiting for a job, is over
  * ResponseError             an answer that is not of this API, of a proxy for example
  * JobFailedError            a job ended, but is not done
  * ApiError                  the server refused or failed: a problem (RFC 9457)
    * InvalidRequestError     400, 405, 406, 413, 415, 421, 422: another request is needed
    * AuthenticationError     401
    * ForbiddenError          403
    * NotFoundError           404
    * ConflictError           409
    * RateLimitedError        429
    * UnavailableError        503: overloaded, not ready, or shutting down
    * ServerError             any other 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from longmatch.status import Job

_SERVER_ERRORS = 500


class LongmatchError(Exception):
    """Base of every error that the client raises on purpose."""


class ConnectionFailedError(LongmatchError):
    """No answer arrived; the cause is the error of httpx."""


class DeadlineExceededError(LongmatchError, TimeoutError):
    """The time of a call, or of waiting for a job, is over."""


class ResponseError(LongmatchError):
    """An answer is not of this API."""


class JobFailedError(LongmatchError):
    """A job was cancelled or failed.

    Attributes:
        job: as it ended.
    """

    def __init__(self, job: Job) -> None:
        detail = f": {job.detail}" if job.detail else ""
        super().__init__(f"the job {job.id} is {job.state}{detail}")
        self.job = job


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that the server refused.

    Attributes:
        detail: what is wrong with it.
        pointer: JSON pointer into the body, such as "#/documents/3/text"; None for a parameter.
        parameter: name of a parameter of path or query, or of a header; None for a field.
        limit: that it exceeds, if it exceeds one.
        tokens: of the text, if the limit counts tokens.
    """

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    limit: float | None = None
    tokens: int | None = None

    def __str__(self) -> str:
        return f"{self.pointer or self.parameter or '#'}: {self.detail}"


class ApiError(LongmatchError):
    """The server answered with a problem.

    Attributes:
        status: of HTTP.
        type: of the problem, such as "/problems/overloaded".
        title: of the type.
        detail: what went wrong this time.
        errors: the fields that are invalid.
        request_id: under which the log of the server has more; None if a proxy answered.
        retry_after: seconds after which to try again, if the server said so.
        members: of the problem, all of them.
    """

    def __init__(
        self, status: int, members: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        """Take the status and the members of a problem."""
        self.status = status
        self.type = str(members.get("type", "about:blank"))
        self.title = str(members.get("title", f"status {status}"))
        self.detail = str(members.get("detail", ""))
        self.errors = _field_errors(members.get("errors"))
        given = members.get("request_id")
        self.request_id = given if isinstance(given, str) else None
        self.retry_after = retry_after
        self.members = members
        shown = (self.detail or self.title).removesuffix(".")
        fields = "; ".join(map(str, self.errors))
        super().__init__(f"{status}: {shown}" + (f": {fields}" if fields else ""))


class InvalidRequestError(ApiError):
    """The request must be another one."""


class AuthenticationError(ApiError):
    """The API key is missing or wrong."""


class ForbiddenError(ApiError):
    """The API key may not do this."""


class NotFoundError(ApiError):
    """There is no such document, job, model or path."""


class ConflictError(ApiError):
    """The job has ended, or a request with the same idempotency key is in progress."""


class RateLimitedError(ApiError):
    """The client exceeds its rate limit."""


class UnavailableError(ApiError):
    """The server is overloaded, not ready, or shutting down; nothing was done."""


class ServerError(ApiError):
    """The server failed, or a proxy could not reach it."""


_CLASSES: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
    503: UnavailableError,
}


def api_error(status: int, members: Mapping[str, Any], retry_after: float | None) -> ApiError:
    """Return the error of a problem, of the class of its status."""
    default = ServerError if status >= _SERVER_ERRORS else InvalidRequestError
    return _CLASSES.get(status, default)(status, members, retry_after)


def connection_failed(error: httpx.TransportError) -> ConnectionFailedError:
    """Return the error of a connection that failed."""
    return ConnectionFailedError(f"{type(error).__name__}: {error}")


def _field_errors(given: object) -> tuple[FieldError, ...]:
    if not isinstance(given, list):
        return ()
    names = FieldError.__dataclass_fields__
    return tuple(
        FieldError(**{name: field[name] for name in names if name in field})
        for field in given
        if isinstance(field, dict) and "detail" in field
    )
