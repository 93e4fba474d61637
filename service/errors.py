"""The errors of `service`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from index.errors import StorageError, StoreError
from service import problems
from service.problems import ProblemType

RejectionReason = Literal[
    "queue_tokens",
    "queue_seconds",
    "deadline",
    "active_requests",
    "body_bytes",
    "exports",
    "files",
    "listeners",
    "jobs",
    "client_jobs",
]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field of a request.

    Attributes:
        pointer: JSON pointer to it, as a URI fragment: "#/documents/3/text".
        detail: what is wrong, without the value.
        limit: the limit that it exceeds, if it exceeds one.
        tokens: of the text, if the limit counts tokens.
        parameter: the name of a header, instead of a pointer.
    """

    pointer: str
    detail: str
    limit: int | None = None
    tokens: int | None = None
    parameter: str | None = None


class ServiceError(Exception):
    """Base of every error that `service` raises on purpose.

    Attributes:
        problem_type: of the problem that it becomes.
        message: what went wrong, with a place for each argument of the error.
        members: that the problem has in addition to those of every problem.
        headers: that the response has.
    """

    problem_type: ClassVar[ProblemType] = problems.INTERNAL_ERROR
    message: ClassVar[str] = "{}"
    members: Mapping[str, Any] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *arguments: object) -> None:
        super().__init__(self.message.format(*arguments))


class SettingsError(ServiceError):
    """The settings are invalid, or contradict the checkpoint."""


class KeyFileError(ServiceError):
    """The file of API keys cannot be read or written."""


class KeyRequiredError(ServiceError):
    """The request has no valid API key."""

    problem_type = problems.KEY_REQUIRED
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})
    message = "send a valid API key: Authorization: Bearer lm_..."


class ScopeMissingError(ServiceError):
    """The API key of the request does not have the scope that it needs."""

    problem_type = problems.SCOPE_MISSING
    message = "the API key does not have the scope {}"


class KeyBoundError(ServiceError):
    """The API key of the request is bound to one collection, and the request is for all."""

    problem_type = problems.SCOPE_MISSING
    message = "the API key is bound to one collection, and this is for all of them"


class InvalidInputError(ServiceError):
    """Fields of a request are invalid."""

    problem_type = problems.INVALID_INPUT

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))
        self.errors = tuple(errors)


class HostNotAllowedError(ServiceError):
    """The Host header of a request names another service."""

    problem_type = problems.HOST_NOT_ALLOWED
    message = (
        "the service is not known under the name in the Host header: an operator can add it to "
        "LONGMATCH_ALLOWED_HOSTS"
    )


class UnsupportedMediaTypeError(ServiceError):
    """The body of a request has a media type that is not accepted."""

    problem_type = problems.UNSUPPORTED_MEDIA_TYPE

    def __init__(
        self, advice: str = "send the body as JSON, with Content-Type: application/json"
    ) -> None:
        super().__init__(advice)


class NotAcceptableError(ServiceError):
    """The client accepts none of the media types that the response can have."""

    problem_type = problems.NOT_ACCEPTABLE

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"the response can be {' or '.join(offered)}: accept one of them")


class BodyTooLargeError(ServiceError):
    """The body of a request has too many bytes."""

    problem_type = problems.BODY_TOO_LARGE
    headers = MappingProxyType({"Connection": "close"})

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.members = {"limit": limit}


class CompressionRatioError(ServiceError):
    """A compressed body is too many times larger when it is decompressed."""

    problem_type = problems.COMPRESSION_RATIO
    headers = MappingProxyType({"Connection": "close"})

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the body decompresses to more than {limit:g} times its size: send it uncompressed, "
            "or in parts with less repetition"
        )
        self.members = {"limit": limit}


class RequestTooLargeError(ServiceError):
    """The documents of one request together have more tokens than the queue holds."""

    problem_type = problems.REQUEST_TOO_LARGE

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"the documents of this request have {tokens} tokens to read, and the limit of one "
            f"request is {limit}: send fewer documents at a time"
        )
        self.members = {"tokens": tokens, "limit": limit}


class DocumentNotFoundError(ServiceError):
    """No document has the id."""

    problem_type = problems.DOCUMENT_NOT_FOUND

    def __init__(self, document_id: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no document with the id {document_id!r}")
        self.pointer = pointer


class CollectionNotFoundError(ServiceError):
    """No collection has the name."""

    problem_type = problems.COLLECTION_NOT_FOUND
    message = "there is no collection {!r}"


class TooManyCollectionsError(ServiceError):
    """There are as many collections as the settings allow."""

    problem_type = problems.TOO_MANY_COLLECTIONS
    message = "there are {} collections, which is the limit (max_collections): remove one"


class StandingQueryNotFoundError(ServiceError):
    """No standing query has the id."""

    problem_type = problems.STANDING_QUERY_NOT_FOUND
    message = "there is no standing query with the id {!r}"


class TooManyStandingQueriesError(ServiceError):
    """There are as many standing queries, or as long ones, as the settings allow."""

    problem_type = problems.TOO_MANY_STANDING_QUERIES
    message = "the collection has no room for another standing query: the limit is {} {}"


class FeedbackNotFoundError(ServiceError):
    """No verdict has the id."""

    problem_type = problems.FEEDBACK_NOT_FOUND
    message = "there is no feedback with the id {!r}"


class FeedbackFullError(ServiceError):
    """There is as much feedback as the settings allow."""

    problem_type = problems.FEEDBACK_FULL
    message = "there is as much feedback as there may be, {}: delete some"


class DatabaseFailedError(StorageError, ServiceError):
    """The database of the setting `state` cannot be reached, or failed."""

    problem = "the database failed"
    problem_type = problems.STORAGE_FAILED


class ModelNotFoundError(ServiceError):
    """The name of a model is not that of the served checkpoint, nor its alias."""

    problem_type = problems.MODEL_NOT_FOUND

    def __init__(self, name: str, served: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no model {name!r}: the one that is served is {served!r}")
        self.pointer = pointer


class MalformedUploadError(ServiceError):
    """The body of a request cannot be decompressed."""

    problem_type = problems.MALFORMED_BODY


class JobNotFoundError(ServiceError):
    """No job has the id."""

    problem_type = problems.JOB_NOT_FOUND
    message = "there is no job with the id {!r}"


class JobEndedError(ServiceError):
    """The job to cancel has ended already."""

    problem_type = problems.JOB_ENDED
    message = "the job {} is {} already: there is nothing to cancel"


class KeyInUseError(ServiceError):
    """A request with the same Idempotency-Key is in progress."""

    problem_type = problems.KEY_IN_USE
    message = "a request with this Idempotency-Key is in progress: repeat yours in a moment"


class KeyReusedError(ServiceError):
    """The Idempotency-Key was used with another request before."""

    problem_type = problems.KEY_REUSED
    message = "this Idempotency-Key was used with another body: use a new key for a new request"


class OverloadedError(ServiceError):
    """There is more work than the service accepts.

    Attributes:
        retry_after: whole seconds after which there should be room.
        reason: the limit that was reached.
    """

    problem_type = problems.OVERLOADED

    def __init__(self, retry_after: int, reason: RejectionReason) -> None:
        super().__init__(f"more work is waiting than the service accepts: retry in {retry_after} s")
        self.retry_after = retry_after
        self.reason = reason
        self.members = {"retry_after": retry_after}
        self.headers = {"Retry-After": str(retry_after)}


class RateLimitedError(ServiceError):
    """A client exceeds its rate limit.

    Attributes:
        retry_after: whole seconds until the same request is admitted.
    """

    problem_type = problems.RATE_LIMITED

    def __init__(self, limit: int, retry_after: int, headers: Mapping[str, str]) -> None:
        super().__init__(
            f"the limit of this client is {limit} tokens a minute: retry in {retry_after} s"
        )
        self.retry_after = retry_after
        self.members = {"retry_after": retry_after, "limit": limit}
        self.headers = {"Retry-After": str(retry_after), **headers}


class UploadTooSlowError(ServiceError):
    """The body of a request did not arrive in time."""

    problem_type = problems.UPLOAD_TOO_SLOW
    headers = MappingProxyType({"Connection": "close"})
    message = "the body of the request did not arrive in time"


class DeadlinePassedError(ServiceError):
    """The deadline that the client set has passed, and its request was cancelled."""

    problem_type = problems.DEADLINE_PASSED
    message = "the deadline set by X-Request-Timeout-Ms has passed"


class EncodingFailedError(ServiceError):
    """The encoder failed while it processed the request; the cause is chained and logged."""

    problem_type = problems.ENCODING_FAILED
    message = "the document could not be encoded"


class UnavailableError(ServiceError):
    """The service cannot work."""

    problem_type = problems.NOT_READY


class NotReadyError(UnavailableError):
    """The service is starting, or a part of it has failed."""

    headers = MappingProxyType({"Retry-After": "5"})

    def __init__(self, reason: str = "the service is still starting") -> None:
        super().__init__(reason)


class ShuttingDownError(UnavailableError):
    """The service is closing."""

    problem_type = problems.SHUTTING_DOWN
    message = "the service is shutting down"


def describe(error: Exception) -> str:
    """Return what went wrong, without text that may come from a document."""
    known = isinstance(error, StoreError | UnavailableError)
    return str(error) if known else type(error).__name__
