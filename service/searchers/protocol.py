"""A search as it is handed over, and what the server and a search process say to each other.

Messages travel as pickles over a `Connection` of `multiprocessing`: only a process that the server
itself has started has the other end, so both may trust what they read.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from multiprocessing.reduction import ForkingPickler
from operator import attrgetter
from pathlib import Path

from encoder.arrays import Float32
from index.directory.data_directory import DataDirectory
from index.directory.follower import WriterState
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies
from index.lexical.scoring import TermWeight
from index.search.calibrate import Scoring
from index.search.rank import search, select_documents, selects
from index.search.records import EncodedQuery, Examples, Hit, SearchAnswer, SearchOptions
from index.store.records import StoredDocument
from index.vectors.vector_index import Precision
from service.errors import DocumentNotFoundError
from service.metrics import Stage


@dataclass(frozen=True, slots=True)
class Task:
    """What to search for: a text, examples, or the id at a JSON pointer of the request."""

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


def perform(data: DataDirectory, task: Task, scoring: Scoring) -> Outcome:
    """Search a data directory."""
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
    answer = search(
        data,
        query,
        task.options,
        fusion=scoring.fusion,
        calibrator=scoring.calibrator,
        among=among,
    )
    return Outcome(answer, seconds | dict(answer.seconds.items()), stored)


def _read_stored(data: DataDirectory, document_id: str, pointer: str | None) -> FoundDocument:
    stored = data.store.find([document_id]).get(document_id)
    if stored is not None:
        _, vectors = data.store.vectors([stored.vector_id])
        if len(vectors):  # else it was removed in between
            return FoundDocument(stored, vectors[0])
    raise DocumentNotFoundError(document_id, pointer)


@dataclass(frozen=True, slots=True)
class Opening:
    """A data directory that a search process opens, with what its scores are made by.

    Attributes:
        number: which messages call it by.
        path: of it.
        fingerprint: of its vectors.
        dimension: of its vectors.
        precision: of its index, as of `open_data_directory`.
        scoring: how its scores are combined and calibrated.
    """

    number: int
    path: Path
    fingerprint: str
    dimension: int
    precision: Precision | None
    scoring: Scoring


@dataclass(frozen=True, slots=True)
class Search:
    """Search a data directory, which is opened first where `opening` says how.

    Attributes:
        number: of the data directory.
        position: what the search must see.
        task: what to do.
        opening: of a data directory that the process does not know.
        frequencies: of the server, if the process needs them.
    """

    number: int
    position: WriterState
    task: Task
    opening: Opening | None = None
    frequencies: Frequencies | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Close a data directory, if it is open."""

    number: int


Message = Opening | Search | Close


@dataclass(frozen=True, slots=True)
class Reply:
    """What a message came to.

    Attributes:
        outcome: of a search; None for other messages, and where the server is to search: it then
            raises the error that the search ended with, if it was that.
        refusal: why the search was not done.
        needs_frequencies: whether the search has to be sent again with those of the server.
    """

    outcome: Outcome | None = None
    refusal: str | None = None
    needs_frequencies: bool = False


# A hundred of these are in an answer, and what dataclasses do by default takes the server as long
# as the rest of a request.
_HIT_FIELDS = attrgetter(*(field.name for field in fields(Hit)))
ForkingPickler.register(TermWeight, lambda weight: (TermWeight, (weight.term, weight.weight)))
ForkingPickler.register(Hit, lambda hit: (Hit, _HIT_FIELDS(hit)))
