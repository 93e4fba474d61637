"""The router of all routes, and what the OpenAPI document says beyond what they declare."""

from copy import deepcopy
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from index.directory.collections import NAME_PATTERN
from service.api.http.admission import MAX_TIMEOUT_MS, TIMEOUT_HEADER, is_open
from service.api.http.errors import PROBLEM_JSON
from service.api.http.problems import (
    ADMISSION_PROBLEMS,
    COLLECTION_NOT_FOUND,
    HOST_NOT_ALLOWED,
    KEY_REQUIRED,
    MALFORMED_REQUEST,
    SCOPE_MISSING,
    ProblemType,
)
from service.api.http.request import COLLECTION_PARTS, COLLECTIONS, first_segment, split_path
from service.api.schemas.ops import limits_body
from service.settings import Settings


def _name(route: APIRoute) -> str:
    return route.name


class Router(APIRouter):
    """A router whose operations have the names of their functions.

    The application takes its routes as they are. `FastAPI.include_router` would make each of them
    again at the first request, for a fifth of a second, and look for the route of a request twice.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of `APIRouter`."""
        super().__init__(generate_unique_id_function=_name, **options)


PROBLEM_SCHEMA = "Problem"
_REFERENCE = {"$ref": f"#/components/schemas/{PROBLEM_SCHEMA}"}


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


def receipt_example(tokens: int, blocks: int) -> dict[str, int]:
    """Return the example of a receipt for a document that was read whole."""
    return {
        "tokens": tokens,
        "tokens_read": tokens,
        "blocks": blocks,
        "blocks_left_out": 0,
        "tokens_encoded": tokens,
        "payload_characters": 0,
    }


def json_example(value: object, description: str) -> dict[str, Any]:
    """Describe a successful response with an example."""
    return {
        "description": description,
        "content": {"application/json": {"examples": {"answer": {"value": value}}}},
    }


def _example(kind: ProblemType) -> dict[str, Any]:
    return {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "detail": kind.description,
        "instance": "/match",
        "request_id": "5f0c7a2e9d6b4f7f8f0e3a1b2c3d4e5f",
    }


# (schema, field, keyword of JSON Schema, limit)
_FIELDS = (
    ("DocumentBody", "text", "maxLength", "max_text_characters"),
    ("IndexRequest", "documents", "maxItems", "max_documents_per_request"),
    ("MatchRequest", "text", "maxLength", "max_text_characters"),
    ("MatchRequest", "queries", "maxItems", "max_queries_per_request"),
    ("MatchRequest", "top_k", "maximum", "max_top_k"),
    ("QueryBody", "text", "maxLength", "max_text_characters"),
    ("RerankBody", "candidates", "maximum", "max_rerank_candidates"),
    ("SideBody", "text", "maxLength", "max_text_characters"),
    ("StandingQueryRequest", "text", "maxLength", "max_text_characters"),
)
_TOP_K = "top_k"  # of every GET that has it


def describe_limits(document: dict[str, Any], settings: Settings) -> None:
    """Add the limits of the settings to the fields and parameters that they bound.

    Limits of several fields together (`max_explained_matches`) cannot be said by a schema.
    """
    schemas, limits = document["components"]["schemas"], limits_body(settings)
    for schema, field, keyword, name in _FIELDS:
        schemas[schema]["properties"][field][keyword] = getattr(limits, name)
    _, texts = schemas["EmbeddingsRequest"]["properties"]["input"]["anyOf"]
    texts["maxItems"] = limits.max_embedding_inputs
    milliseconds = limits.rerank_seconds * 1000
    schemas["RerankBody"]["properties"]["budget_ms"]["maximum"] = milliseconds
    number, _ = schemas["MatchRequest"]["properties"]["rerank"]["anyOf"]
    number["maximum"] = limits.max_rerank_candidates
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == _TOP_K:
                    parameter["schema"]["maximum"] = limits.max_top_k


# The Swagger UI that is served supports no later version, so the schemas keep to 3.0.
OPENAPI_VERSION = "3.0.3"
_PROBLEM_SCHEMA = {
    "type": "object",
    "title": PROBLEM_SCHEMA,
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

# (path of the POST, its status, the path of what it made, where the id is in the answer)
_MADE_AT = (
    ("/index", "200", "/documents/{id}", "documents/0/id"),
    ("/index", "202", "/jobs/{id}", "id"),
    ("/feedback", "200", "/feedback/{id}", "id"),
    ("/standing-queries", "201", "/standing-queries/{id}", "id"),
)

COLLECTION_PREFIX = f"/{COLLECTIONS}/{{collection}}"
_COLLECTION_PARAMETER = {
    "name": "collection",
    "in": "path",
    "required": True,
    "description": "The name of the collection.",
    "schema": {"type": "string", "pattern": NAME_PATTERN},
    "examples": {"papers": {"value": "papers"}},
}
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


class DescribedFastAPI(FastAPI):
    """An application whose OpenAPI document describes problems, limits and headers of admission."""

    def __init__(self, settings: Settings, **given: Any) -> None:
        """Create it; `given` are the arguments of FastAPI."""
        super().__init__(**given)
        self._settings = settings

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
            document["paths"] |= _of_collections(document["paths"])
            document["components"]["schemas"][PROBLEM_SCHEMA] = _PROBLEM_SCHEMA
            document["components"]["securitySchemes"] = {_KEY: _KEY_SCHEME}
            _describe_refusals(document)
            describe_limits(document, self._settings)
            _add_links(document["paths"])
            self.openapi_schema = document
        return self.openapi_schema


def _add_links(paths: dict[str, Any]) -> None:
    """Say where that is which a POST made: clients and tests of the contract follow it."""
    of_collection = {"collection": "$request.path.collection"}
    for prefix, named in (("", {}), (COLLECTION_PREFIX, of_collection)):
        for maker, code, made, below in _MADE_AT:
            paths[f"{prefix}{maker}"]["post"]["responses"][code]["links"] = {
                f"{method} {path}": {
                    "operationId": operation["operationId"],
                    "parameters": {**named, "id": f"$response.body#/{below}"},
                }
                for path in paths
                if path.startswith(f"{prefix}{made}")
                for method, operation in paths[path].items()
            }


def _of_collections(paths: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of one collection as they are below its prefix."""
    below = {
        f"{COLLECTION_PREFIX}{path}": deepcopy(methods)
        for path, methods in paths.items()
        if first_segment(path) in COLLECTION_PARTS
    }
    for methods in below.values():
        for operation in methods.values():
            operation["operationId"] += "_of_collection"
            operation["parameters"] = [_COLLECTION_PARAMETER, *operation.get("parameters", [])]
    return below


def _describe_refusals(document: dict[str, Any]) -> None:
    """Add what is refused before the route: to all, and where there is admission, with headers."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _add_problems(operation, MALFORMED_REQUEST, HOST_NOT_ALLOWED)
            if path not in _KEYLESS:
                _add_problems(operation, KEY_REQUIRED, SCOPE_MISSING)
                operation["security"] = [{_KEY: []}, {}]
            _, path_in_collection = split_path(path)
            if first_segment(path_in_collection) in (*COLLECTION_PARTS, "version"):
                _add_problems(operation, COLLECTION_NOT_FOUND)
            if not is_open(path):
                _add_problems(operation, *ADMISSION_PROBLEMS)
                known = operation.get("parameters", [])
                operation["parameters"] = [*known, *_ADMISSION_PARAMETERS]


def _add_problems(operation: dict[str, Any], *kinds: ProblemType) -> None:
    for status, response in problem_responses(*kinds).items():
        known = operation["responses"].setdefault(str(status), response)
        known["content"][PROBLEM_JSON]["examples"] |= response["content"][PROBLEM_JSON]["examples"]
