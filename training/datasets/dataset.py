"""What is read of a data set: documents, labelled pairs, judgements, queries and splits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from index.corpus.json_lines import parse_document
from index.document import Document
from index.errors import CorpusError, DocumentError

# Shares of the training, validation and test parts.
Shares = tuple[float, float, float]
TENTHS: Shares = (0.8, 0.1, 0.1)


class LabelledIds(NamedTuple):
    """The ids of two documents, and whether they match."""

    source: str
    target: str
    label: bool


@dataclass(frozen=True, slots=True)
class DataSet:
    """The content of a data set.

    Attributes:
        documents: read while the corpus is written, so that it may be larger than the memory.
        pairs: by part, train, valid or test.
        judgements: (query, document, relevance).
        queries: that are no documents.
        parts: of documents, or of queries that are no documents.
        left_out: how much was left out, by reason.
    """

    documents: Iterable[Document]
    pairs: Mapping[str, Sequence[LabelledIds]] = field(default_factory=dict)
    judgements: Iterable[tuple[str, str, int]] = ()
    queries: Sequence[Document] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)


def make_document(
    where: str, name: str, text: str, title: str = "", metadata: Mapping[str, Any] | None = None
) -> Document:
    """Make a document.

    Args:
        where: `file` or `file:line` that it is from.
        name: its id.
        text: not empty.
        title: may be empty.
        metadata: kept in the corpus.

    Raises:
        CorpusError: a field is empty or over its limit; names the place.
    """
    try:
        return Document(id=name, text=text, title=title, metadata=metadata or {})
    except DocumentError as error:
        raise CorpusError(f"{where}: {error}") from error


def read_record(where: str, line: str) -> Document:
    """Read a document from a line of JSON, as `longmatch index` reads it.

    Raises:
        CorpusError: it is none; names the place.
    """
    try:
        return parse_document(line)
    except (CorpusError, DocumentError) as error:
        raise CorpusError(f"{where}: {error}") from error
