"""What can go wrong in `service`.

* ServiceError
  * SettingsError            the settings contradict the checkpoint
  * InvalidInputError        fields of a request are refused; names each of them
  * UnsupportedMediaTypeError   the body is not declared as what is read
  * NotAcceptableError       the client takes none of the media types that there are
  * BodyTooLargeError        the body has more bytes than are read
  * RequestTooLargeError     the documents of one request have more tokens than the queue holds
  * DocumentNotFoundError    no document has the id
  * MalformedUploadError     the body cannot be decompressed
  * JobNotFoundError         no job has the id
  * JobEndedError            the job that is to be cancelled has ended
  * KeyInUseError            a request with the same Idempotency-Key is being worked on
  * KeyReusedError           the Idempotency-Key was given with another request
  * OverloadedError          the queue is full; says when to come back
  * RateLimitedError         a client asks for more than its share; says when to come back
  * UploadTooSlowError       the body of a request does not come
  * DeadlinePassedError      the time that the client gave is over
  * EncodingFailedError      the encoder failed while it worked on the request
  * UnavailableError         the service cannot work
    * NotReadyError          it is not open yet, or it is broken
    * ShuttingDownError      it is closing
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

RejectionReason = Literal["queue_tokens", "queue_seconds", "deadline", "active_requests", "jobs"]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One refused field of a request.

    Attributes:
        pointer: JSON pointer to it, as a URI fragment: "#/documents/3/text".
        detail: what is wrong, without the value.
        limit: the limit that was passed, where there is one.
        tokens: tokens of the text, where the limit counts tokens.
        parameter: the header, instead of a pointer, where one is refused.
    """

    pointer: str
    detail: str
    limit: int | None = None
    tokens: int | None = None
    parameter: str | None = None


class ServiceError(Exception):
    """Base of every error that `service` raises on purpose."""


class SettingsError(ServiceError):
    """The settings contradict the checkpoint that they name."""


class InvalidInputError(ServiceError):
    """Fields of a request are refused."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))
        self.errors = tuple(errors)


class UnsupportedMediaTypeError(ServiceError):
    """The body of a request is not declared as what is read."""

    def __init__(
        self, advice: str = "send the body as JSON, with Content-Type: application/json"
    ) -> None:
        super().__init__(advice)


class NotAcceptableError(ServiceError):
    """The client takes none of the media types that the answer could have."""

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"the answer can be {' or '.join(offered)}: take one of them in Accept")


class BodyTooLargeError(ServiceError):
    """The body of a request has more bytes than are read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class RequestTooLargeError(ServiceError):
    """The documents of one request have together more tokens than the queue holds."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"the documents of this request have {tokens} tokens to read, "
            f"and one request may have {limit}: send fewer documents at a time"
        )
        self.tokens = tokens
        self.limit = limit


class DocumentNotFoundError(ServiceError):
    """No document has the id."""

    def __init__(self, document_id: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no document with the id {document_id!r}")
        self.pointer = pointer


class MalformedUploadError(ServiceError):
    """The body of a request cannot be decompressed."""


class JobNotFoundError(ServiceError):
    """No job has the id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job with the id {job_id!r}")


class JobEndedError(ServiceError):
    """The job that is to be cancelled has ended, this way or another."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"the job {job_id} is {state} already: there is nothing to cancel")


class KeyInUseError(ServiceError):
    """A request with the same Idempotency-Key is being worked on."""

    def __init__(self) -> None:
        super().__init__(
            "a request with this Idempotency-Key is being worked on: repeat yours in a moment"
        )


class KeyReusedError(ServiceError):
    """The Idempotency-Key was given with another request before."""

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was given with another body: use a new key for a new request"
        )


class OverloadedError(ServiceError):
    """The queue is full.

    Attributes:
        retry_after: whole seconds after which there should be room.
        reason: which bound was reached.
    """

    def __init__(self, retry_after: int, reason: RejectionReason) -> None:
        super().__init__(f"more work is waiting than the service takes: retry in {retry_after} s")
        self.retry_after = retry_after
        self.reason = reason


class RateLimitedError(ServiceError):
    """A client asks for more tokens than it may.

    Attributes:
        limit: tokens a minute.
        retry_after: whole seconds until the same request is admitted.
        headers: what the answer says of the client's rate.
    """

    def __init__(self, limit: int, retry_after: int, headers: Mapping[str, str]) -> None:
        super().__init__(
            f"this client may ask for {limit} tokens a minute: retry in {retry_after} s"
        )
        self.limit = limit
        self.retry_after = retry_after
        self.headers = headers


class UploadTooSlowError(ServiceError):
    """The body of a request came too slowly, or not at all."""

    def __init__(self) -> None:
        super().__init__("the body of the request did not arrive in time")


class DeadlinePassedError(ServiceError):
    """The time that the client gave is over, and its request was given up."""

    def __init__(self) -> None:
        super().__init__("the time that X-Request-Timeout-Ms gave is over")


class EncodingFailedError(ServiceError):
    """The encoder failed while it worked on the request; the cause is chained and logged."""

    def __init__(self) -> None:
        super().__init__("the document could not be encoded")


class UnavailableError(ServiceError):
    """The service cannot work."""


class NotReadyError(UnavailableError):
    """The service is not open yet, or a part of it has died."""

    def __init__(self, reason: str = "the service is not open yet") -> None:
        super().__init__(reason)


class ShuttingDownError(UnavailableError):
    """The service is closing."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down")
