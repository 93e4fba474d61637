"""The methods that store, read, list, export and delete documents, and feedback on matches.

The clients pass the `Caller` of one call; these docstrings are those of their methods.
"""

import gzip
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TypeVar, cast

from longmatch.decoding import (
    fetch,
    fetch_field,
    read_json,
    read_pages,
    read_part,
    read_reply,
    read_value,
)
from longmatch.errors import ConnectionFailedError
from longmatch.requests import (
    Document,
    Query,
    body_of,
    document_body,
    document_path,
    query_body,
    segment,
)
from longmatch.results import Feedback, IndexResult, Member, Pair, StoredDocument
from longmatch.retries import Caller
from longmatch.status import DocumentMap, Facet, Upload
from longmatch.steps import Emit, Emitting, FileBody, Request, Steps, Work

T = TypeVar("T")

KEY_HEADER = "Idempotency-Key"

_NDJSON = "application/x-ndjson"
_GZIP_LEVEL = 3  # of 9: higher ones cost much time for texts, and save little

Progress = Callable[[int, int], None]


def index(
    caller: Caller,
    documents: Iterable[Document],
    *,
    strict: bool | None = None,
    idempotency_key: str | None = None,
) -> Steps[IndexResult]:
    """Store documents, all or none; at return they are durable and the next match finds them.

    Args:
        documents: the server limits their number; see `upload` for more.
        strict: refuse a text that is too long to be read whole.
        idempotency_key: unique to this request; by default, a new one. With the same one, the same
            request is done once within 24 hours, also by another process.
    """
    body = body_of(documents=[document_body(given) for given in documents], strict=strict)
    headers = {KEY_HEADER: idempotency_key or uuid.uuid4().hex}
    return fetch(
        caller, IndexResult, Request(method="POST", path="/index", json=body, headers=headers)
    )


def upload(
    caller: Caller,
    source: Path | str | Iterable[Document],
    *,
    compress: bool = True,
    progress: Progress | None = None,
    idempotency_key: str | None = None,
) -> Steps[Upload]:
    """Send any number of documents; they are durable at return, and indexed in the background.

    It takes as long as bytes move. The bytes are in a file, so that they can be sent again when the
    connection breaks: documents are first written to a temporary one.

    Args:
        source: a path of JSON Lines, compressed if it ends in .gz, or documents. With
            `AsyncClient`, documents are iterated in another thread.
        compress: send it as gzip.
        progress: called with the bytes sent and all bytes; from 0 again if they are sent again.
        idempotency_key: unique to this upload; by default, a new one. With the same one, the same
            upload becomes one job within 24 hours, also by another process.

    Raises:
        OSError: the file cannot be read.
    """
    with ExitStack() as files:
        opened = partial(_open_upload, source, files, compress=compress, progress=progress)
        body, headers = yield Work(opened)
        headers = {**headers, KEY_HEADER: idempotency_key or uuid.uuid4().hex}
        reply = yield from caller.unlimited().ask(
            Request(method="POST", path="/index", file=body, headers=headers)
        )
    return read_reply(Upload, reply)


def document(caller: Caller, document_id: str, *, text: bool = False) -> Steps[StoredDocument]:
    """Return a stored document.

    Args:
        document_id: of the document.
        text: with its text.
    """
    params = {"text": "true"} if text else {}
    request = Request(method="GET", path=document_path(document_id), params=params)
    return fetch(caller, StoredDocument, request)


def delete(caller: Caller, document_id: str) -> Steps[None]:
    """Delete a stored document for good."""
    path = document_path(document_id)
    yield from caller.ask(Request(method="DELETE", path=path, done_status=404))


def documents(caller: Caller, *, page_size: int | None = None) -> Emitting[StoredDocument]:
    """Iterate over the stored documents in the order of their ids, without their texts."""
    return read_pages(caller, "/documents", page_size, "documents", StoredDocument)


def family(caller: Caller, document_id: str, *, page_size: int | None = None) -> Emitting[Member]:
    """Iterate over the copies and versions of a stored document, itself included.

    Args:
        document_id: of the document.
    """
    path = document_path(document_id, "/family")
    return read_pages(caller, path, page_size, "documents", Member)


def facets(caller: Caller, *, where: Mapping[str, object] | None = None) -> Steps[list[Facet]]:
    """Return how many documents have each of the frequent values of each field of the metadata.

    Args:
        where: count only those for which this filter holds, as of a search.
    """
    params = {} if where is None else {"filter": json.dumps(where)}
    request = Request(method="GET", path="/facets", params=params)
    return fetch_field(caller, list[Facet], "facets", request)


def map(caller: Caller, *, field: str | None = None) -> Steps[DocumentMap]:
    """Return a point for each document, near those that resemble it.

    It is made in the background: ask again until its `progress` is None.

    Args:
        field: of the metadata, whose values are returned, too; one of its `fields`.
    """
    params = {} if field is None else {"field": field}
    return fetch(caller, DocumentMap, Request(method="GET", path="/map", params=params))


def export(caller: Caller) -> Emitting[Document]:
    """Iterate over all documents with their texts, as they arrive in one streamed answer.

    A connection that breaks before the end raises an error; what has arrived has been iterated.
    """
    request = Request(method="GET", path="/documents", headers={"Accept": _NDJSON}, streamed=True)
    yield from _lines(caller, request, Document)


def pairs(
    caller: Caller,
    *,
    min_score: float | None = None,
    min_vector_score: float | None = None,
    min_probability: float | None = None,
    max_false_positive_rate: float | None = None,
    collapse: bool = False,
) -> Emitting[Pair]:
    """Iterate over every pair of similar documents once, as they arrive; give at least one bound.

    Args:
        min_score: give no pair whose score is under this.
        min_vector_score: give no pair whose document vectors have a cosine under this.
        min_probability: give no pair under this probability.
        max_false_positive_rate: give no pair that more random pairs of the corpus reach.
        collapse: compare one document of each family of copies and versions.

    Raises:
        InvalidRequestError: there is no bound, or one that needs a calibration has none.
    """
    params = {
        "min_score": min_score,
        "min_vector_score": min_vector_score,
        "min_probability": min_probability,
        "max_false_positive_rate": max_false_positive_rate,
        "collapse": "families" if collapse else None,
    }
    request = Request(method="GET", path="/pairs", params=params, streamed=True)
    yield from _lines(caller, request, Pair)


def give_feedback(caller: Caller, query: Query, match_id: str, grade: int) -> Steps[Feedback]:
    """Say whether a document is relevant to a query; replaces what was said of both before.

    Args:
        query: as in `match`.
        match_id: of the stored document that was the answer.
        grade: 0 for not relevant, 1 for relevant, up to 3 for more so.

    Raises:
        ConflictError: the server keeps no more feedback.
    """
    body = {"query": query_body(query), "match": match_id, "grade": grade}
    return fetch(caller, Feedback, Request(method="POST", path="/feedback", json=body))


def feedback(caller: Caller, *, page_size: int | None = None) -> Emitting[Feedback]:
    """Iterate over the feedback in the order of ids, without the texts of queries."""
    return read_pages(caller, "/feedback", page_size, "feedback", Feedback)


def delete_feedback(caller: Caller, feedback_id: str) -> Steps[None]:
    """Delete a verdict.

    Args:
        feedback_id: its `id`.
    """
    path = f"/feedback/{segment(feedback_id)}"
    yield from caller.ask(Request(method="DELETE", path=path, done_status=404))


def _lines(caller: Caller, request: Request, kind: type[T]) -> Emitting[T]:
    reply = yield from caller.ask(request)
    rest = b""
    while (chunk := (yield from read_part(reply))) is not None:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield Emit(read_value(kind, read_json(line)))
    if rest:
        raise ConnectionFailedError("the answer ended within a line")


def _open_upload(
    source: Path | str | Iterable[Document],
    files: ExitStack,
    *,
    compress: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[FileBody, dict[str, str]]:
    """Return the body of an upload and its headers.

    Args:
        source: a path, or documents, which are written to a temporary file.
        files: closes the temporary file.
        compress: as gzip, what is not compressed yet.
        progress: see `FileBody`.

    Raises:
        OSError: the file cannot be read, or the temporary one cannot be written.
    """
    headers = {"Content-Type": _NDJSON}
    compressed = isinstance(source, Path | str) and Path(source).suffix == ".gz"
    if compress or compressed:
        headers["Content-Encoding"] = "gzip"
    if isinstance(source, Path | str) and (compressed or not compress):
        path = Path(source)
        body = FileBody(path, path.stat().st_size, progress)
    else:
        file = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is entered
        _write(source, file, compress=compress)
        body = FileBody(file, file.tell(), progress)
    headers["Content-Length"] = str(body.size)
    return body, headers


def _write(source: Path | str | Iterable[Document], file: IO[bytes], *, compress: bool) -> None:
    if not compress:
        _copy(source, file)
        return
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as packed:
        _copy(source, cast(IO[bytes], packed))


def _copy(source: Path | str | Iterable[Document], file: IO[bytes]) -> None:
    if isinstance(source, Path | str):
        with Path(source).open("rb") as opened:
            shutil.copyfileobj(opened, file)
        return
    for document in source:
        line = json.dumps(document_body(document), ensure_ascii=False)
        # What is no character is an error of this line, which the job reports.
        file.write(line.encode(errors="surrogatepass") + b"\n")
