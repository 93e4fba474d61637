"""Reading a refusal of the service."""

from typing import Any
from urllib.parse import quote


def problem(response: Any, status: int, name: str) -> dict[str, Any]:
    """Return the content of a response that must be this problem."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = response.json()
    assert content["type"] == f"/problems/{name}"
    assert content["status"] == status
    assert content["instance"] == quote(response.request.url.path)
    assert content["title"]
    assert content["detail"]
    assert content["request_id"] == response.headers["x-request-id"]
    return content
