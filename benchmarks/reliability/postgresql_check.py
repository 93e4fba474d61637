"""The same operations on a store in PostgreSQL, whose server is killed among them.

A write during which the server dies may be done or not, but as a whole; any other write that was
acknowledged is there, and nothing that was deleted comes back.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from index.postgres.address import parse_postgresql_url
from index.postgres.document_store import PostgreSQLDocumentStore
from index.vectors.backends import FAISS_BACKENDS

from benchmarks.reliability.documents import DIMENSION, FINGERPRINT, contents, entry_of
from benchmarks.reliability.model_check import ModelCheck, WrongAnswerError, require_equal
from index.errors import DatabaseUnavailableError
from index.vectors.live_index import LiveIndex, open_live_index

_LATEST_KILL = 0.02  # seconds after a write has begun; most writes take less


class Server(Protocol):
    """A PostgreSQL that the check kills and starts."""

    @property
    def url(self) -> str:
        """Of a database of it."""
        ...

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...


@dataclass(frozen=True, slots=True)
class PostgreSQLData:
    """A store in PostgreSQL, and an index of it with its snapshots in a folder."""

    store: PostgreSQLDocumentStore
    index: LiveIndex

    def close(self) -> None:
        """Close the store."""
        self.store.close()


class PostgreSQLModelCheck(ModelCheck):
    """A store in PostgreSQL and a dict with its expected contents."""

    weights = {  # noqa: RUF012  nobody changes it
        **{kind: weight for kind, weight in ModelCheck.weights.items() if kind != "reclaim"},
        **{"kill": 2, "kill in a write": 6},
    }

    def __init__(self, path: Path, seed: int, server: Server) -> None:
        """Fill a new schema of a server; the snapshots of the index are in the folder `path`."""
        self._server = server

        def open_data(path: Path) -> PostgreSQLData:
            store = PostgreSQLDocumentStore(
                parse_postgresql_url(server.url), fingerprint=FINGERPRINT, dimension=DIMENSION
            )
            index = open_live_index(store, path, read_only=False, backend=FAISS_BACKENDS["fp32"])
            return PostgreSQLData(store, index)

        super().__init__(path, seed, open_data)

    def _operations(self) -> dict[str, Callable[[], None]]:
        return {
            **super()._operations(),
            "kill": self._kill,
            "kill in a write": self._kill_in_a_write,
        }

    def _kill(self) -> None:
        """Kill the server between two operations; the open store works again after its start."""
        self._server.kill()
        self._server.start()
        if self._random.random() < 0.5:
            self._restart()
        else:
            self.check()

    def _kill_in_a_write(self) -> None:
        version, self._next_version = self._next_version, self._next_version + 1
        names = self._present() if self._random.random() < 0.5 else self._absent()
        deletes = self._random.random() < 0.5
        after: dict[str, int | None] = dict.fromkeys(names, None if deletes else version)
        killer = threading.Timer(self._random.random() * _LATEST_KILL, self._server.kill)
        before = contents(self._data)[0]
        killer.start()
        try:
            if deletes:
                self._data.store.delete(names)
            else:
                self._data.store.put([entry_of(name, version) for name in names])
            done = True
        except DatabaseUnavailableError:
            done = False
        killer.join()
        self._server.start()
        found = contents(self._data)[0]
        expected = {**before, **after}
        whole = {name: one for name, one in expected.items() if one is not None}
        if found != whole and (done or found != before):
            raise WrongAnswerError(f"a write that the server died in, acknowledged: {done}")
        if found == whole:
            for name, one in after.items():
                self._forget(name) if one is None else self._record(name, one)
        self._data.index.catch_up()
        require_equal(self._data.index.sequence, self._data.store.sequence, "sequence")
