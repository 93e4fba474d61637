"""A receiver of webhooks that answers what a test wants."""

import base64
import hmac
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kit.waiting import TIMEOUT_S

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Message:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> str:
        """The id of the document that it tells of."""
        return str(json.loads(self.body)["data"]["document"])

    def is_signed_by(self, secret: str) -> bool:
        """Verify the signature as Standard Webhooks says."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        names = ("webhook-id", "webhook-timestamp")
        content = b".".join([*(self.headers[name].encode() for name in names), self.body])
        signature = base64.b64encode(hmac.digest(key, content, sha256)).decode()
        return self.headers["webhook-signature"] == f"v1,{signature}"


def status(code: int, *headers: tuple[str, str], body: bytes = b"") -> Answer:
    """Return what answers with a status."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class Receiver:
    """Listens on a port of this machine."""

    def __init__(self, port: int = 0, certificate: Path | None = None) -> None:
        self.messages: list[Message] = []
        self.answers: list[Answer] = []  # the last one answers all that follow
        self.arrived = threading.Semaphore(0)
        self.connections = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.messages.append(Message(self.path, headers, body))
                answers = receiver.answers or [status(204)]
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                receiver.arrived.release()
                try:
                    answer(self)
                except OSError:  # who sent it has gone
                    self.close_connection = True

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def get_request(self) -> Any:
                receiver.connections += 1
                return super().get_request()

            def handle_error(self, *_: Any) -> None:  # who connects may not speak HTTP
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, number: int) -> list[Message]:
        """Wait for so many messages more; return all that arrived."""
        for _ in range(number):
            assert self.arrived.acquire(timeout=TIMEOUT_S), f"{len(self.messages)} messages arrived"
        return list(self.messages)

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
