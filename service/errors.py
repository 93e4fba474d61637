"""The errors of `service`, each with the problem type (RFC 9457) that it becomes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from index.errors import StoreError

RejectionReason = Literal[
    "queue_tokens",
    "queue_seconds",
    "deadline",
    "active_requests",
    "body_bytes",
    "exports",
    "files",
    "jobs",
    "client_jobs",
]


@dataclass(frozen=True, slots=True)
class ProblemType:
    """The meaning of a kind of error, which is at its `type`, `/problems/NAME`."""

    type: str
    status: int
    title: str
    description: str


PROBLEM_TYPES: dict[str, ProblemType] = {}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field of a request.

    Attributes:
        pointer: JSON pointer to it, as a URI fragment: "#/documents/3/text"; "" for a parameter.
        detail: what is wrong, without the value.
        limit: the limit that it exceeds, if it exceeds one.
        tokens: of the text, if the limit counts tokens.
        parameter: the name of a header, or of a part of the path or the query.
    """

    pointer: str
    detail: str
    limit: float | None = None
    tokens: int | None = None
    parameter: str | None = None

    @property
    def shown(self) -> dict[str, Any]:
        """What a problem says of it."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


_WORD = re.compile("(?<=[a-z])(?=[A-Z])")


class ServiceError(Exception):
    """Base of every error that `service` raises on purpose.

    A class with the argument `problem` (status, title) has a problem type, with the name of the
    class, which its docstring describes to clients; any other class has that of its base.

    Attributes:
        problem_type: of the problem that it becomes.
        message: what went wrong, with a place for each argument of the error.
        errors: the fields that are wrong.
        members: that the problem has in addition to those of every problem.
        headers: that the response has.
    """

    problem_type: ClassVar[ProblemType]
    message: ClassVar[str] = "{}"
    errors: Sequence[FieldError] = ()
    members: Mapping[str, Any] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})

    def __init_subclass__(cls, problem: tuple[int, str] | None = None, name: str = "") -> None:
        if problem is not None:
            name = name or _WORD.sub("-", cls.__name__.removesuffix("Error")).lower()
            description = " ".join(cleandoc(cls.__doc__ or "").split())
            kind = ProblemType(f"/problems/{name}", *problem, description)
            cls.problem_type = PROBLEM_TYPES[name] = kind

    def __init__(self, *arguments: object, **members: object) -> None:
        super().__init__(self.message.format(*arguments, **members))
        if members:
            self.members = members


def _missing(pointer: str | None) -> tuple[FieldError, ...]:
    """Say of the field at a pointer that what it names does not exist."""
    return () if pointer is None else (FieldError(pointer, "does not exist"),)


class MalformedRequestError(ServiceError, problem=(400, "The request is not HTTP/1.1")):
    """The bytes of the connection are not a request.

    The head cannot be parsed or is too long, or the body contradicts it. The connection is closed.
    """


class NoSuchRouteError(ServiceError, problem=(404, "There is nothing at this path")):
    """The path is not one of those that the API documentation lists."""

    message = "the path is not one of those that the API documentation lists"


class MethodNotAllowedError(ServiceError, problem=(405, "The method is not allowed here")):
    """The path exists, but not for this method. The Allow header names the allowed ones."""

    def __init__(self, allowed: Sequence[str]) -> None:
        methods = ", ".join(allowed)
        super().__init__(f"the path exists, but not for this method: it allows {methods}")
        self.headers = {"Allow": methods}


class InternalError(ServiceError, problem=(500, "The service failed"), name="internal-error"):
    """An error of the service, not of the client. Its log has the details under `request_id`."""


class SettingsError(InternalError):
    """The settings are invalid, or contradict the checkpoint."""


class KeyFileError(InternalError):
    """The file of API keys cannot be read or written."""


class DocumentDamagedError(ServiceError, problem=(500, "A stored document is damaged")):
    """The stored document that the request needs is damaged, for example by a failing disk.

    `id` names it. Run `longmatch doctor --repair`, and index it again.
    """

    message = "the stored document {id!r} is damaged in its {}"


class StorageFailedError(ServiceError, problem=(503, "The storage of the service failed")):
    """A file of the service could not be read or written, or its database failed.

    The disk failed or is read only, or a limit of the system is reached, as `detail` says. Nothing
    was changed.
    """

    headers = MappingProxyType({"Retry-After": "60"})

    def __init__(self, reason: str) -> None:
        super().__init__(f"{self.problem_type.title}: {reason}")


class StorageFullError(StorageFailedError, problem=(507, "The disk of the service is full")):
    """There is no room to store anything.

    Nothing was changed, and what is stored can be read. Retry when the operator has made room.
    """


class EngineFailedError(
    StorageFailedError, problem=(503, "The engine that searches cannot be used")
):
    """The Qdrant of LONGMATCH_ENGINE does not answer, refuses, or holds something else.

    `detail` says which. What was to be stored is stored, and found as soon as the engine answers.
    """


class KeyRequiredError(ServiceError, problem=(401, "A valid API key is required")):
    """The header `Authorization: Bearer KEY` is missing, or the key is wrong, revoked or expired.

    `longmatch keys create` makes one.
    """

    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})
    message = "send a valid API key: Authorization: Bearer lm_..."


class ScopeMissingError(ServiceError, problem=(403, "The API key does not have the scope")):
    """The API key is valid, but may not do this.

    `detail` names the scope that it takes, or says that the key is bound to one collection.
    """

    message = "the API key does not have the scope {}"


class KeyBoundError(ScopeMissingError):
    """The API key of the request is bound to one collection, and the request is for all."""

    message = "the API key is bound to one collection, and this is for all of them"


class InvalidInputError(ServiceError, problem=(422, "A field is invalid")):
    """`errors` names each invalid field by JSON pointer, with the limit if it exceeds one."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))
        self.errors = tuple(errors)


class HostNotAllowedError(ServiceError, problem=(421, "The Host header names another service")):
    """The service is not known under the name in the Host header.

    It may be that of a malicious page. The setting `allowed_hosts` has the names under which it is.
    """

    message = (
        "the service is not known under the name in the Host header: an operator can add it to "
        "LONGMATCH_ALLOWED_HOSTS"
    )


class UnsupportedMediaTypeError(ServiceError, problem=(415, "The body must be JSON")):
    """The request must have Content-Type: application/json.

    POST /index also accepts application/x-ndjson, with Content-Encoding gzip or none, and POST
    /text takes files.
    """

    def __init__(
        self, advice: str = "send the body as JSON, with Content-Type: application/json"
    ) -> None:
        super().__init__(advice)


class NotAcceptableError(ServiceError, problem=(406, "The response has no acceptable media type")):
    """The Accept header accepts none of the media types that the response can have.

    `detail` names them.
    """

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"the response can be {' or '.join(offered)}: accept one of them")


class BodyTooLargeError(ServiceError, problem=(413, "The body is too large")):
    """The body has more bytes than the setting `max_body_bytes`.

    If it is NDJSON, than `max_upload_bytes`, compressed or not.
    """

    headers = MappingProxyType({"Connection": "close"})

    message = "the body is larger than {limit} bytes"


class CompressionRatioError(
    ServiceError, problem=(413, "The body decompresses to too many times its size")
):
    """A gzip body may be 100 times larger decompressed, which no ordinary text is.

    Nothing was kept.
    """

    headers = MappingProxyType({"Connection": "close"})

    message = (
        "the body decompresses to more than {limit:g} times its size: send it uncompressed, or in "
        "parts with less repetition"
    )


class RequestTooLargeError(ServiceError, problem=(413, "The request has too many tokens")):
    """The texts of the request together have more tokens to read than the queue holds.

    That is the setting `max_queue_tokens`. Send fewer at a time.
    """

    message = (
        "the documents of this request have {tokens} tokens to read, and the limit of one request "
        "is {limit}: send fewer documents at a time"
    )


class DocumentNotFoundError(ServiceError, problem=(404, "No document has this id")):
    """The document was never stored, or it was deleted."""

    def __init__(self, document_id: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no document with the id {document_id!r}")
        self.errors = _missing(pointer)


class CollectionNotFoundError(ServiceError, problem=(404, "No collection has this name")):
    """There is no collection of this name, or the API key is bound to another one."""

    message = "there is no collection {!r}"


class TooManyCollectionsError(ServiceError, problem=(409, "There are too many collections")):
    """There are as many collections as the setting `max_collections` allows.

    Nothing was created.
    """

    message = "there are {} collections, which is the limit (max_collections): remove one"


class StandingQueryNotFoundError(ServiceError, problem=(404, "No standing query has this id")):
    """The standing query never existed, or it was deleted."""

    message = "there is no standing query with the id {!r}"


class TooManyStandingQueriesError(
    ServiceError, problem=(409, "There are too many standing queries")
):
    """The collection has as many standing queries as the setting `max_standing_queries` allows.

    Or their texts have 256 MiB. Nothing was made.
    """

    message = "the collection has no room for another standing query: the limit is {} {}"


class FeedbackNotFoundError(ServiceError, problem=(404, "No feedback has this id")):
    """The verdict was never stored, or it was deleted, perhaps with its document."""

    message = "there is no feedback with the id {!r}"


class FeedbackFullError(ServiceError, problem=(409, "There is too much feedback")):
    """There are as many verdicts as the setting `max_feedback` allows.

    Or the texts of their queries take 256 MiB. Nothing was stored; a verdict that exists can still
    be changed.
    """

    message = "there is as much feedback as there may be, {}: delete some"


class ModelNotFoundError(ServiceError, problem=(404, "No model has this name")):
    """The service has one model, its checkpoint, which GET /v1/models names.

    `longmatch` stands for it, too.
    """

    def __init__(self, name: str, served: str, pointer: str | None = None) -> None:
        super().__init__(f"there is no model {name!r}: the one that is served is {served!r}")
        self.errors = _missing(pointer)


class MalformedBodyError(ServiceError, problem=(400, "The body is not JSON")):
    """The body could not be parsed as UTF-8 encoded JSON, or could not be decompressed.

    `detail` says where.
    """


class JobNotFoundError(ServiceError, problem=(404, "No job has this id")):
    """The job never existed, or it ended long ago and was deleted."""

    message = "there is no job with the id {!r}"


class JobEndedError(ServiceError, problem=(409, "The job has ended")):
    """A job that is done, cancelled or failed cannot be cancelled. Nothing has changed."""

    message = "the job {} is {} already: there is nothing to cancel"


class IdempotencyKeyInUseError(
    ServiceError, problem=(409, "A request with this Idempotency-Key is in progress")
):
    """The first request with this key has not ended.

    Repeat this one in a moment: it then gets the response of the first.
    """

    message = "a request with this Idempotency-Key is in progress: repeat yours in a moment"


class IdempotencyKeyReusedError(
    ServiceError, problem=(422, "The Idempotency-Key was used with another body")
):
    """A response is stored under this key, and it belongs to a request with another body.

    Nothing was done.
    """

    message = "this Idempotency-Key was used with another body: use a new key for a new request"


class OverloadedError(ServiceError, problem=(503, "The service is overloaded")):
    """More work is waiting than the service accepts.

    Nothing was done; retry after the number of seconds in the Retry-After header.
    """

    def __init__(self, retry_after: int, reason: RejectionReason) -> None:
        """Take whole seconds after which there should be room, and the limit that was reached."""
        super().__init__(f"more work is waiting than the service accepts: retry in {retry_after} s")
        self.reason = reason
        self.members = {"retry_after": retry_after}
        self.headers = {"Retry-After": str(retry_after)}


class RateLimitedError(ServiceError, problem=(429, "The client exceeds its rate limit")):
    """The client has used more tokens than the setting `rate_limit_tokens_per_minute`.

    It is known by its API key or its address; a body costs one for four bytes, decompressed. The
    RateLimit header says how many are left, Retry-After when to retry.
    """

    def __init__(self, limit: int, retry_after: int, headers: Mapping[str, str]) -> None:
        super().__init__(
            f"the limit of this client is {limit} tokens a minute: retry in {retry_after} s"
        )
        self.members = {"retry_after": retry_after, "limit": limit}
        self.headers = {"Retry-After": str(retry_after), **headers}


class UploadTooSlowError(ServiceError, problem=(408, "The body did not arrive in time")):
    """A body may take 10 seconds, plus one for each 64 KiB."""

    headers = MappingProxyType({"Connection": "close"})
    message = "the body of the request did not arrive in time"


class DeadlinePassedError(ServiceError, problem=(504, "The deadline of the request has passed")):
    """The milliseconds of the X-Request-Timeout-Ms header passed before the response was ready.

    What had not started was not done; documents that were being stored may be stored.
    """

    message = "the deadline set by X-Request-Timeout-Ms has passed"


class EncodingFailedError(ServiceError, problem=(500, "The encoder failed")):
    """The encoder failed while it processed the request; nothing was stored.

    The log of the service has the details under `request_id`.
    """

    message = "the document could not be encoded: the log has more under this request_id"


class NotReadyError(ServiceError, problem=(503, "The service is not ready")):
    """The service is starting, or a part of it has failed.

    In lexical mode also: the words of the documents cannot be searched yet.
    """

    headers = MappingProxyType({"Retry-After": "5"})


class ShuttingDownError(ServiceError, problem=(503, "The service is shutting down")):
    """The service finishes active requests and accepts no new ones."""

    message = "the service is shutting down"


def describe(error: Exception) -> str:
    """Return what went wrong, without text that may come from a document."""
    known = isinstance(error, StoreError | NotReadyError | ShuttingDownError)
    return str(error) if known else type(error).__name__
