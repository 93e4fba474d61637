"""HTTP on one connection: uvicorn's protocol with limits on clients that do not send or read.

uvicorn waits for both without an end: for the head of a request, and for a client to take a
response, whose bytes stay in memory.
"""

import asyncio
import json
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.errors import MalformedRequestError
from service.problem_responses import PROBLEM_JSON, problem_content

HEAD_SECONDS = 10.0
_KERNEL_BYTES = 128 * 1024


class TimedH11Protocol(H11Protocol):
    """uvicorn's protocol with time limits on receiving a head and on sending a response.

    It closes a connection on which no head has arrived after `HEAD_SECONDS`, or whose client keeps
    sending a body that was rejected: a socket and its buffers take memory. It aborts one whose
    client takes the response too slowly: it may pause for `pause_seconds`, which waiting uses up
    and which the bytes that it takes restore.

    Attributes:
        pause_seconds: that a client may take nothing of what is sent to it.
        bytes_per_second: a client that takes so many in the mean is never too slow; half of what a
            slow mobile network takes.
        unsent_bytes: of all connections together, all answers of a full server several times; the
            slowest clients are disconnected above it.
        on_slow: is called for each client that is disconnected.
        waiting: connections with more unsent than fits the buffer.
    """

    pause_seconds: ClassVar[float] = 60.0
    bytes_per_second: ClassVar[float] = 16_384.0
    unsent_bytes: ClassVar[int] = 256 * 2**20
    on_slow: "ClassVar[staticmethod[[], None]]"
    waiting: ClassVar[set["TimedH11Protocol"]]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._seconds_left = self.pause_seconds
        self._seen = (0.0, 0)  # when the client's progress was last looked at, and its unsent bytes

    @property
    def unsent(self) -> int:
        """Bytes of responses that the client has not taken."""
        unsent: int = self.transport.get_write_buffer_size()
        return unsent

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first head."""
        super().connection_made(transport)
        # The kernel otherwise keeps megabytes that could not be sent, and says nothing of the
        # client's progress until a third is free.
        connection = transport.get_extra_info("socket")
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not of every system
        if connection is not None and option is not None:
            with suppress(OSError):  # not TCP
                connection.setsockopt(socket.IPPROTO_TCP, option, _KERNEL_BYTES)
        self._check_head()

    def data_received(self, data: bytes) -> None:
        """Handle received data, which may complete a head or not."""
        super().data_received(data)
        self._check_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop sending, and start to wait for the client."""
        super().pause_writing()
        self._seen = (self.loop.time(), self.unsent)
        self.waiting.add(self)
        self._send_timer = self.loop.call_later(self._seconds_left, self._check_progress)
        while sum(connection.unsent for connection in self.waiting) > self.unsent_bytes:
            min(self.waiting, key=TimedH11Protocol.measure_seconds_left).abort_slow()

    def resume_writing(self) -> None:
        """Continue to send: the client has taken what waited."""
        self.measure_seconds_left()
        self._stop_waiting()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with a problem, unless a response has begun, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # its request will not be answered otherwise
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send_problem(MalformedRequestError(msg))
        self.transport.close()

    def _send_problem(self, problem: MalformedRequestError) -> None:
        request_id = uuid.uuid4().hex
        body = json.dumps(problem_content(problem, "", request_id)).encode()
        headers = [
            ("content-type", PROBLEM_JSON),
            ("content-length", str(len(body))),
            ("x-request-id", request_id),
            ("connection", "close"),
        ]
        status = problem.problem_type.status
        reason = HTTPStatus(status).phrase
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")

    def measure_seconds_left(self) -> float:
        """Return the seconds for which the client may take nothing from now on."""
        (before, unsent_before), (now, unsent) = self._seen, (self.loop.time(), self.unsent)
        earned = (unsent_before - unsent) / self.bytes_per_second
        self._seconds_left = min(self.pause_seconds, self._seconds_left + earned - (now - before))
        self._seen = (now, unsent)
        return self._seconds_left

    def abort_slow(self) -> None:
        """Disconnect the client, and drop what was not sent."""
        self._stop_waiting()
        self.on_slow()
        self.transport.abort()

    def _check_progress(self) -> None:
        seconds = self.measure_seconds_left()
        if seconds <= 0:
            self.abort_slow()
        else:
            self._send_timer = self.loop.call_later(seconds, self._check_progress)

    def _stop_waiting(self) -> None:
        self.waiting.discard(self)
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _check_head(self) -> None:
        rejected = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not rejected:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._abort_idle)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort_idle(self) -> None:
        self._head_timer = None
        idle = self.conn.their_state is h11.IDLE
        if idle or self.conn.our_state is h11.DONE:
            self.transport.abort()


def limited_protocol(on_slow: Callable[[], None], **limits: float) -> type[TimedH11Protocol]:
    """Return the protocol of a server, with other limits on sending where some are given."""
    fields = {"on_slow": staticmethod(on_slow), "waiting": set(), **limits}
    return type("LimitedH11Protocol", (TimedH11Protocol,), fields)
