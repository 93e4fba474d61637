"""One search as it is handed over, to a search process or to a thread of the server."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from encoder.arrays import Float32
from index.directory.data_directory import DataDirectory
from index.id_set import IdSet
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import EncodedQuery, Examples, SearchAnswer, SearchOptions
from index.search.search import search, select_documents, selects
from index.store.records import StoredDocument
from service.errors import DocumentNotFoundError
from service.metrics import Stage


@dataclass(frozen=True, slots=True)
class Task:
    """What to search for, and how.

    Attributes:
        query: a text, examples, or the id of a stored document.
        options: how.
        pointer: JSON pointer to the id in the body of the request, for the error.
    """

    query: EncodedQuery | Examples | str
    options: SearchOptions
    pointer: str | None = None


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A stored document and its vector Float32[dimension]."""

    document: StoredDocument
    vector: Float32


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        answer: the hits.
        seconds: time of each stage, that of the filter included.
        stored: the document of the id that was given; none without an id.
    """

    answer: SearchAnswer
    seconds: Mapping[Stage, float]
    stored: tuple[FoundDocument, ...] = ()


def perform(
    data: DataDirectory, task: Task, *, fusion: LinearFusion, calibrator: ScoreCalibrator
) -> Outcome:
    """Search.

    Args:
        data: where to search.
        task: what for.
        fusion: how hybrid mode combines the scores of vectors and words.
        calibrator: what a score is worth.
    """
    query, stored = task.query, tuple[FoundDocument, ...]()
    if isinstance(query, str):
        found = _read_stored(data, query, task.pointer)
        stored, text = (found,), found.document.document
        query = EncodedQuery(
            text.text, found.vector, text.title, vector_id=found.document.vector_id
        )
    among: IdSet | None = None
    seconds: dict[Stage, float] = {}
    if selects(task.options):
        started = time.perf_counter()
        among = select_documents(data, task.options)
        seconds["filter"] = time.perf_counter() - started
    answer = search(data, query, task.options, fusion=fusion, calibrator=calibrator, among=among)
    return Outcome(answer, seconds | dict(answer.seconds.items()), stored)


def _read_stored(data: DataDirectory, document_id: str, pointer: str | None) -> FoundDocument:
    stored = data.store.find([document_id]).get(document_id)
    if stored is not None:
        _, vectors = data.store.vectors([stored.vector_id])
        if len(vectors):  # else it was removed in between
            return FoundDocument(stored, vectors[0])
    raise DocumentNotFoundError(document_id, pointer)
