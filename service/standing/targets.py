"""Which addresses a webhook may reach: public ones by https, and others that an operator names.

A webhook is a request that a client lets the server make, into the server's own network if it could
(OWASP API7). So the address is checked, not the name: when the connection is made, which then goes
to the address that was checked, whatever the name resolves to a moment later.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpcore2

MAX_URL_CHARACTERS = 2_048
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_RESOLVE_SECONDS = 5.0
# IANA's registries call these special: `ipaddress` calls them global, or does so in Python 3.11.
# Teredo and 6to4, the last two, lead to an address of IPv4.
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "fec0::/10"),
        *("2001::/32", "2002::/16"),
    )
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetRefusedError(ValueError):
    """A webhook may not reach this address."""


def origin_of(url: str) -> str:
    """Return a URL without path and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def parse_target(url: str) -> httpcore2.URL:
    """Take a URL apart, once: what is checked is what is connected to.

    ValueError, which quotes nothing of it, if a webhook may not have it.
    """
    if len(url) > MAX_URL_CHARACTERS or not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError(f"must be a URL of at most {MAX_URL_CHARACTERS} ASCII characters")
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError("has an invalid port") from error
    if port == 0:
        raise ValueError("has an invalid port")
    if parts.scheme not in ("http", "https") or not parts.hostname or "\\" in url:
        raise ValueError("must be https://HOST/PATH")
    if parts.username is not None or parts.fragment:
        raise ValueError("must have no user name and no fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=port, target=path)


class AllowedTargets:
    """The hosts that an operator allows in addition to public addresses by https."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """Read names, addresses and networks."""
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for host in allowed:
            try:
                self._networks.append(ipaddress.ip_network(host))
            except ValueError:
                self._names.add(host.lower())

    async def check(self, target: httpcore2.URL) -> None:
        """Raise TargetRefusedError for a target that may not be reached, or not without TLS.

        A name that does not resolve may do so later.
        """
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await self.resolve(target)
        except OSError:
            if not (_is_secure(target) or self._networks or self._names_host_of(target)):
                raise TargetRefusedError(_refusal(target)) from None

    async def resolve(self, target: httpcore2.URL) -> list[str]:
        """Return the addresses of a target that may be reached, or raise TargetRefusedError."""
        loop = asyncio.get_running_loop()
        try:
            host, port = target.host.decode(), target.origin.port
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise TargetRefusedError("its host is no name and no address") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        kept = [address for address in addresses if self._permits(target, address)]
        if not kept:
            raise TargetRefusedError(_refusal(target))
        return kept

    def _names_host_of(self, target: httpcore2.URL) -> bool:
        return target.host.decode() in self._names

    def _permits(self, target: httpcore2.URL, address: str) -> bool:
        reached = _reached(ipaddress.ip_address(address))
        named = any(reached in network for network in self._networks)
        return named or self._names_host_of(target) or (_is_secure(target) and _is_public(reached))


class CheckedBackend(httpcore2.AnyIOBackend):
    """Connects to the addresses of one target that may be reached, and to nothing else."""

    def __init__(self, target: httpcore2.URL, allowed: AllowedTargets) -> None:
        self._target = target
        self._allowed = allowed

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers."""
        *others, last = await self._allowed.resolve(self._target)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, port, *args, **kwargs)
        return await super().connect_tcp(last, port, *args, **kwargs)


def _is_secure(target: httpcore2.URL) -> bool:
    return target.scheme == b"https"


def _refusal(target: httpcore2.URL) -> str:
    if _is_secure(target):
        return "its address is not public, and not one of webhook_hosts"
    return "must be https, or one of webhook_hosts"


def _reached(address: Address) -> Address:
    """Return the address of IPv4 that an address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address
    return address


def _is_public(address: Address) -> bool:
    special = address.is_multicast or address.is_reserved
    return address.is_global and not special and not any(address in part for part in _SPECIAL)
