"""Delivers events to webhooks: those of one query one by one, in their order.

What was received is recorded after the answer: a process that is killed in between delivers an
event again, under the same `webhook-id`. Nothing of an answer is read but its head. Messages are
signed as Standard Webhooks says (https://www.standardwebhooks.com).
"""

import asyncio
import base64
import hmac
import json
import logging
import random
import re
import secrets
import ssl
import time
from collections.abc import Sequence
from hashlib import sha256

import httpcore2

from service.errors import StandingQueryNotFoundError, describe
from service.metrics import CollectionMetrics
from service.standing import targets
from service.standing.store import Event, StandingQuery, StandingStore, Webhook, new_webhook
from service.threads import Worker

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
    """Return a secret that a client chose, or raise ValueError if it has not the `SECRET_FORM`."""
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
    key = base64.b64decode(secret.removeprefix(WHSEC), validate=True)
    signature = base64.b64encode(hmac.digest(key, content, sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": sent,
        "webhook-signature": f"v1,{signature}",
    }


EVENT_TYPE = "document.matched"
ANSWER_SECONDS = 10.0  # a receiver stores a message and works on it later
ATTEMPTS = 24  # over about 14 hours: a night without an operator
_AT_A_TIME = 8  # queries whose events are being delivered
_EVENTS_A_TURN = 100  # of one query, before another one that waits
_FIRST_SECONDS, _MOST_SECONDS = 5.0, 3600.0  # between attempts
_DOUBLINGS = 20  # after which the longest time is reached
_JITTER = 0.25
_IDLE_SECONDS = 30.0
_LOOK_SECONDS = 0.2  # for new events, while others are being delivered
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
    """Delivers the events of a data directory.

    Attributes:
        worker: the thread that delivers, once there are events.
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
        self._allowed = targets.AllowedTargets(hosts)
        self._tls: ssl.SSLContext | None = None  # made where there are webhooks: it reads files
        self.worker = Worker("webhooks", lambda: asyncio.run(self._deliver_due()))

    def wake(self) -> None:
        """Say that there may be something to deliver."""
        self.worker.woken.set()
        if self.worker.thread is None and self._store.undelivered():
            self.worker.start()

    async def _deliver_due(self) -> float:
        """Deliver what is due; return the seconds until something will be.

        What is being delivered when it is to stop is given up, and delivered after the next start.
        """
        self._tls = self._tls or httpcore2.default_ssl_context()
        running: dict[int, asyncio.Task[None]] = {}
        while not self.worker.stopping.is_set():
            rest = self._begin_what_is_due(running)
            if not running:
                return rest
            await asyncio.wait(
                running.values(), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            running = {number: task for number, task in running.items() if not task.done()}
        return 0.0

    def _begin_what_is_due(self, running: dict[int, asyncio.Task[None]]) -> float:
        """Begin to deliver to those that are due; return the seconds until another one is."""
        now, rest = time.time(), _IDLE_SECONDS
        for query in self._store.undelivered():
            webhook = query.webhook
            if webhook is None or query.number in running:
                continue
            # A clock that was set back makes nobody wait for longer than the longest time.
            left = min(webhook.retry_at - now, _MOST_SECONDS * (1 + _JITTER))
            if left > 0:
                rest = min(rest, left)
            elif len(running) < _AT_A_TIME:
                running[query.number] = asyncio.create_task(self._deliver_some(query, webhook))
        return rest

    async def _deliver_some(self, query: StandingQuery, webhook: Webhook) -> None:
        """Deliver the next events of a query, until an attempt fails."""
        try:
            for _ in range(_EVENTS_A_TURN):
                # One by one: a query may be removed meanwhile.
                events = self._store.events_after(webhook.delivered, 1, query.id)
                if not events:
                    return
                try:
                    await self._deliver(query.id, webhook, events[0])
                except _FailedError as error:
                    self._store.record(query, self._after_failure(query, webhook, error))
                    return
                webhook = new_webhook(webhook.url, webhook.secret, events[0].number)
                goes_on = self._store.record(query, webhook)
                self._metrics.webhook_deliveries("delivered").inc()
                if not goes_on:
                    return
        except StandingQueryNotFoundError:
            return
        except Exception as error:
            _LOG.error("the webhook of %s is paused: %s", query.id, describe(error))
            await asyncio.sleep(_FIRST_SECONDS)

    def _after_failure(
        self, query: StandingQuery, webhook: Webhook, error: _FailedError
    ) -> Webhook:
        attempts = webhook.attempts + 1
        failed = error.final or attempts >= self.attempts
        self._metrics.webhook_deliveries("failed" if failed else "retried").inc()
        if failed:
            _LOG.warning("the webhook of the standing query %s failed: %s", query.id, error)
        return webhook.model_copy(
            update={
                "attempts": attempts,
                "retry_at": time.time() + retry_seconds(attempts),
                "failed": failed,
                "failure": str(error),
            }
        )

    async def _deliver(self, query_id: str, webhook: Webhook, event: Event) -> None:
        """Send one event, and take any 2xx as its receipt; _FailedError if there is none."""
        sent = {"type": EVENT_TYPE, "timestamp": event.created, "data": event.model_dump()}
        body = json.dumps(sent, ensure_ascii=False).encode()
        target = targets.parse_target(webhook.url)
        headers = {
            "Host": targets.origin_of(webhook.url).partition("://")[2],
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": "longmatch",
            "Connection": "close",
            **signed_headers(webhook.secret, f"{query_id}-{event.number}", body, time.time()),
        }
        backend = targets.CheckedBackend(target, self._allowed)
        try:
            # A pool for each message: a connection is checked when it is made, and used once.
            async with (
                asyncio.timeout(self.answer_seconds),
                httpcore2.AsyncConnectionPool(self._tls, network_backend=backend) as pool,
                pool.stream(
                    "POST", target, headers=list(headers.items()), content=body
                ) as response,
            ):
                status = int(response.status)
        except (targets.TargetRefusedError, OSError, *_NO_ANSWER) as error:
            raise _FailedError(_reason(error)) from error
        if not 200 <= status < 300:
            redirected = " (redirects are not followed)" if status in _REDIRECTS else ""
            raise _FailedError(f"the answer was {status}{redirected}", final=status == _GONE)


def _reason(error: Exception) -> str:
    """Return why no answer was received."""
    match error:
        case ssl.SSLError() | httpcore2.ConnectError(__context__=ssl.SSLError()):
            return "its certificate is not valid"
        case targets.TargetRefusedError():
            return str(error)
        case TimeoutError():
            return "there was no answer in time"
        case httpcore2.ConnectError():
            return "no connection was made"
        case OSError():
            return "its name does not resolve"
    return "the answer broke off or is not HTTP"


def retry_seconds(attempts: int) -> float:
    """Return how long to wait after so many attempts: twice as long each time, and at random."""
    doubled = min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempts - 1, _DOUBLINGS))
    return doubled * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
