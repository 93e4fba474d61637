"""Find the documents that match a long document: in this process, or by a server's client."""

from longmatch.async_client import AsyncClient
from longmatch.client import Client
from longmatch.errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    ConnectionFailedError,
    DeadlineExceededError,
    FieldError,
    ForbiddenError,
    InvalidRequestError,
    JobFailedError,
    LongmatchError,
    NotFoundError,
    RateLimitedError,
    ResponseError,
    ServerError,
    UnavailableError,
)
from longmatch.library import Library, open
from longmatch.requests import Align, Document, Explain, Query, Rerank, Stored, Text, Webhook
from longmatch.retries import Retry
from longmatch.search import MatchOptions
from longmatch.standing import StandingOptions

__all__ = [
    "Align",
    "ApiError",
    "AsyncClient",
    "AuthenticationError",
    "Client",
    "ConflictError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "Document",
    "Explain",
    "FieldError",
    "ForbiddenError",
    "InvalidRequestError",
    "JobFailedError",
    "Library",
    "LongmatchError",
    "MatchOptions",
    "NotFoundError",
    "Query",
    "RateLimitedError",
    "Rerank",
    "ResponseError",
    "Retry",
    "ServerError",
    "StandingOptions",
    "Stored",
    "Text",
    "UnavailableError",
    "Webhook",
    "open",
]
