"""A server on a real socket that fails on demand, and otherwise passes requests on."""

import http.client
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Answer without asking the server."""

    status: int
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer: unread, read, or passed on and done."""

    read: bool = True
    passed_on: bool = False


@dataclass(frozen=True)
class Trickle:
    """Answer 200 with a body of one byte each time, for these seconds; or not even a head."""

    seconds: float
    head: bool = True


@dataclass(frozen=True)
class Cut:
    """Pass the request on, and close the connection after so many bytes of the answer's body."""

    size: int


@dataclass(frozen=True)
class Seen:
    """A request that arrived, with its headers by name in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    time: float


class FaultProxy(socketserver.ThreadingTCPServer):
    """Does what `script` has for each request in turn, and then passes requests on."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, target: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.script: list[Answer | Drop | Trickle | Cut] = []
        self.seen: list[Seen] = []
        self.lock = threading.Lock()
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def will(self, *script: Answer | Drop | Trickle | Cut) -> None:
        """Forget what was seen, and do this next."""
        self.script, self.seen = list(script), []


class _Handler(socketserver.StreamRequestHandler):
    server: FaultProxy

    def handle(self) -> None:
        with suppress(OSError):
            self._serve()

    def _serve(self) -> None:
        method, path = (part.decode() for part in self.rfile.readline().split()[:2] or (b"", b""))
        if not method:
            return  # the connection had no request
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        with self.server.lock:
            action = self.server.script.pop(0) if self.server.script else None
        body = b"" if action == Drop(read=False) else self._body(headers)
        with self.server.lock:
            self.server.seen.append(Seen(method, path, headers, body, time.monotonic()))
        match action:
            case Answer():
                self._answer(action.status, action.headers, action.body)
            case Drop():
                if action.passed_on:
                    self._ask(method, path, headers, body)
            case Trickle():
                self._trickle(action)
            case _:
                status, given, content = self._ask(method, path, headers, body)
                size = action.size if isinstance(action, Cut) else len(content)
                self._answer(status, given, content, size)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        assert self.server.target is not None
        kept = {k: v for k, v in headers.items() if k not in ("transfer-encoding", "host")}
        connection = http.client.HTTPConnection(self.server.target.removeprefix("http://"))
        connection.request(method, path, body or None, kept)
        response = connection.getresponse()
        content = response.read()
        given = {k.lower(): v for k, v in response.getheaders()}
        connection.close()
        return response.status, given, content

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, size: int | None = None
    ) -> None:
        kept = {k: v for k, v in headers.items() if k not in ("transfer-encoding", "connection")}
        if status != 204:
            kept["content-length"] = str(len(body))
        lines = [f"HTTP/1.1 {status} Any", "connection: close"]
        lines += [f"{name}: {value}" for name, value in kept.items()]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body[:size])

    def _trickle(self, action: Trickle) -> None:
        if action.head:
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        until = time.monotonic() + action.seconds
        while time.monotonic() < until and not self.server.stopped.wait(0.02):
            if action.head:
                self.wfile.write(b" ")


@contextmanager
def fault_proxy(target: str | None = None) -> Iterator[FaultProxy]:
    """Run a proxy in threads of its own."""
    with FaultProxy(target) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()


def problem(status: int, name: str, **headers: Any) -> Answer:
    """Return an answer with a problem of a name."""
    content = f'{{"type": "/problems/{name}", "status": {status}, "detail": "on purpose"}}'
    given = {"content-type": "application/problem+json", **headers}
    return Answer(status, content.encode(), given)
