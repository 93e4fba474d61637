"""Errors below /v1 as clients of OpenAI's API read them.

The response stays a problem (RFC 9457); it has one more member, `error`, of the shape that those
clients look for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from service.api.http.paths import split_path

_PREFIX = "/v1/"
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_SERVER_ERRORS = 500


def openai_member(instance: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member `error` that a problem has for its path; empty outside of /v1.

    Args:
        instance: path of the request.
        content: members of the problem.
    """
    _, path = split_path(instance)
    if not path.startswith(_PREFIX):
        return {}
    status, errors = content["status"], content.get("errors", [])
    server = "server_error" if status >= _SERVER_ERRORS else "invalid_request_error"
    return {
        "error": {
            "message": _message(content["detail"], errors),
            "type": _KINDS.get(status, server),
            "param": (errors and _place(errors[0])) or None,
            "code": content["type"].rpartition("/")[2].replace("-", "_"),
        }
    }


def _message(detail: str, errors: Sequence[Mapping[str, Any]]) -> str:
    return f"{detail} ({'; '.join(map(_sentence, errors))})" if errors else detail


def _sentence(error: Mapping[str, Any]) -> str:
    return f"{_place(error)} {error['detail']}".strip()


def _place(error: Mapping[str, Any]) -> str:
    """Return the place of an error as a path: `input.3` for `#/input/3`, "" for the whole body."""
    return str(error.get("parameter") or error["pointer"][2:].replace("/", "."))
