"""Attacks of the OWASP API Security Top 10 (2023) that no test of a single part has."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route

from tests.kit.service_fixtures import Client

MakeClient = Callable[..., Client]


def test_api7_server_side_request_forgery(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address in a document or a query is ever connected to."""
    client = make_client()
    connected: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connected.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: connected.append(given))
    address = "http://169.254.169.254/latest/meta-data"
    document = {"id": address, "text": f"See {address} and file:///etc/passwd for more."}
    html = {"id": "page", "text": f'<img src="{address}"><a href="{address}">more</a>'}
    client.post("/index", json={"documents": [document, html]})
    client.post("/match", json={"text": f"See {address}", "explain": True})
    client.post("/compare", json={"left": {"id": "page"}, "right": {"text": address}})
    assert connected == []


def undescribed(app: Any) -> set[str]:
    """Return the paths that the OpenAPI document does not have."""
    served = {route.path.replace(":path", "") for route in app.router.routes}
    return served - set(app.openapi()["paths"])


def test_api9_improper_inventory_management(make_client: MakeClient) -> None:
    """Every route is in the OpenAPI document, but those of the pages of the browser."""
    app = make_client().app
    assert undescribed(app) == {"/", "/static", "/docs", "/openapi.json", "/docs/static"}
    app.router.routes.append(Route("/v0/match", lambda _: Response()))
    assert "/v0/match" in undescribed(app)
