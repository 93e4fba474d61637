"""A server of embeddings in this process, of a model that sentence-transformers saved.

It speaks as Text Embeddings Inference does, and as OpenAI; a test chooses what it does wrong.
"""

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from encoder.arrays import Float32
from encoder.encoder import Encoder
from encoder.opening import find_encoder, open_encoder

LIMIT = 128  # tokens that a model reads


def encode_texts(encoder: Encoder, texts: Sequence[str]) -> Float32:
    """Return the vectors of whole texts."""
    return encoder.encode([encoder.read(text) for text in texts]).document_vectors


@dataclass
class EmbeddingServer:
    """A server, and what happens to its next calls.

    Attributes:
        url: of the server.
        model: that encodes.
        faults: of the next calls, one each: a status, "half", "nan", "wide", "close",
            "text" or "slow", which is answered at the end of the test.
        key: that a call must have.
        tei: whether there is `GET /info`.
        poison: each call with a text that has this is answered with vectors that are too wide.
        read: texts that were answered.
    """

    url: str
    model: Encoder
    faults: deque[int | str] = field(default_factory=deque)
    poison: str | None = None
    read: list[str] = field(default_factory=list)
    key: str | None = None
    tei: bool = True
    info: dict[str, Any] = field(default_factory=lambda: {"model_id": "tiny", "model_sha": "1"})
    models: list[str] = field(default_factory=lambda: ["tiny"])

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the answer of a call."""
        if path == "/info":
            return (200, self.info) if self.tei else (404, {})
        if path == "/v1/models":
            return 200, {"data": [{"id": name} for name in self.models]}
        texts = body["inputs"] if path == "/embed" else body["input"]
        if len(texts) > 32:
            return 413, {"error": "batch size > maximum allowed batch size 32"}
        if any(len(self.model.read(text).blocks) > 1 for text in texts):
            return 413, {"error": f"`inputs` must have less than {LIMIT} tokens"}
        self.read += texts
        rows = encode_texts(self.model, texts).tolist()
        fault = self.faults.popleft() if self.faults else ""
        if isinstance(fault, int):
            return fault, {"error": "of the test"}
        if fault == "half":
            rows = rows[: len(rows) // 2]
        if fault == "nan":
            rows[-1][0] = float("nan")
        if fault == "wide" or (self.poison and self.poison in "".join(texts)):
            rows = [[*row, 0.5] for row in rows]
        if path == "/embed":
            return 200, rows
        data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
        return 200, {"data": data[::-1]}


@contextmanager
def serve_embeddings(folder: Path) -> Iterator[EmbeddingServer]:
    """Serve a model on a free port of this machine."""
    model = open_encoder(find_encoder(str(folder)), threads=1)
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            if body is not None and server.faults and server.faults[0] in ("close", "text", "slow"):
                fault = server.faults.popleft()
                if fault == "text":
                    self.wfile.write(b"220 mail.example ESMTP\r\n")
                if fault == "slow":
                    ended.wait()
                self.close_connection = True
                return
            allowed = server.key in (None, self.headers.get("Authorization"))
            status, content = server.answer(self.path, body) if allowed else (401, "no key")
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        server = EmbeddingServer(f"http://127.0.0.1:{httpd.server_port}", model)
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            ended.set()
            httpd.shutdown()
            thread.join()
