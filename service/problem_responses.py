"""Every error of the API as one shape: application/problem+json (RFC 9457).

Below /v1 a problem has one more member, `error`, of the shape that clients of OpenAI's API read.
"""

import logging
import re
import sqlite3
import traceback
from collections.abc import Iterator, Mapping, Sequence
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
_BOUNDS = frozenset({"max_length", "min_length", "le", "ge"})
_INTERNAL = "The service failed; its log has more under this request_id."
_INVALID = "Fields of the request are invalid."


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error that a route raises on purpose with a problem."""
    for kind in (EncoderError, IndexingError, ServiceError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    return problem_response(request.scope, error)


def problem_response(scope: Scope, error: Exception) -> JSONResponse:
    """Return the response to a request that failed with `error`, and log errors of the service."""
    shown = service_error(error, scope)
    _count(scope, error)
    request_id, status = scope["state"]["request_id"], shown.problem_type.status
    if status == HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(shown, errors.StorageFailedError):
        _log(request_id, error)
    content = problem_content(shown, quote(scope["path"], errors="replace"), request_id)
    return JSONResponse(content, status, dict(shown.headers), media_type=PROBLEM_JSON)


def problem_content(error: ServiceError, instance: str, request_id: str) -> dict[str, Any]:
    """Return the problem that an error is, as JSON."""
    kind = error.problem_type
    content = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": _INVALID if isinstance(error, errors.InvalidInputError) else str(error),
        "instance": instance,
        "request_id": request_id,
        **error.members,
    }
    if error.errors:
        content["errors"] = [field.shown for field in error.errors[:_MAX_ERRORS]]
    return content | openai_member(instance, content)


def _count(scope: Scope, error: Exception) -> None:
    match error:
        case errors.OverloadedError():
            scope["app"].state.engine.metrics.admission_rejected.labels(error.reason).inc()
        case errors.RateLimitedError():
            scope["app"].state.engine.metrics.rate_limited.inc()
        case errors.DeadlinePassedError():
            scope["app"].state.engine.metrics.deadline_dropped.inc()


def service_error(error: Exception, scope: Scope) -> ServiceError:
    """Return what a client learns of an error: errors of the packages below know no HTTP.

    It is an InternalError for all that is no matter of the client.
    """
    match error:
        case errors.InternalError():
            pass
        case ServiceError():
            return error
        case RequestValidationError():
            return _validation_error(error)
        case HTTPException():
            return _http_error(error, scope)
        case EmptyTextError() | TruncatedTextError() | index_errors.DocumentError():
            return errors.InvalidInputError([FieldError("", str(error))])
        case index_errors.LexicalIndexNotReadyError():
            return errors.NotReadyError(error)
        case index_errors.DamagedDocumentError(document_id=document_id, part=part):
            return errors.DocumentDamagedError(part, id=document_id)
        case IndexingError() | OSError():
            return _storage_error(error)
    return errors.InternalError(_INTERNAL)


def _storage_error(error: Exception) -> ServiceError:
    match storage_error(Path(), error):
        case index_errors.EngineError(reason=reason):
            return errors.EngineFailedError(reason)
        case index_errors.StorageFullError(reason=reason):
            return errors.StorageFullError(reason)
        case index_errors.StorageError(reason=reason):
            return errors.StorageFailedError(reason)
    return errors.InternalError(_INTERNAL)


def _http_error(error: HTTPException, scope: Scope) -> ServiceError:
    match error.status_code:
        case HTTPStatus.BAD_REQUEST:
            return errors.MalformedBodyError(_parse_failure(error.__cause__))
        case HTTPStatus.NOT_FOUND:
            return errors.NoSuchRouteError()
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return errors.MethodNotAllowedError(_allowed_methods(scope))
    return errors.InternalError(_INTERNAL)


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


def _validation_error(error: RequestValidationError) -> ServiceError:
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        reason, position = found[0]["ctx"]["error"], found[0]["loc"][-1]
        return errors.MalformedBodyError(
            f"The body is not JSON: {reason}, at character {position}."
        )
    return errors.InvalidInputError(list(map(_field_error, found)))


def _field_error(item: Mapping[str, Any]) -> FieldError:
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
