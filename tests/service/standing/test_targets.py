"""Which addresses webhooks reach: no form of one inside the network passes for a public one."""

import asyncio
import socket
from typing import Any

import pytest

from service.standing.targets import AllowedTargets, TargetRefusedError, origin_of, parse_target

INSIDE = [
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
    *("192.0.0.8", "192.88.99.1", "3fff::1", "5f00::1", "64:ff9b:1::1", "100:0:0:1::1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::127.0.0.1"),
    *("64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1"),
    "2001:0:a00:1::f5ff:fffe",  # Teredo, of 10.0.0.1
]
PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:8.8.8.8"]


def resolve(patch: pytest.MonkeyPatch, url: str, addresses: list[str], *allowed: str) -> list[str]:
    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in addresses
        ]

    async def run() -> list[str]:
        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        return await AllowedTargets(allowed).resolve(parse_target(url))

    return asyncio.run(run())


def check(url: str, *allowed: str) -> None:
    asyncio.run(AllowedTargets(allowed).check(parse_target(url)))


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(TargetRefusedError):
        resolve(monkeypatch, "https://hooks.example.com/", [address])
    if "%" not in address:
        literal = f"[{address}]" if ":" in address else address
        with pytest.raises(TargetRefusedError):
            check(f"https://{literal}/")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached_by_https(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    assert resolve(monkeypatch, "https://hooks.example.com/", [address]) == [address]
    with pytest.raises(TargetRefusedError):
        resolve(monkeypatch, "http://hooks.example.com/", [address])


def test_of_several_addresses_those_inside_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://hooks.example.com/"
    assert resolve(monkeypatch, url, ["10.0.0.1", "8.8.8.8", "::1"]) == ["8.8.8.8"]


@pytest.mark.parametrize(
    ("url", "address", "allowed"),
    [
        ("http://hooks.internal/", "10.0.0.1", "hooks.internal"),
        ("http://HOOKS.internal/", "10.0.0.1", "Hooks.Internal"),
        ("http://hooks.internal/", "10.0.0.1", "10.0.0.0/8"),
        ("https://hooks.internal/", "::ffff:10.0.0.1", "10.0.0.1"),
        ("http://10.0.0.1:8080/", "10.0.0.1", "10.0.0.0/8"),
        ("http://[::1]/", "::1", "::1"),
    ],
)
def test_what_an_operator_names_is_reached(
    monkeypatch: pytest.MonkeyPatch, url: str, address: str, allowed: str
) -> None:
    check(url, allowed)
    assert resolve(monkeypatch, url, [address], allowed) == [address]
    with pytest.raises(TargetRefusedError):
        resolve(monkeypatch, url, [address], "other.internal", "192.168.0.0/16")


def test_an_address_inside_is_refused_in_any_spelling() -> None:
    for host in ("localhost", "2130706433", "0x7f000001", "127.1", "0177.0.0.1"):
        with pytest.raises(TargetRefusedError, match="not public, and not one of webhook_hosts"):
            check(f"https://{host}/")
    for host in ("a..b", "x" * 64):
        with pytest.raises(TargetRefusedError, match="no name and no address"):
            check(f"https://{host}/")
    check("https://hooks.invalid/")  # a name that does not resolve now
    with pytest.raises(TargetRefusedError, match="must be https"):
        check("http://hooks.invalid/")
    with pytest.raises(ValueError, match="invalid port"):
        parse_target("https://hooks.invalid:0/")


def test_a_url_is_taken_apart_once() -> None:
    target = parse_target("https://Example.com:8443/a/b?c=d")
    assert (target.host, target.port, target.target) == (b"example.com", 8443, b"/a/b?c=d")
    assert origin_of("https://Example.com:8443/a/b?c=d") == "https://Example.com:8443"
    assert parse_target("http://[::1]/a;b").origin.host == b"::1"
    assert parse_target("http://[::1]/a;b").target == b"/a;b"
