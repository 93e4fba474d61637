"""The problem types (RFC 9457) of the API: each with its status and its meaning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of error; its URI is `/problems/NAME`, which describes it."""

    name: str
    status: int
    title: str
    description: str

    @property
    def uri(self) -> str:
        """The `type` member of a problem."""
        return f"/problems/{self.name}"


MALFORMED_BODY = ProblemType(
    "malformed-body", 400, "The body is not JSON",
    "The body could not be parsed as UTF-8 encoded JSON, or could not be decompressed. `detail` "
    "says where.",
)  # fmt: skip
MALFORMED_REQUEST = ProblemType(
    "malformed-request", 400, "The request is not HTTP/1.1",
    "The bytes of the connection are not a request: the head cannot be parsed or is too long, or "
    "the body contradicts it. The connection is closed.",
)  # fmt: skip
KEY_REQUIRED = ProblemType(
    "key-required", 401, "A valid API key is required",
    "The header `Authorization: Bearer KEY` is missing, or the key is wrong, revoked or expired. "
    "`longmatch keys create` makes one.",
)  # fmt: skip
SCOPE_MISSING = ProblemType(
    "scope-missing", 403, "The API key does not have the scope",
    "The API key is valid, but may not do this. `detail` names the scope that it takes, or says "
    "that the key is bound to one collection.",
)  # fmt: skip
NO_SUCH_ROUTE = ProblemType(
    "no-such-route", 404, "There is nothing at this path",
    "The path is not one of those that the API documentation lists.",
)  # fmt: skip
DOCUMENT_NOT_FOUND = ProblemType(
    "document-not-found", 404, "No document has this id",
    "The document was never stored, or it was deleted.",
)  # fmt: skip
MODEL_NOT_FOUND = ProblemType(
    "model-not-found", 404, "No model has this name",
    "The service has one model, its checkpoint, which GET /v1/models names. `longmatch` stands for "
    "it, too.",
)  # fmt: skip
JOB_NOT_FOUND = ProblemType(
    "job-not-found", 404, "No job has this id",
    "The job never existed, or it ended long ago and was deleted.",
)  # fmt: skip
STANDING_QUERY_NOT_FOUND = ProblemType(
    "standing-query-not-found", 404, "No standing query has this id",
    "The standing query never existed, or it was deleted.",
)  # fmt: skip
TOO_MANY_STANDING_QUERIES = ProblemType(
    "too-many-standing-queries", 409, "There are too many standing queries",
    "The collection has as many standing queries as the setting `max_standing_queries` allows, or "
    "their texts have 256 MiB. Nothing was made.",
)  # fmt: skip
COLLECTION_NOT_FOUND = ProblemType(
    "collection-not-found", 404, "No collection has this name",
    "There is no collection of this name, or the API key is bound to another one.",
)  # fmt: skip
TOO_MANY_COLLECTIONS = ProblemType(
    "too-many-collections", 409, "There are too many collections",
    "There are as many collections as the setting `max_collections` allows. Nothing was created.",
)  # fmt: skip
FEEDBACK_NOT_FOUND = ProblemType(
    "feedback-not-found", 404, "No feedback has this id",
    "The verdict was never stored, or it was deleted, perhaps with its document.",
)  # fmt: skip
FEEDBACK_FULL = ProblemType(
    "feedback-full", 409, "There is too much feedback",
    "There are as many verdicts as the setting `max_feedback` allows, or the texts of their "
    "queries take 256 MiB. Nothing was stored; a verdict that exists can still be changed.",
)  # fmt: skip
METHOD_NOT_ALLOWED = ProblemType(
    "method-not-allowed", 405, "The method is not allowed here",
    "The path exists, but not for this method. The Allow header names the allowed ones.",
)  # fmt: skip
NOT_ACCEPTABLE = ProblemType(
    "not-acceptable", 406, "The response has no acceptable media type",
    "The Accept header accepts none of the media types that the response can have, which "
    "`detail` names.",
)  # fmt: skip
JOB_ENDED = ProblemType(
    "job-ended", 409, "The job has ended",
    "A job that is done, cancelled or failed cannot be cancelled. Nothing has changed.",
)  # fmt: skip
KEY_IN_USE = ProblemType(
    "idempotency-key-in-use", 409, "A request with this Idempotency-Key is in progress",
    "The first request with this key has not ended. Repeat this one in a moment: it then gets the "
    "response of the first.",
)  # fmt: skip
KEY_REUSED = ProblemType(
    "idempotency-key-reused", 422, "The Idempotency-Key was used with another body",
    "A response is stored under this key, and it belongs to a request with another body. Nothing "
    "was done.",
)  # fmt: skip
UPLOAD_TOO_SLOW = ProblemType(
    "upload-too-slow", 408, "The body did not arrive in time",
    "A body may take 10 seconds, plus one for each 64 KiB.",
)  # fmt: skip
BODY_TOO_LARGE = ProblemType(
    "body-too-large", 413, "The body is too large",
    "The body has more bytes than the setting `max_body_bytes`, or `max_upload_bytes` if it is "
    "NDJSON, compressed or not.",
)  # fmt: skip
COMPRESSION_RATIO = ProblemType(
    "compression-ratio", 413, "The body decompresses to too many times its size",
    "A gzip body may be 100 times larger decompressed, which no ordinary text is. Nothing was "
    "kept.",
)  # fmt: skip
REQUEST_TOO_LARGE = ProblemType(
    "request-too-large", 413, "The request has too many tokens",
    "The texts of the request together have more tokens to read than the queue holds (the setting "
    "`max_queue_tokens`). Send fewer at a time.",
)  # fmt: skip
UNSUPPORTED_MEDIA_TYPE = ProblemType(
    "unsupported-media-type", 415, "The body must be JSON",
    "The request must have Content-Type: application/json; POST /index also accepts "
    "application/x-ndjson, with Content-Encoding gzip or none, and POST /text takes files.",
)  # fmt: skip
HOST_NOT_ALLOWED = ProblemType(
    "host-not-allowed", 421, "The Host header names another service",
    "The service is not known under the name in the Host header, which may be that of a malicious "
    "page. The setting `allowed_hosts` has the names under which it is.",
)  # fmt: skip
INVALID_INPUT = ProblemType(
    "invalid-input", 422, "A field is invalid",
    "`errors` names each invalid field by JSON pointer, with the limit if it exceeds one.",
)  # fmt: skip
RATE_LIMITED = ProblemType(
    "rate-limited", 429, "The client exceeds its rate limit",
    "The client, by its API key or its address, has used more tokens than the setting "
    "`rate_limit_tokens_per_minute`; a body costs one for four bytes, decompressed. The RateLimit "
    "header says how many are left, Retry-After when to retry.",
)  # fmt: skip
INTERNAL_ERROR = ProblemType(
    "internal-error", 500, "The service failed",
    "An error of the service, not of the client. Its log has the details under `request_id`.",
)  # fmt: skip
DOCUMENT_DAMAGED = ProblemType(
    "document-damaged", 500, "A stored document is damaged",
    "The stored document that the request needs is damaged, for example by a failing disk; `id` "
    "names it. Run `longmatch doctor --repair`, and index it again.",
)  # fmt: skip
ENCODING_FAILED = ProblemType(
    "encoding-failed", 500, "The encoder failed",
    "The encoder failed while it processed the request; nothing was stored. The log of the service "
    "has the details under `request_id`.",
)  # fmt: skip
STORAGE_FULL = ProblemType(
    "storage-full", 507, "The disk of the service is full",
    "There is no room to store anything. Nothing was changed, and what is stored can be read. "
    "Retry when the operator has made room.",
)  # fmt: skip
ENGINE_FAILED = ProblemType(
    "engine-failed", 503, "The engine that searches cannot be used",
    "The Qdrant of LONGMATCH_ENGINE does not answer, refuses, or holds something else, as `detail` "
    "says. What was to be stored is stored, and found as soon as the engine answers.",
)  # fmt: skip
STORAGE_FAILED = ProblemType(
    "storage-failed", 503, "The storage of the service failed",
    "A file of the service could not be read or written: the disk failed or is read only, a limit "
    "of the system is reached, or its database failed, as `detail` says. Nothing was changed.",
)  # fmt: skip
OVERLOADED = ProblemType(
    "overloaded", 503, "The service is overloaded",
    "More work is waiting than the service accepts. Nothing was done; retry after the number of "
    "seconds in the Retry-After header.",
)  # fmt: skip
DEADLINE_PASSED = ProblemType(
    "deadline-passed", 504, "The deadline of the request has passed",
    "The milliseconds of the X-Request-Timeout-Ms header passed before the response was ready. "
    "What had not started was not done; documents that were being stored may be stored.",
)  # fmt: skip
NOT_READY = ProblemType(
    "not-ready", 503, "The service is not ready",
    "The service is starting, or a part of it has failed. In lexical mode also: the words of the "
    "documents cannot be searched yet.",
)  # fmt: skip
SHUTTING_DOWN = ProblemType(
    "shutting-down", 503, "The service is shutting down",
    "The service finishes active requests and accepts no new ones.",
)  # fmt: skip

PROBLEM_TYPES = {
    problem.name: problem for problem in vars().copy().values() if isinstance(problem, ProblemType)
}
