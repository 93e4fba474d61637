"""Longmatch in this process: a data directory that is opened, filled and searched without a server.

It is the service itself, called without a network, so its numbers are those of a server.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from longmatch.client import Client
from longmatch.errors import NotFoundError
from longmatch.requests import Document, Mode, Query, Stored, Text
from longmatch.results import Comparison, Match, Matches, StoredDocument
from longmatch.search import MatchOptions
from longmatch.status import Job

if TYPE_CHECKING:
    from fastapi import FastAPI

    from index.build import BuildReport

DEFAULT_DATA = "longmatch-data"
_ALIGNMENT_BUDGET_MS = 60_000.0  # nobody else waits for this process


def open(
    data: str | PathLike[str] = DEFAULT_DATA,
    *,
    encoder: str | None = None,
    collection: str | None = None,
    **settings: Any,
) -> "Library":
    """Open a data directory, which is created if it is missing; one process at a time may have it.

    Args:
        data: the directory.
        encoder: "best", "fast", a folder, a sentence model or the URL of a server of embeddings; by
            default that of the directory, "best" for a new one.
        collection: of the directory, which must exist; by default, its default one.
        settings: others, as `longmatch settings` names them, in lower case.

    Raises:
        ImportError: only the client is installed.
        Exception: the directory is in use, of another encoder, or damaged; the message says which.
    """
    try:
        from service.settings import Settings
        from service.startup import open_engine
    except ImportError as error:
        raise ImportError(
            f"longmatch.open needs the package longmatch itself: {error.name} is missing "
            "(is there another module of this name where Python looks first?)"
        ) from error
    aligned = {"alignment_budget_ms": _ALIGNMENT_BUDGET_MS}
    given = {"data": Path(data), "encoder": encoder, **aligned, **settings}
    chosen = Settings(**{name: value for name, value in given.items() if value is not None})
    return Library(open_engine(chosen), collection)


class Library:
    """An open data directory. Threads may share it.

        with longmatch.open("data") as db:
            db.index("papers")
            for match in db.match("The whole text of a document").matches:
                print(match.title, match.probability)

    Attributes:
        client: of the service in this process, for everything else that a client can do.
    """

    client: Client

    def __init__(self, engine: Any, collection: str | None = None) -> None:
        """Take an open engine of `service`; use `longmatch.open`."""
        from service.app import create_app

        self._engine = engine
        self._transport = _InProcess(create_app(engine.settings, engine, takes_keys=False))
        client = Client("http://localhost", timeout=None, transport=self._transport)
        self.client = client.in_collection(collection)
        self._collection = collection or "default"
        try:
            engine.collections.find(self._collection)
        except Exception:
            self.close()
            raise

    def index(
        self,
        documents: str | PathLike[str] | Iterable[Document],
        *,
        prune: bool = False,
        progress: bool = False,
    ) -> "BuildReport | Job":
        """Add documents; what is stored already is not encoded again.

        Args:
            documents: a folder of files, one file, JSON Lines or Parquet, or the documents.
            prune: remove the documents whose files in the folder are gone.
            progress: show it.

        Returns:
            What was encoded, unchanged and skipped, of documents the job that stored them.
        """
        if isinstance(documents, str | PathLike):
            return self._engine_index(Path(documents), prune=prune, progress=progress)
        job = self.client.upload(documents, compress=False)
        return self.client.wait_for_job(job.id)

    def match(
        self,
        text: str | Text | None = None,
        *,
        id: str | None = None,
        top_k: int = 10,
        mode: Mode = "hybrid",
        filter: Mapping[str, Any] | None = None,
        exclude: Sequence[str] = (),
        collapse: bool = False,
    ) -> Matches:
        """Find the documents that match a text, or the stored document `id`, and say why.

        Args:
            text: the whole text, or a `Text` with its title.
            id: of a stored document, instead of a text.
            top_k: how many matches.
            mode: by what documents are found and ranked.
            filter: a condition on the metadata, as JSON.
            exclude: ids of documents not to return.
            collapse: return one match of each family of copies and versions.
        """
        if (text is None) == (id is None):
            raise ValueError("match takes a text or the id of a stored document")
        query: Query = Stored(id) if id is not None else text  # type: ignore[assignment]
        options = MatchOptions(
            top_k=top_k, mode=mode, filter=filter, exclude=exclude, collapse=collapse, explain=True
        )
        return self.client.match(query, options)

    def compare(self, left: Query | Match, right: Query | Match) -> Comparison:
        """Say how two texts, stored documents (`Stored(id)`) or matches match, where, and what
        each has that the other lacks.
        """
        sides = (Stored(side.id) if isinstance(side, Match) else side for side in (left, right))
        return self.client.compare(*sides, differences=True)

    def get(self, document_id: str) -> StoredDocument | None:
        """Return a stored document with its text; None if there is none."""
        try:
            return self.client.document(document_id, text=True)
        except NotFoundError:
            return None

    def delete(self, document_ids: str | Iterable[str]) -> None:
        """Delete stored documents for good; unknown ids are ignored."""
        for name in [document_ids] if isinstance(document_ids, str) else document_ids:
            with suppress(NotFoundError):
                self.client.delete(name)

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._engine.collections.find(self._collection).data.store)

    def close(self) -> None:
        """Close the directory."""
        self.client.close()
        self._engine.opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _engine_index(self, corpus: Path, *, prune: bool, progress: bool) -> "BuildReport":
        from index.build import build_index, encode_here
        from index.progress import SilentProgress
        from service.cli.options import console
        from service.cli.progress import show_progress

        collection = self._engine.collections.find(self._collection)
        encoder = encode_here(self._engine.encoder)

        def build() -> "BuildReport":
            shown = show_progress(console) if progress else nullcontext(SilentProgress())
            with shown as meter:
                report = build_index(corpus, collection.data, encoder, meter, prune=prune)
                collection.scoring.measure(meter)
            return report

        # The thread that writes: the index sees all changes in the order of the store.
        report: BuildReport = collection.writer.submit(build).result()
        return report


class _InProcess(httpx.BaseTransport):
    """Calls an application in this process, on an event loop in a thread of its own."""

    def __init__(self, app: "FastAPI") -> None:
        self._app = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the whole answer to a request."""
        return asyncio.run_coroutine_threadsafe(
            self._call(request, request.read()), self._loop
        ).result()

    async def _call(self, request: httpx.Request, content: bytes) -> httpx.Response:
        sent = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        answer = await self._app.handle_async_request(sent)
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=await answer.aread()
        )

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
