"""Reading a refusal of the service."""

from typing import Any


def problem(response: Any, status: int, name: str) -> dict[str, Any]:
    """Return the content of a response that must be this problem."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = response.json()
    assert content["type"] == f"/problems/{name}"
    assert content["request_id"] == response.headers["x-request-id"]
    return content
