"""What the OpenAPI document says beyond what FastAPI reads off the routes."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.http.admission import KEY_HEADER, MAX_TIMEOUT_MS, TIMEOUT_HEADER, is_open
from service.api.http.errors import MEDIA_TYPE
from service.api.http.problems import DOOR_PROBLEMS, ProblemType

# The Swagger UI that is served reads no later version; the schemas keep to what 3.0 knows.
OPENAPI_VERSION = "3.0.3"
_SCHEMA = "Problem"
_REFERENCE = {"$ref": f"#/components/schemas/{_SCHEMA}"}
_PROBLEM_SCHEMA = {
    "type": "object",
    "title": _SCHEMA,
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "Kind of error; described at this path."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What went wrong this time."},
        "instance": {"type": "string", "description": "Path of the request."},
        "request_id": {"type": "string", "description": "As in X-Request-ID and in the log."},
        "retry_after": {"type": "integer", "description": "Seconds, as in Retry-After."},
        "tokens": {"type": "integer"},
        "limit": {"type": "integer", "description": "The limit that was passed."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "parameter": {"type": "string", "description": "Path or query parameter."},
                    "detail": {"type": "string"},
                    "limit": {"type": "number", "description": "The limit that was passed."},
                    "tokens": {"type": "integer", "description": "Tokens of the text."},
                },
            },
        },
    },
}


_DOOR_PARAMETERS = (
    {
        "name": TIMEOUT_HEADER,
        "in": "header",
        "required": False,
        "description": "Milliseconds after which the answer is of no use: work on it is then "
        "given up, and what waits is never begun (504).",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "examples": {"two": {"summary": "Two seconds", "value": 2000}},
    },
    {
        "name": KEY_HEADER,
        "in": "header",
        "required": False,
        "description": "Whose rate this request counts for, where rates are limited (429); "
        "without it, that of the address. It is not checked.",
        "schema": {"type": "string"},
        "examples": {"one": {"summary": "A key", "value": "team-7"}},
    },
)


def problem_responses(*kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may answer with, by status, each with an example."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        response = responses.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {MEDIA_TYPE: {"schema": _REFERENCE, "examples": {}}},
            },
        )
        response["content"][MEDIA_TYPE]["examples"][kind.name] = {
            "summary": kind.title,
            "value": _example(kind),
        }
    return responses


def json_example(value: object, description: str) -> dict[str, Any]:
    """Describe a good answer by an example."""
    return {
        "description": description,
        "content": {"application/json": {"examples": {"answer": {"value": value}}}},
    }


def install_openapi(app: FastAPI) -> None:
    """Let the application describe itself, problems included."""
    app.openapi = _described(app)  # type: ignore[method-assign]


def _described(app: FastAPI) -> Callable[[], dict[str, Any]]:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version=OPENAPI_VERSION,
                summary=None,
                description=app.description,
                routes=app.routes,
            )
            document["components"]["schemas"][_SCHEMA] = _PROBLEM_SCHEMA
            _describe_door(document)
            app.openapi_schema = document
        return app.openapi_schema

    return openapi


def _describe_door(document: dict[str, Any]) -> None:
    """Say of every operation behind the door what the door reads and what it may answer."""
    for path, methods in document["paths"].items():
        if is_open(path):
            continue
        for operation in methods.values():
            operation["parameters"] = [*operation.get("parameters", []), *_DOOR_PARAMETERS]
            for status, response in problem_responses(*DOOR_PROBLEMS).items():
                known = operation["responses"].setdefault(str(status), response)
                known["content"][MEDIA_TYPE]["examples"] |= response["content"][MEDIA_TYPE][
                    "examples"
                ]


def _example(kind: ProblemType) -> dict[str, Any]:
    return {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "detail": kind.description,
        "instance": "/match",
        "request_id": "5f0c7a2e9d6b4f7f8f0e3a1b2c3d4e5f",
    }
