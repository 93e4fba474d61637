"""Which Host headers are answered: a page of another site must not reach the service.

By DNS rebinding, a page makes a browser send requests to an address of its choice, under the name
of its own site. The name is in the Host header, so requests under unknown names are refused.
"""

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import HostNotAllowedError

ANY = "*"
LOOPBACK = "127.0.0.1"
_LOCAL = "localhost"


class AllowedHosts:
    """The names and addresses under which a service that listens on one address is known."""

    def __init__(self, bound_to: str, names: Iterable[str] = ()) -> None:
        """Allow what is safe by itself, and names.

        On a loopback address: loopback addresses and `localhost`. On any other: every address and
        every name without a dot, which no site on the internet has, and `bound_to` itself.

        Args:
            bound_to: the address or name that the service listens on.
            names: other names; `*.example.com` stands for all names below example.com, `*` for all.
        """
        self._local_only = is_loopback(bound_to)
        given = {name.lower() for name in names}
        self._any = ANY in given
        self._names = {_LOCAL, bound_to.lower(), *given}
        self._parents = tuple(name[1:] for name in given if name.startswith("*."))

    def __contains__(self, header: str) -> bool:
        """Return whether requests with this Host header are answered; without one, they are."""
        host = host_of(header)
        if self._any or not header or host in self._names or host.endswith(self._parents):
            return True
        if self._local_only:
            return is_loopback(host)
        return _address(host) is not None or (bool(host) and "." not in host)


class HostMiddleware:
    """Refuses requests under a name that is not the service's."""

    def __init__(self, app: ASGIApp, allowed: AllowedHosts) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and Headers(scope=scope).get("host", "") not in self._allowed:
            raise HostNotAllowedError
        await self._app(scope, receive, send)


def host_of(header: str) -> str:
    """Return the name or address in a Host header, in lower case, without port and brackets."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of the machine itself."""
    address = _address(host)
    return host.lower() == _LOCAL if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
