"""The methods for jobs, for collections, for embeddings and for the service itself.

The clients pass the `Caller` of one call; these docstrings are those of their methods.
"""

import base64
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longmatch.decoding import fetch, fetch_field, read_field
from longmatch.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    JobFailedError,
    LongmatchError,
    ResponseError,
    UnavailableError,
)
from longmatch.requests import body_of, segment
from longmatch.results import Embedding, Receipt
from longmatch.retries import Caller
from longmatch.status import (
    CollectionState,
    CollectionSummary,
    FileText,
    Job,
    Model,
    ProblemType,
    Ready,
    Version,
)
from longmatch.steps import Emit, Emitting, FileBody, Request, Sleep, Steps

_ENDED = frozenset({"done", "cancelled", "failed"})
_FIRST_POLL, _LAST_POLL = 0.05, 2.0  # seconds
_JOBS = 100
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Vector:
    embedding: str
    receipt: Receipt


def job(caller: Caller, job_id: str) -> Steps[Job]:
    """Return a job: its state, its progress and its first errors."""
    return fetch(caller, Job, Request(method="GET", path=_job_path(job_id)))


def jobs(caller: Caller) -> Emitting[Job]:
    """Iterate over the jobs, the newest first."""
    before: str | None = None
    while True:
        params = {"limit": _JOBS, "before": before}
        reply = yield from caller.again().ask(Request(method="GET", path="/jobs", params=params))
        page = read_field(list[Job], "jobs", reply)
        for found in page:
            yield Emit(found)
        if len(page) < _JOBS:
            return
        before = page[-1].id


def cancel_job(caller: Caller, job_id: str) -> Steps[Job]:
    """Cancel a job; what it has stored stays.

    Raises:
        ConflictError: it has ended.
    """
    path = f"{_job_path(job_id)}/cancel"
    yield from caller.ask(Request(method="POST", path=path, done_status=409))
    return (yield from job(caller, job_id))


def wait_for_job(
    caller: Caller,
    job_id: str,
    *,
    timeout: float | None = None,
    progress: Callable[[Job], None] | None = None,
) -> Steps[Job]:
    """Wait until a job is done, and return it.

    Args:
        job_id: of the job.
        timeout: seconds to wait at most; by default, any time.
        progress: called with the job each time that it was fetched.

    Raises:
        JobFailedError: it was cancelled or failed.
        DeadlineExceededError: the time is over; the job goes on.
    """
    until = None if timeout is None else time.monotonic() + timeout
    wait = _FIRST_POLL
    while True:
        found = yield from job(caller.again(), job_id)
        if progress is not None:
            progress(found)
        if found.state in _ENDED:
            if found.state != "done":
                raise JobFailedError(found)
            return found
        if until is not None and time.monotonic() + wait > until:
            raise DeadlineExceededError(f"the job {job_id} is {found.state} after {timeout} s")
        yield Sleep(wait)
        wait = min(_LAST_POLL, wait * 1.5)


def version(caller: Caller) -> Steps[Version]:
    """Return the version, the checkpoint and the limits of the service."""
    return fetch(caller, Version, Request(method="GET", path="/version"))


def ready(caller: Caller) -> Steps[Ready]:
    """Return the state of the service if it is ready; asks once.

    Raises:
        UnavailableError: it is not ready.
    """
    return fetch(caller, Ready, Request(method="GET", path="/readyz", retried=False))


def wait_until_ready(caller: Caller, *, timeout: float = 60.0) -> Steps[Ready]:
    """Wait until the service is ready, while it starts for example.

    Args:
        timeout: seconds to wait at most.

    Raises:
        DeadlineExceededError: it is not ready in time; the cause says why.
    """
    until, wait = time.monotonic() + timeout, _FIRST_POLL
    while True:
        failure: LongmatchError
        try:
            return (yield from ready(caller.again()))
        except (UnavailableError, ConnectionFailedError) as error:
            failure = error
        if time.monotonic() + wait > until:
            raise DeadlineExceededError(f"the service is not ready after {timeout} s") from failure
        yield Sleep(wait)
        wait = min(_LAST_POLL, wait * 1.5)


def is_alive(caller: Caller) -> Steps[bool]:
    """Return whether the process answers at all; asks once."""
    try:
        yield from caller.ask(Request(method="GET", path="/livez", retried=False))
    except LongmatchError:
        return False
    return True


def metrics(caller: Caller) -> Steps[str]:
    """Return the metrics of the service, in the text format of Prometheus."""
    reply = yield from caller.ask(Request(method="GET", path="/metrics"))
    return reply.content.decode()


def embed(
    caller: Caller, texts: Sequence[str], *, strict: bool | None = None, model: str = "longmatch"
) -> Steps[list[Embedding]]:
    """Return the document vector of each text: those that are stored when it is indexed.

    Args:
        texts: whole documents; the server limits their number.
        strict: refuse a text that is too long to be read whole.
        model: the name of the checkpoint, to be sure of it; by default, whatever is served.
    """
    body = body_of(input=list(texts), model=model, encoding_format="base64", strict=strict)
    reply = yield from caller.ask(Request(method="POST", path="/v1/embeddings", json=body))
    found = read_field(list[_Vector], "data", reply)
    return [Embedding(_unpacked(vector.embedding), vector.receipt) for vector in found]


def read_file(caller: Caller, path: Path | str, media_type: str) -> Steps[FileText]:
    """Return title and text of a file, such as a PDF or a DOCX, to match or to index it.

    Args:
        path: of the file.
        media_type: of the file, "application/pdf" for example.

    Raises:
        OSError: it cannot be read.
    """
    body = FileBody(Path(path), Path(path).stat().st_size)
    headers = {"Content-Type": media_type, "Content-Length": str(body.size)}
    request = Request(method="POST", path="/text", headers=headers, file=body)
    return fetch(caller, FileText, request)


def models(caller: Caller) -> Steps[list[Model]]:
    """Return the models that give embeddings: the checkpoint."""
    return fetch_field(caller, list[Model], "data", Request(method="GET", path="/v1/models"))


def model(caller: Caller, name: str) -> Steps[Model]:
    """Return the checkpoint, if this is its name or `longmatch`."""
    return fetch(caller, Model, Request(method="GET", path=f"/v1/models/{segment(name)}"))


def problem(caller: Caller, name: str) -> Steps[ProblemType]:
    """Return the meaning of a kind of error.

    Args:
        name: the `type` of an `ApiError`, or its last part.
    """
    path = f"/problems/{segment(name.rpartition('/')[2])}"
    return fetch(caller, ProblemType, Request(method="GET", path=path))


def _job_path(job_id: str) -> str:
    return f"/jobs/{segment(job_id)}"


def collections(caller: Caller) -> Steps[list[CollectionSummary]]:
    """Return the collections that the API key may see, the default one first."""
    request = Request(method="GET", path="/collections")
    return fetch_field(caller, list[CollectionSummary], "collections", request)


def collection_state(caller: Caller, name: str) -> Steps[CollectionState]:
    """Return the state of a collection."""
    return fetch(caller, CollectionState, Request(method="GET", path=_collection_path(name)))


def create_collection(caller: Caller, name: str) -> Steps[CollectionState]:
    """Create an empty collection and return its state; one that exists stays as it is."""
    return fetch(caller, CollectionState, Request(method="PUT", path=_collection_path(name)))


def delete_collection(caller: Caller, name: str) -> Steps[None]:
    """Delete a collection and all that it holds, for good."""
    yield from caller.ask(Request(method="DELETE", path=_collection_path(name), done_status=404))


def _unpacked(text: str) -> list[float]:
    try:
        content = base64.b64decode(text, validate=True)
        return list(struct.unpack(f"<{len(content) // _FLOAT_BYTES}f", content))
    except (ValueError, struct.error) as error:
        raise ResponseError("a vector is not base64 of float32") from error


def _collection_path(name: str) -> str:
    return f"/collections/{segment(name)}"
