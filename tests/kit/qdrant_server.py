"""The core of Qdrant as a process that speaks what `index.engine.qdrant` uses of the REST API."""

import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse

from benchmarks.edge_client import EdgeClient
from index.engine.qdrant.engine import QdrantEngine
from tests.kit.process_fixtures import free_port, start_program
from tests.kit.waiting import wait_until


def make_app(core: EdgeClient, *, read_only: bool) -> FastAPI:  # noqa: C901  a function a route
    """Return the application over the core, which takes writes unless `read_only`."""
    app, changing = FastAPI(), threading.Lock()

    def answer(result: Any) -> dict[str, Any]:
        return {"result": result, "status": "ok", "time": 0.0}

    @app.exception_handler(UnexpectedResponse)
    def refused(_: Any, error: UnexpectedResponse) -> JSONResponse:
        return JSONResponse({"status": {"error": error.content.decode()}}, error.status_code or 500)

    @app.get("/")
    def info() -> models.VersionInfo:
        return core.info()

    @app.get("/collections")
    def collections() -> dict[str, Any]:
        return answer(core.get_collections())

    @app.get("/aliases")
    def aliases() -> dict[str, Any]:
        return answer(core.get_aliases())

    @app.post("/collections/aliases")
    def switch(body: models.ChangeAliasesOperation) -> dict[str, Any]:
        with changing:
            return answer(core.update_collection_aliases(body.actions))

    @app.put("/collections/{name}")
    def create(name: str, body: models.CreateCollection) -> dict[str, Any]:
        with changing:
            if name in core.shards:
                raise HTTPException(409, f"Collection `{name}` already exists!")
            vectors: Any = body.vectors
            made = core.create_collection(
                name, vectors, body.sparse_vectors or {}, on_disk_payload=True
            )
            return answer(made)

    @app.delete("/collections/{name}")
    def drop(name: str) -> dict[str, Any]:
        with changing:
            return answer(core.delete_collection(name))

    @app.put("/collections/{name}/index")
    def index(name: str, body: dict[str, Any]) -> dict[str, Any]:
        kind = models.PayloadSchemaType(body["field_schema"])
        with changing:
            core.create_payload_index(name, body["field_name"], kind)
        return answer({"status": "completed"})

    @app.put("/collections/{name}/points")
    def upsert(name: str, body: models.PointsList) -> dict[str, Any]:
        assert body.update_filter is not None
        if read_only:
            raise HTTPException(403, "Forbidden: write access is required")
        with changing:
            core.upsert(name, body.points, wait=True, update_filter=body.update_filter)
        return answer({"status": "completed"})

    @app.post("/collections/{name}/points/delete")
    def delete(name: str, body: models.PointIdsList) -> dict[str, Any]:
        with changing:
            core.delete(name, body, wait=True)
        return answer({"status": "completed"})

    @app.post("/collections/{name}/points")
    def retrieve(name: str, body: dict[str, Any]) -> dict[str, Any]:
        what = {"with_payload": body["with_payload"], "with_vectors": body["with_vector"]}
        return answer(core.retrieve(name, body["ids"], **what))

    @app.post("/collections/{name}/points/scroll")
    def scroll(name: str, body: dict[str, Any]) -> dict[str, Any]:
        fields = body["with_payload"]
        rows, following = core.scroll(
            name, offset=body["offset"], limit=body["limit"], with_payload=fields
        )
        return answer({"points": rows, "next_page_offset": following})

    @app.post("/collections/{name}/points/count")
    def count(name: str) -> dict[str, Any]:
        return answer(core.count(name))

    @app.post("/collections/{name}/points/query/batch")
    def query(name: str, body: models.QueryRequestBatch) -> dict[str, Any]:
        return answer(core.query_batch_points(name, body.searches))

    return app


class QdrantServer:
    """The process, with its collections under a folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"qdrant://127.0.0.1:{self.port}"
        self._arguments = (folder, self.port)
        self.start()

    def start(self, *options: str) -> None:
        """Start it with the collections that it had."""
        self.process = start_program(f"{__name__}:main", *self._arguments, *options)
        wait_until(self._answers, "the engine did not start")

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/"):
            return True
        return False

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def run_qdrant(folder: Path) -> Iterator[QdrantServer]:
    """Run the process until the end of the context."""
    server = QdrantServer(folder)
    try:
        yield server
    finally:
        server.kill()


def holds_the_store(engine: QdrantEngine) -> bool:
    """Whether it has a point of each document, of its last state, and no other."""
    held = engine.on_generation(lambda generation: engine._held(generation.name))
    known = engine.store.log.since(0)
    assert known is not None
    last = dict(zip(known.changed, known.revisions, strict=True))
    return held.keys() == last.keys() and all(held[n] >= at for n, at in last.items())


def main() -> None:
    """Serve FOLDER at PORT; with another argument, it takes no writes."""
    folder, port, *options = sys.argv[1:]
    served = make_app(EdgeClient(Path(folder)), read_only=bool(options))
    uvicorn.run(served, port=int(port), log_level="warning", access_log=False)
