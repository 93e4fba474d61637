"""The names under which the service answers."""

from typing import Any

import pytest

from service.access import AllowedHosts
from service.app import create_app
from tests.kit.problems import problem

LOOPBACK = ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:80", "127.1.2.3", "[::1]:8000"]
ADDRESSES = ["10.0.0.7:8000", "[fd00::7]", "[fd00::7]:8000", "8.8.8.8"]
PLAIN = ["longmatch:8000", "longmatch", "search-1"]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]
SENSELESS = [":8000", "[", "[]", ".", "a.b:c"]


@pytest.mark.parametrize("bound_to", ["127.0.0.1", "::1", "localhost"])
def test_on_a_loopback_address_only_this_machine_is_known(bound_to: str) -> None:
    allowed = AllowedHosts(bound_to)
    assert all(host in allowed for host in LOOPBACK)
    assert not any(host in allowed for host in [*ADDRESSES, *PLAIN, *FOREIGN, *SENSELESS])


@pytest.mark.parametrize("bound_to", ["0.0.0.0", "::", "10.0.0.7", "search.corp.example"])
def test_on_other_addresses_names_that_no_site_has_are_known(bound_to: str) -> None:
    allowed = AllowedHosts(bound_to)
    assert all(host in allowed for host in [*LOOPBACK, *ADDRESSES, *PLAIN])
    assert not any(host in allowed for host in [*FOREIGN, *SENSELESS])
    assert ("search.corp.example" in allowed) == (bound_to == "search.corp.example")


def test_names_can_be_added() -> None:
    allowed = AllowedHosts("127.0.0.1", ["Search.example", "*.corp.example", "10.0.0.7"])
    for host in ("search.example:443", "a.corp.example", "a.b.corp.example", "10.0.0.7:8000"):
        assert host in allowed
    for host in ("corp.example", "evilcorp.example", "a.search.example", "10.0.0.8"):
        assert host not in allowed
    assert all(host in AllowedHosts("127.0.0.1", ["*"]) for host in FOREIGN)


def test_a_client_without_a_host_is_no_browser() -> None:
    assert "" in AllowedHosts("127.0.0.1")


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "/documents/ants"), ("POST", "/match"), ("GET", "/readyz"), ("GET", "/docs")],
)
def test_a_foreign_name_is_refused_on_every_path(library: Any, method: str, path: str) -> None:
    response = library.request(method, path, headers={"host": "evil.example"})
    problem(response, 421, "host-not-allowed")
    assert "LONGMATCH_ALLOWED_HOSTS" in response.json()["detail"]
    assert library.get("/documents/ants").status_code == 200


def test_the_setting_and_the_address_decide(library: Any, make_settings: Any) -> None:
    engine = library.app.state.engine
    settings = make_settings(allowed_hosts="search.example, *.corp.example")
    named = type(library)(create_app(settings, engine))
    wide = type(library)(create_app(engine.settings, engine, bound_to="0.0.0.0"))
    for client, host, status in (
        (named, "search.example", 200),
        (named, "a.corp.example", 200),
        (named, "longmatch", 421),
        (wide, "longmatch", 200),
        (wide, "search.example", 421),
    ):
        assert client.get("/livez", headers={"host": host}).status_code == status
