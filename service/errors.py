"""The errors of `service`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from index.errors import StorageError, StoreError

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
    "upload_bytes",
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
    """Base of every error that `service` raises on purpose."""


class SettingsError(ServiceError):
    """The settings are invalid, or contradict the checkpoint."""


class KeyFileError(ServiceError):
    """The file of API keys cannot be read or written."""


class KeyRequiredError(ServiceError):
    """The request has no valid API key."""

    def __init__(self) -> None:
        super().__init__("send a valid API key: Authorization: Bearer lm_...")


class ScopeMissingError(ServiceError):
    """The API key of the request does not have the scope that it needs."""

    def __init__(self, scope: str) -> None:
        """Name the scope."""
        super().__init__(f"the API key does not have the scope {scope}")


class KeyBoundError(ServiceError):
    """The API key of the request is bound to one collection, and the request is for all."""

    def __init__(self) -> None:
        super().__init__("the API key is bound to one collection, and this is for all of them")


class InvalidInputError(ServiceError):
    """Fields of a request are invalid."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))
        self.errors = tuple(errors)


class HostNotAllowedError(ServiceError):
    """The Host header of a request names another service."""

    def __init__(self) -> None:
        super().__init__(
            "the service is not known under the name in the Host header: an operator can add it to "
            "LONGMATCH_ALLOWED_HOSTS"
        )


class UnsupportedMediaTypeError(ServiceError):
    """The body of a request has a media type that is not accepted."""

    def __init__(
        self, advice: str = "send the body as JSON, with Content-Type: application/json"
    ) -> None:
        super().__init__(advice)


class NotAcceptableError(ServiceError):
    """The client accepts none of the media types that the response can have."""

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"the response can be {' or '.join(offered)}: accept one of them")


class BodyTooLargeError(ServiceError):
    """The body of a request has too many bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class CompressionRatioError(ServiceError):
    """A compressed body is too many times larger when it is decompressed."""

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the body decompresses to more than {limit:g} times its size: send it uncompressed, "
            "or in parts with less repetition"
        )
        self.limit = limit


class RequestTooLargeError(ServiceError):
    """The documents of one request together have more tokens than the queue holds."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"the documents of this request have {tokens} tokens to read, and the limit of one "
            f"request is {limit}: send fewer documents at a time"
        )
        self.tokens = tokens
        self.limit = limit


class DocumentNotFoundError(ServiceError):
    """No document has the id."""

    def __init__(self, document_id: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no document with the id {document_id!r}")
        self.pointer = pointer


class CollectionNotFoundError(ServiceError):
    """No collection has the name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")


class TooManyCollectionsError(ServiceError):
    """There are as many collections as the settings allow."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"there are {limit} collections, which is the limit (max_collections): remove one"
        )
        self.limit = limit


class StandingQueryNotFoundError(ServiceError):
    """No standing query has the id."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"there is no standing query with the id {query_id!r}")


class TooManyStandingQueriesError(ServiceError):
    """There are as many standing queries, or as long ones, as the settings allow."""

    def __init__(self, limit: int, unit: str) -> None:
        """Name the limit, and what it counts."""
        super().__init__(
            f"the collection has no room for another standing query: the limit is {limit} {unit}"
        )
        self.limit = limit


class FeedbackNotFoundError(ServiceError):
    """No verdict has the id."""

    def __init__(self, feedback_id: str) -> None:
        super().__init__(f"there is no feedback with the id {feedback_id!r}")


class FeedbackFullError(ServiceError):
    """There is as much feedback as the settings allow."""

    def __init__(self, taken: str, limit: int) -> None:
        """Say how much there is, which is the limit."""
        super().__init__(f"there is as much feedback as there may be, {taken}: delete some")
        self.limit = limit


class DatabaseFailedError(StorageError, ServiceError):
    """The database of the setting `state` cannot be reached, or failed."""

    problem = "the database failed"


class ModelNotFoundError(ServiceError):
    """The name of a model is not that of the served checkpoint, nor its alias."""

    def __init__(self, name: str, served: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no model {name!r}: the one that is served is {served!r}")
        self.pointer = pointer


class MalformedUploadError(ServiceError):
    """The body of a request cannot be decompressed."""


class JobNotFoundError(ServiceError):
    """No job has the id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job with the id {job_id!r}")


class JobEndedError(ServiceError):
    """The job to cancel has ended already."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"the job {job_id} is {state} already: there is nothing to cancel")


class KeyInUseError(ServiceError):
    """A request with the same Idempotency-Key is in progress."""

    def __init__(self) -> None:
        super().__init__(
            "a request with this Idempotency-Key is in progress: repeat yours in a moment"
        )


class KeyReusedError(ServiceError):
    """The Idempotency-Key was used with another request before."""

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was used with another body: use a new key for a new request"
        )


class OverloadedError(ServiceError):
    """There is more work than the service accepts.

    Attributes:
        retry_after: whole seconds after which there should be room.
        reason: the limit that was reached.
    """

    def __init__(self, retry_after: int, reason: RejectionReason) -> None:
        super().__init__(f"more work is waiting than the service accepts: retry in {retry_after} s")
        self.retry_after = retry_after
        self.reason = reason


class RateLimitedError(ServiceError):
    """A client exceeds its rate limit.

    Attributes:
        limit: tokens a minute.
        retry_after: whole seconds until the same request is admitted.
        headers: the RateLimit headers of the response.
    """

    def __init__(self, limit: int, retry_after: int, headers: Mapping[str, str]) -> None:
        super().__init__(
            f"the limit of this client is {limit} tokens a minute: retry in {retry_after} s"
        )
        self.limit = limit
        self.retry_after = retry_after
        self.headers = headers


class UploadTooSlowError(ServiceError):
    """The body of a request did not arrive in time."""

    def __init__(self) -> None:
        super().__init__("the body of the request did not arrive in time")


class DeadlinePassedError(ServiceError):
    """The deadline that the client set has passed, and its request was cancelled."""

    def __init__(self) -> None:
        super().__init__("the deadline set by X-Request-Timeout-Ms has passed")


class EncodingFailedError(ServiceError):
    """The encoder failed while it processed the request; the cause is chained and logged."""

    def __init__(self) -> None:
        super().__init__("the document could not be encoded")


class UnavailableError(ServiceError):
    """The service cannot work."""


class NotReadyError(UnavailableError):
    """The service is starting, or a part of it has failed."""

    def __init__(self, reason: str = "the service is still starting") -> None:
        super().__init__(reason)


class ShuttingDownError(UnavailableError):
    """The service is closing."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down")


def describe(error: Exception) -> str:
    """Return what went wrong, without text that may come from a document."""
    known = isinstance(error, StoreError | UnavailableError)
    return str(error) if known else type(error).__name__
