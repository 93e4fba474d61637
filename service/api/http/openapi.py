"""What the OpenAPI document says beyond what FastAPI derives from the routes."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.http.admission import MAX_TIMEOUT_MS, TIMEOUT_HEADER, is_open
from service.api.http.errors import PROBLEM_JSON
from service.api.http.problems import (
    ADMISSION_PROBLEMS,
    HOST_NOT_ALLOWED,
    KEY_REQUIRED,
    SCOPE_MISSING,
    ProblemType,
)

# The Swagger UI that is served supports no later version, so the schemas keep to 3.0.
OPENAPI_VERSION = "3.0.3"
_SCHEMA = "Problem"
_REFERENCE = {"$ref": f"#/components/schemas/{_SCHEMA}"}
_PROBLEM_SCHEMA = {
    "type": "object",
    "title": _SCHEMA,
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "The kind of error, described at this path."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What went wrong this time."},
        "instance": {"type": "string", "description": "Path of the request."},
        "request_id": {"type": "string", "description": "As in X-Request-ID and in the log."},
        "retry_after": {"type": "integer", "description": "Seconds, as in Retry-After."},
        "tokens": {"type": "integer"},
        "error": {
            "type": "object",
            "description": "The same for clients of OpenAI's API; only below /v1.",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": "string", "nullable": True},
                "code": {"type": "string"},
            },
        },
        "limit": {"type": "integer", "description": "The limit that was exceeded."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "parameter": {"type": "string", "description": "Path or query parameter."},
                    "detail": {"type": "string"},
                    "limit": {"type": "number", "description": "The limit that was exceeded."},
                    "tokens": {"type": "integer", "description": "Tokens of the text."},
                },
            },
        },
    },
}


_KEY = "key"
_KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key of `longmatch keys create`, where the service has any.",
}
_KEYLESS = frozenset({"/livez", "/readyz"})

_ADMISSION_PARAMETERS = (
    {
        "name": TIMEOUT_HEADER,
        "in": "header",
        "required": False,
        "description": "Milliseconds after which the response is of no use: the request is then "
        "cancelled, and what waits is never started (504).",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
        "examples": {"two": {"summary": "Two seconds", "value": 2000}},
    },
)


def problem_responses(*kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of a route by status, each with an example."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        response = responses.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {PROBLEM_JSON: {"schema": _REFERENCE, "examples": {}}},
            },
        )
        response["content"][PROBLEM_JSON]["examples"][kind.name] = {
            "summary": kind.title,
            "value": _example(kind),
        }
    return responses


def json_example(value: object, description: str) -> dict[str, Any]:
    """Describe a successful response with an example."""
    return {
        "description": description,
        "content": {"application/json": {"examples": {"answer": {"value": value}}}},
    }


class DescribedFastAPI(FastAPI):
    """An application whose OpenAPI document describes problems and the headers of admission."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title,
                version=self.version,
                openapi_version=OPENAPI_VERSION,
                summary=None,
                description=self.description,
                routes=self.routes,
            )
            document["components"]["schemas"][_SCHEMA] = _PROBLEM_SCHEMA
            document["components"]["securitySchemes"] = {_KEY: _KEY_SCHEME}
            _describe_refusals(document)
            self.openapi_schema = document
        return self.openapi_schema


def _describe_refusals(document: dict[str, Any]) -> None:
    """Add what is refused before the route: to all, and where there is admission, with headers."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _add_problems(operation, HOST_NOT_ALLOWED)
            if path not in _KEYLESS:
                _add_problems(operation, KEY_REQUIRED, SCOPE_MISSING)
                operation["security"] = [{_KEY: []}, {}]
            if not is_open(path):
                _add_problems(operation, *ADMISSION_PROBLEMS)
                known = operation.get("parameters", [])
                operation["parameters"] = [*known, *_ADMISSION_PARAMETERS]


def _add_problems(operation: dict[str, Any], *kinds: ProblemType) -> None:
    for status, response in problem_responses(*kinds).items():
        known = operation["responses"].setdefault(str(status), response)
        known["content"][PROBLEM_JSON]["examples"] |= response["content"][PROBLEM_JSON]["examples"]


def _example(kind: ProblemType) -> dict[str, Any]:
    return {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "detail": kind.description,
        "instance": "/match",
        "request_id": "5f0c7a2e9d6b4f7f8f0e3a1b2c3d4e5f",
    }
