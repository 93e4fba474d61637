"""Every error of the API as one shape: application/problem+json (RFC 9457).

Below /v1 a problem has one more member, `error`, of the shape that clients of OpenAI's API read.
"""

import logging
import re
import sqlite3
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from encoder.errors import EmptyTextError, EncoderError, TruncatedTextError
from index import errors as index_errors
from index.errors import IndexingError
from index.sqlite.connections import storage_error
from service import errors
from service.errors import FieldError, ServiceError

PROBLEM_JSON = "application/problem+json"

_LOG = logging.getLogger(__name__)
_MAX_ERRORS = 100
_MAX_POINTER_CHARACTERS = 300
_STORAGE_RETRY_SECONDS = "60"
_OF_THE_DISK = (errors.ENGINE_FAILED, errors.STORAGE_FULL, errors.STORAGE_FAILED)
_BOUNDS = frozenset({"max_length", "min_length", "le", "ge"})
_INTERNAL = "The service failed; its log has more under this request_id."
_INVALID = "Fields of the request are invalid."


# Errors of the packages below, which know no HTTP; all others of theirs are internal errors.
_OF_PACKAGES: dict[type[BaseException], errors.ProblemType] = {
    EmptyTextError: errors.InvalidInputError.problem_type,
    TruncatedTextError: errors.InvalidInputError.problem_type,
    index_errors.DocumentError: errors.InvalidInputError.problem_type,
    index_errors.LexicalIndexNotReadyError: errors.NotReadyError.problem_type,
    index_errors.EngineError: errors.ENGINE_FAILED,
    index_errors.StorageError: errors.STORAGE_FAILED,
    index_errors.DatabaseFailedError: errors.STORAGE_FAILED,
    index_errors.StorageFullError: errors.STORAGE_FULL,
    index_errors.DamagedDocumentError: errors.DOCUMENT_DAMAGED,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One error as the client sees it: its type and the members that it adds."""

    kind: errors.ProblemType
    detail: str
    errors: Sequence[FieldError] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error that a route raises on purpose with a problem."""
    for kind in (EncoderError, IndexingError, ServiceError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    return problem_response(request.scope, error)


def problem_response(scope: Scope, error: Exception) -> JSONResponse:
    """Return the response to a request that failed with `error`, and log errors of the service."""
    problem = _problem(error, scope)
    _count(scope, error)
    request_id = scope["state"]["request_id"]
    if problem.kind.status == HTTPStatus.INTERNAL_SERVER_ERROR or problem.kind in _OF_THE_DISK:
        _log(request_id, error)
    content = problem_content(problem, quote(scope["path"], errors="replace"), request_id)
    return JSONResponse(
        content, problem.kind.status, dict(problem.headers), media_type=PROBLEM_JSON
    )


def problem_content(problem: Problem, instance: str, request_id: str) -> dict[str, Any]:
    """Return the JSON of a problem."""
    content = {
        "type": problem.kind.uri,
        "title": problem.kind.title,
        "status": problem.kind.status,
        "detail": problem.detail,
        "instance": instance,
        "request_id": request_id,
        **problem.members,
    }
    if problem.errors:
        content["errors"] = [error.shown for error in problem.errors[:_MAX_ERRORS]]
    return content | openai_member(instance, content)


def _count(scope: Scope, error: Exception) -> None:
    match error:
        case errors.OverloadedError():
            scope["app"].state.engine.metrics.admission_rejected.labels(error.reason).inc()
        case errors.RateLimitedError():
            scope["app"].state.engine.metrics.rate_limited.inc()
        case errors.DeadlinePassedError():
            scope["app"].state.engine.metrics.deadline_dropped.inc()


def _problem(error: Exception, scope: Scope) -> Problem:
    match error:
        case RequestValidationError():
            return _validation_problem(error)
        case HTTPException():
            return _http_problem(error, scope)
        case index_errors.DamagedDocumentError(document_id=document_id, part=part):
            detail = f"The stored document {document_id!r} is damaged in its {part}."
            return Problem(errors.DOCUMENT_DAMAGED, detail, members={"id": document_id})
        case IndexingError() | OSError():
            if failure := storage_error(Path(), error):
                kind, retry = problem_of(type(failure)), {"Retry-After": _STORAGE_RETRY_SECONDS}
                return Problem(kind, f"{kind.title}: {failure.reason}.", headers=retry)
    kind = problem_of(type(error))
    if kind.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return Problem(kind, _INTERNAL)
    if isinstance(error, ServiceError):
        detail = _INVALID if isinstance(error, errors.InvalidInputError) else str(error)
        return Problem(kind, detail, error.errors, error.members, error.headers)
    waits = isinstance(error, index_errors.LexicalIndexNotReadyError)
    return Problem(kind, str(error), headers=errors.NotReadyError.headers if waits else {})


def problem_of(error: type[BaseException]) -> errors.ProblemType:
    """Return the problem type of a class of errors: its own, or that of an error of a package."""
    if issubclass(error, ServiceError):
        return error.problem_type
    return _OF_PACKAGES.get(error, errors.INTERNAL_ERROR)


def _http_problem(error: HTTPException, scope: Scope) -> Problem:
    match error.status_code:
        case HTTPStatus.BAD_REQUEST:
            return _problem(errors.MalformedBodyError(_parse_failure(error.__cause__)), scope)
        case HTTPStatus.NOT_FOUND:
            return Problem(errors.NO_SUCH_ROUTE, errors.NO_SUCH_ROUTE.description)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = {"Allow": ", ".join(_allowed_methods(scope))}
            return Problem(
                errors.METHOD_NOT_ALLOWED, errors.METHOD_NOT_ALLOWED.description, headers=allowed
            )
    return Problem(errors.INTERNAL_ERROR, _INTERNAL)


def _allowed_methods(scope: Scope) -> list[str]:
    """Return the methods of every route of this path; the framework returns only the first's."""
    routes = scope["app"].router.routes
    partial = [route for route in routes if route.matches(scope)[0] is Match.PARTIAL]
    methods = {method for route in partial for method in route.methods} or {"GET"}  # of a file
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _parse_failure(cause: BaseException | None) -> str:
    match cause:
        case UnicodeDecodeError():
            return f"The body is not UTF-8: byte {cause.start} is invalid."
        case RecursionError():
            return "The body is nested too deeply."
    return "The body could not be parsed."


def _validation_problem(error: RequestValidationError) -> Problem:
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        reason, position = found[0]["ctx"]["error"], found[0]["loc"][-1]
        return Problem(
            errors.MalformedBodyError.problem_type,
            f"The body is not JSON: {reason}, at character {position}.",
        )
    return Problem(
        errors.InvalidInputError.problem_type, _INVALID, list(map(_validation_error, found))
    )


def _validation_error(item: Mapping[str, Any]) -> FieldError:
    """Return an error of pydantic without the value of the field."""
    location, *path = item["loc"]
    context = item.get("ctx", {})
    limits = [bound for name, bound in context.items() if name in _BOUNDS]
    return FieldError(
        _pointer(path) if location == "body" else "",
        str(context.get("error", item["msg"])),
        limits[-1] if limits else None,
        parameter=None if location == "body" else ".".join(map(str, path)),
    )


def _pointer(path: Sequence[str | int]) -> str:
    """Return a JSON pointer as a URI fragment; keys come from the client and may be anything."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    pointer = "".join(f"/{quote(part, safe='~', errors='replace')}" for part in parts)
    return f"#{pointer}"[:_MAX_POINTER_CHARACTERS]


def _log(request_id: str, error: BaseException) -> None:
    """Log the types and tracebacks of errors, not their messages: those may contain documents."""
    _LOG.error(
        "request %s failed: %s\n%s",
        request_id,
        " from ".join(_causes(error)),
        "".join(traceback.format_tb(error.__traceback__)),
    )


def _causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        # Messages of the operating system and SQLite are about files, never about texts.
        is_safe = isinstance(error, OSError | sqlite3.Error | IndexingError)
        yield f"{type(error).__qualname__}: {error}" if is_safe else type(error).__qualname__
        error = error.__cause__


_OPENAI_PATH = re.compile(r"(/collections/[^/]+)?/v1/")
_OPENAI_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER_ERRORS = 500


def openai_member(instance: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member `error` that a problem has for its path; empty outside of /v1."""
    if _OPENAI_PATH.match(instance) is None:
        return {}
    status, wrong = content["status"], content.get("errors", [])
    said = "; ".join(f"{_path_of(error)} {error['detail']}".strip() for error in wrong)
    server = "server_error" if status >= _SERVER_ERRORS else "invalid_request_error"
    return {
        "error": {
            "message": content["detail"] + (f" ({said})" if wrong else ""),
            "type": _OPENAI_KINDS.get(status, server),
            "param": (wrong and _path_of(wrong[0])) or None,
            "code": content["type"].rpartition("/")[2].replace("-", "_"),
        }
    }


def _path_of(error: Mapping[str, Any]) -> str:
    """Return the place of an error as a path: `input.3` for `#/input/3`, "" for the whole body."""
    return str(error.get("parameter") or error["pointer"][2:].replace("/", "."))
