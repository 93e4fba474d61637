"""What clients of a cluster write, and what they know of it: acknowledged, or not."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tools.process_fixtures import Server

_ERROR_PAUSE = 0.1  # seconds after a request that failed
_WORDS = ("river", "stone", "music", "winter", "letter", "engine", "forest", "harbour")

Contents = dict[str, str]  # text by id


@dataclass(slots=True)
class Known:
    """What one writer knows of its documents.

    Attributes:
        texts: as last acknowledged.
        unknown: the text, or None for a deletion, of each request since that was not acknowledged:
            each was done, or it was not.
        acknowledged: requests that were.
        refused: requests that failed, or had no answer.
        wrong: answers that should not have been given.
    """

    texts: Contents = field(default_factory=dict)
    unknown: dict[str, list[str | None]] = field(default_factory=dict)
    acknowledged: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    def allows(self, document_id: str, text: str | None) -> bool:
        """Return whether a document may be stored with this text; None: may be missing."""
        return text == self.texts.get(document_id) or text in self.unknown.get(document_id, ())


def text_of(document_id: str, version: int) -> str:
    """Return the text of a version of a document: no two are alike."""
    chance = random.Random(f"{document_id} {version}")
    words = " ".join(chance.choices(_WORDS, k=12))
    return f"The {document_id} of {version} says {words}. It is number {version} of {document_id}."


class Writer(threading.Thread):
    """A client that puts and deletes its own documents, one request after another."""

    def __init__(
        self, servers: Sequence[Callable[[], Server]], name: str, known: Known, seed: str
    ) -> None:
        """Prepare to write.

        Args:
            servers: those that it asks in turns, as they are now.
            name: that the ids of its documents begin with.
            known: what it knows, which it changes.
            seed: of what it writes.
        """
        super().__init__(daemon=True)
        self._servers = servers
        self._known = known
        self._names = [f"{name}{number}" for number in range(20)]
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let it finish its request, and end."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Write until it is stopped."""
        number = 0
        while not self._stopping.is_set():
            number += 1
            server = self._servers[number % len(self._servers)]()
            chosen = self._random.sample(self._names, self._random.randint(1, 3))
            if self._random.random() < 0.3:
                self._write(server, "DELETE", f"/documents/{chosen[0]}", None, {chosen[0]: None})
            else:
                version = self._random.randrange(10**9)
                change = {name: text_of(name, version) for name in chosen}
                entries = [{"id": name, "text": text} for name, text in change.items()]
                self._write(server, "POST", "/index", {"documents": entries}, dict(change))

    def _write(
        self, server: Server, method: str, path: str, body: Any, change: dict[str, str | None]
    ) -> None:
        known = self._known
        try:
            status = server.request(method, path, body)[0]
        except OSError:
            status = 0  # no answer
        if status == 404 and not self._known.allows(next(iter(change)), None):
            known.wrong.append(f"{path} is not found, and was acknowledged")
        if status in (200, 204, 404):
            for name, text in change.items():
                known.unknown.pop(name, None)
                known.texts.pop(name, None)
                if text is not None:
                    known.texts[name] = text
            known.acknowledged += 1
            return
        if status not in (0, 503):
            known.wrong.append(f"{method} {path} was answered with {status}")
        for name, text in change.items():
            known.unknown.setdefault(name, []).append(text)
        known.refused += 1
        self._stopping.wait(_ERROR_PAUSE)
