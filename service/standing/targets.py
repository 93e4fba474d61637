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
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore2

MAX_URL_CHARACTERS = 2_048
_HTTPS = 443
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_RESOLVE_SECONDS = 5.0
# IANA's registries call these special: `ipaddress` calls them global, or does so in Python 3.11.
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "fec0::/10")
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetRefusedError(ValueError):
    """A webhook may not reach this address."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook is: the parts of its URL, taken apart once and used as they are.

    Attributes:
        secure: by https.
        host: a name, or an address without brackets.
        port: of the server.
        path: with the query.
        origin: the URL without path and query, which may be secret.
    """

    secure: bool
    host: str
    port: int
    path: str
    origin: str

    def to_url(self) -> httpcore2.URL:
        """Return the URL as httpcore2 takes it, which takes nothing apart again."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.secure else "http"
        return httpcore2.URL(
            scheme=scheme.encode(), host=host.encode(), port=self.port, target=self.path.encode()
        )


def parse_target(url: str) -> Target:
    """Take a URL apart.

    Raises:
        ValueError: it is not one that a webhook may have; the message quotes nothing of it.
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
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host or "\\" in url:
        raise ValueError("must be https://HOST/PATH")
    if parts.username is not None or parts.fragment:
        raise ValueError("must have no user name and no fragment")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    default = _HTTPS if secure else 80
    return Target(
        secure, host, default if port is None else port, path, f"{parts.scheme}://{parts.netloc}"
    )


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

    async def check(self, target: Target) -> None:
        """Refuse a target that may not be reached; a name that does not resolve may do so later.

        Raises:
            TargetRefusedError: the address is not allowed, or not without TLS.
        """
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await self.resolve(target)
        except OSError:
            if not (target.secure or self._networks or target.host in self._names):
                raise TargetRefusedError(_refusal(target)) from None

    async def resolve(self, target: Target) -> list[str]:
        """Return the addresses of a target that may be reached, at least one.

        Raises:
            TargetRefusedError: there is none.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise TargetRefusedError("its host is no name and no address") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        kept = [address for address in addresses if self._permits(target, _address_of(address))]
        if not kept:
            raise TargetRefusedError(_refusal(target))
        return kept

    def _permits(self, target: Target, address: Address | None) -> bool:
        if target.host in self._names:
            return True
        if address is None:
            return False
        embedded = _embedded(address)
        named = (any(part in network for network in self._networks) for part in embedded)
        return all(named) or (target.secure and all(map(_is_public, embedded)))


class CheckedBackend(httpcore2.AnyIOBackend):
    """Connects to the addresses of one target that may be reached, and to nothing else."""

    def __init__(self, target: Target, allowed: AllowedTargets) -> None:
        self._target = target
        self._allowed = allowed

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers."""
        *others, last = await self._allowed.resolve(self._target)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, self._target.port, *args, **kwargs)
        return await super().connect_tcp(last, self._target.port, *args, **kwargs)


def _refusal(target: Target) -> str:
    if target.secure:
        return "its address is not public, and not one of webhook_hosts"
    return "must be https, or one of webhook_hosts"


def _address_of(host: str) -> Address | None:
    """Return the address that a host is, without the scope of a link; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _embedded(address: Address) -> list[Address]:
    """Return an address with those of IPv4 that its packets may be passed on to."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inner = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *(part for part in inner if part is not None)]


def _is_public(address: Address) -> bool:
    special = address.is_multicast or address.is_reserved
    return address.is_global and not special and not any(address in part for part in _SPECIAL)
