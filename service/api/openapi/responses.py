"""The responses of routes, as the OpenAPI document describes them."""

from typing import Any

from service.api.http.errors import PROBLEM_JSON
from service.api.http.problems import ProblemType

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
