"""Clients that ask a real server for everything it does, at a steady rate."""

import json
import random
import threading
import time
import urllib.request
from itertools import product
from typing import Any

from tests.kit.process_fixtures import Server
from tests.kit.waiting import TIMEOUT_S

WORDS = ["".join(letters) for letters in product("bdgkmnprst", "aeiou", "lmnrst")]
DOCUMENTS = 60  # that matches are looked for among
UPLOAD_EVERY = 40  # requests


def make_text(chosen: random.Random, words: int) -> str:
    """Return sentences of random words."""
    return ". ".join(" ".join(chosen.choices(WORDS, k=12)) for _ in range(words // 12)) + "."


class SteadyLoad:
    """Sends requests in the background, in turn of every kind, until it is closed."""

    def __init__(self, server: Server, rate: float) -> None:
        """Store some documents and begin.

        Args:
            server: that gets the requests.
            rate: requests per second.
        """
        self.server = server
        self.statuses: list[int] = []
        self._rate = rate
        self._chosen = random.Random(1)
        stored = {"documents": [self._document(number) for number in range(DOCUMENTS)]}
        assert server.request("POST", "/index", stored)[0] == 200
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()

    def _document(self, number: int) -> dict[str, Any]:
        return {"id": f"d{number}", "text": make_text(self._chosen, 120), "metadata": {"n": number}}

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopping.wait(max(0.0, began + sent / self._rate - time.monotonic())):
            self._send(sent)
            sent += 1

    def _send(self, number: int) -> None:
        chosen = self._chosen
        name = f"d{chosen.randrange(DOCUMENTS)}"
        text = make_text(chosen, 60)
        kinds: list[tuple[str, str, Any]] = [
            ("POST", "/match", {"text": text}),
            ("POST", "/match", {"id": name, "filter": {"field": "n", "range": {"gte": 3}}}),
            ("POST", "/match", {"text": text, "mode": "semantic", "explain": {"matches": 1}}),
            ("POST", "/match", {"text": text, "rerank": {"candidates": 3}}),
            ("POST", "/index", {"documents": [self._document(chosen.randrange(DOCUMENTS))]}),
            ("POST", "/compare", {"left": {"id": name}, "right": {"text": text}}),
        ]
        try:
            if number % UPLOAD_EVERY == UPLOAD_EVERY - 1:
                self.statuses.append(self._upload())
            method, path, body = kinds[number % len(kinds)]
            self.statuses.append(self.server.request(method, path, body)[0])
        except OSError:
            self.statuses.append(0)  # nobody answers

    def _upload(self) -> int:
        lines = [json.dumps(self._document(number)) for number in range(8)]
        request = urllib.request.Request(
            self.server.url + "/index",
            "\n".join(lines).encode(),
            {"Content-Type": "application/x-ndjson"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return int(answer.status)
