"""The thread that delivers events to webhooks, and which addresses these may reach.

A webhook is a request that a client lets the server make, into the server's own network if it could
(OWASP API7): it may reach public addresses by https, and others that an operator names. The address
is checked, not the name: when the connection is made, which then goes to the address that was
checked, whatever the name resolves to a moment later.

Events of one query are delivered one by one, in their order. What was received is recorded after
the answer: a process that is killed in between delivers an event again, under the same
`webhook-id`. Nothing of an answer is read but its head. Messages are signed as Standard Webhooks
says (https://www.standardwebhooks.com).
"""

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import random
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from urllib.parse import urlsplit

import httpcore2

from index.errors import StoreError
from service.errors import StandingQueryNotFoundError
from service.metrics import CollectionMetrics
from service.standing.store import Delivery, Event, StandingQuery, StandingStore

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


class TargetRefusedError(Exception):
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


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses of one target that may be reached, and to nothing else."""

    def __init__(self, target: Target, allowed: AllowedTargets) -> None:
        self._target = target
        self._allowed = allowed
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers."""
        addresses: Sequence[str] = await self._allowed.resolve(self._target)
        for address in addresses[:-1]:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await self._network.connect_tcp(
                    address, self._target.port, timeout, local_address, socket_options
                )
        return await self._network.connect_tcp(
            addresses[-1], self._target.port, timeout, local_address, socket_options
        )

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


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


WHSEC = "whsec_"
_SECRET_BYTES = 32
_GROUP = "[A-Za-z0-9+/]"
SECRET_FORM = (  # 24 to 64 bytes
    rf"^{WHSEC}({_GROUP}{{4}}){{8,20}}"
    rf"({_GROUP}{{4}}({_GROUP}{{2}}==)?|{_GROUP}{{2}}==|{_GROUP}{{3}}=)?$"
)


def make_secret() -> str:
    """Return a new random secret."""
    return WHSEC + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def check_secret(secret: str) -> str:
    """Return a secret that a client chose.

    Raises:
        ValueError: it is not `whsec_` and the Base64 of 24 to 64 bytes.
    """
    if not re.fullmatch(SECRET_FORM, secret):
        raise ValueError(f"must be {WHSEC} and the Base64 of 24 to 64 bytes")
    return secret


def signed_headers(secret: str, message_id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers of a message: its id, its time, and the signature of both and the body.

    Args:
        secret: that the receiver knows, too.
        message_id: the same when a message is sent again.
        body: of the message.
        now: seconds since the epoch.
    """
    sent = str(int(now))
    content = b".".join((message_id.encode(), sent.encode(), body))
    signature = base64.b64encode(hmac.digest(_key(secret), content, sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": sent,
        "webhook-signature": f"v1,{signature}",
    }


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(WHSEC), validate=True)


EVENT_TYPE = "document.matched"
ANSWER_SECONDS = 10.0  # a receiver stores a message and works on it later
ATTEMPTS = 24  # over about 14 hours: a night without an operator
_AT_A_TIME = 8  # queries whose events are being delivered
_EVENTS_A_TURN = 100  # of one query, before another one that waits
_FIRST_SECONDS, _MOST_SECONDS = 5.0, 3600.0  # between attempts
_DOUBLINGS = 20  # after which the longest time is reached
_JITTER = 0.25
_IDLE_SECONDS = 30.0
_GONE = 410
_REDIRECTS = range(300, 400)
_NO_ANSWER = (httpcore2.ProtocolError, httpcore2.NetworkError, httpcore2.TimeoutException)

_LOG = logging.getLogger(__name__)


class _FailedError(Exception):
    """A delivery failed; the message has nothing of the URL, the secret or the answer."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Webhooks:
    """Delivers the events of a data directory, in a thread that runs once there are some.

    Attributes:
        answer_seconds: in which a receiver must have answered.
        attempts: to deliver an event, before the webhook has failed.
    """

    def __init__(
        self, store: StandingStore, hosts: Sequence[str], metrics: CollectionMetrics
    ) -> None:
        """Deliver nothing before `wake`; `hosts` are those of the setting `webhook_hosts`."""
        self.answer_seconds = ANSWER_SECONDS
        self.attempts = ATTEMPTS
        self._store = store
        self._metrics = metrics
        self._allowed = AllowedTargets(hosts)
        self._tls: ssl.SSLContext | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopping = False
        self._running: dict[int, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Say that there may be something to deliver."""
        with self._starting:
            if self._stopping:
                return
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._woken.set)
            elif self._store.undelivered():
                self._loop = asyncio.new_event_loop()
                self._woken.set()
                self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ask the thread to stop, without waiting for it."""
        with self._starting:
            first, self._stopping = not self._stopping, True
            if first and self._loop is not None:
                self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Stop; what is being delivered is given up, and delivered again after the next start."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._loop is not None  # noqa: S101 (see `wake`)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # type: ignore[arg-type,return-value]
            runner.run(self._work())

    async def _work(self) -> None:
        self._tls = httpcore2.default_ssl_context()  # reads files: only where there are webhooks
        while not self._stopping:
            self._woken.clear()
            wait = _IDLE_SECONDS
            try:
                wait = self._begin_what_is_due()
            except Exception as error:
                _LOG.error("webhooks are paused: %s", _describe(error))
            try:
                await asyncio.wait_for(self._woken.wait(), wait)
            except TimeoutError:
                continue
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _begin_what_is_due(self) -> float:
        """Begin to deliver to those that are due; return the seconds until another one is."""
        now, wait = time.time(), _IDLE_SECONDS
        for query in self._store.undelivered():
            if query.number in self._running:
                continue
            # A clock that was set back makes nobody wait for longer than the longest time.
            left = min(query.delivery.retry_at - now, _MOST_SECONDS * (1 + _JITTER))
            if left > 0:
                wait = min(wait, left)
            elif len(self._running) < _AT_A_TIME:
                task = asyncio.ensure_future(self._deliver_some(query))
                self._running[query.number] = task
                task.add_done_callback(partial(self._done, query.number))
        return wait

    def _done(self, number: int, _: object) -> None:
        del self._running[number]
        self._woken.set()

    async def _deliver_some(self, query: StandingQuery) -> None:
        """Deliver the next events of a query, until an attempt fails."""
        try:
            delivery = query.delivery
            for _ in range(_EVENTS_A_TURN):
                # One by one: a query may be removed meanwhile.
                events = self._store.events_after(delivery.delivered, 1, query.id)
                if not events:
                    return
                try:
                    await self._deliver(query, events[0])
                except _FailedError as error:
                    self._store.record(query, self._after_failure(query, delivery, error))
                    return
                delivery = Delivery(delivered=events[0].number)
                goes_on = self._store.record(query, delivery)
                self._metrics.webhook_deliveries("delivered").inc()
                if not goes_on:
                    return
        except StandingQueryNotFoundError:
            return
        except Exception as error:
            _LOG.error("the webhook of %s is paused: %s", query.id, _describe(error))
            await asyncio.sleep(_FIRST_SECONDS)

    def _after_failure(
        self, query: StandingQuery, delivery: Delivery, error: _FailedError
    ) -> Delivery:
        attempts = delivery.attempts + 1
        failed = error.final or attempts >= self.attempts
        self._metrics.webhook_deliveries("failed" if failed else "retried").inc()
        if failed:
            _LOG.warning("the webhook of the standing query %s failed: %s", query.id, error)
        return replace(
            delivery,
            attempts=attempts,
            retry_at=time.time() + retry_seconds(attempts),
            failed=failed,
            failure=str(error),
        )

    async def _deliver(self, query: StandingQuery, event: Event) -> None:
        """Send one event, and take any 2xx as its receipt.

        Raises:
            _FailedError: it was not received.
        """
        try:
            async with asyncio.timeout(self.answer_seconds):
                status = await self._post(query, event)
        except (TargetRefusedError, OSError, *_NO_ANSWER) as error:
            raise _FailedError(_reason(error)) from error
        if not 200 <= status < 300:
            redirected = " (redirects are not followed)" if status in _REDIRECTS else ""
            raise _FailedError(f"the answer was {status}{redirected}", final=status == _GONE)

    async def _post(self, query: StandingQuery, event: Event) -> int:
        """Send one event; return the status of the answer."""
        webhook = query.webhook
        if webhook is None:
            raise ValueError("a query without a webhook has nothing to deliver")
        target = parse_target(webhook.url)
        body = json.dumps(
            {"type": EVENT_TYPE, "timestamp": event.created, "data": asdict(event)},
            ensure_ascii=False,
        ).encode()
        name = f"{query.id}-{event.number}"
        headers = {
            "Host": target.origin.partition("://")[2],
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": "longmatch",
            "Connection": "close",
            **signed_headers(webhook.secret, name, body, time.time()),
        }
        backend = CheckedBackend(target, self._allowed)
        # A pool for each message: a connection is checked when it is made, and used once.
        async with (
            httpcore2.AsyncConnectionPool(self._tls, network_backend=backend) as pool,
            pool.stream(
                "POST", target.to_url(), headers=list(headers.items()), content=body
            ) as response,
        ):
            return int(response.status)


def _reason(error: Exception) -> str:
    """Return why no answer was received."""
    match error:
        case ssl.SSLError() | httpcore2.ConnectError(__context__=ssl.SSLError()):
            return "its certificate is not valid"
        case TargetRefusedError():
            return str(error)
        case TimeoutError():
            return "there was no answer in time"
        case httpcore2.ConnectError():
            return "no connection was made"
        case OSError():
            return "its name does not resolve"
    return "the answer broke off or is not HTTP"


def _describe(error: Exception) -> str:
    """Return what went wrong, without text that may come from a document or a receiver."""
    return str(error) if isinstance(error, StoreError) else type(error).__name__


def retry_seconds(attempts: int) -> float:
    """Return how long to wait after so many attempts: twice as long each time, and at random."""
    doubled = min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempts - 1, _DOUBLINGS))
    return doubled * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
