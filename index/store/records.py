"""Records of the store: encoded documents, stored documents, summaries, changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.document import Document
from index.sqlite.block_vectors import BlockVectors


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document to put: its vector Float32[dimension] of unit norm, and what was read of it.

    Without block vectors it can be found too, but is encoded again to explain a match.
    """

    document: Document
    vector: Float32
    receipt: Receipt
    blocks: BlockVectors | None = None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is stored; `indexed_at` is ISO 8601 in UTC."""

    vector_id: int
    document: Document
    receipt: Receipt
    indexed_at: str


BEFORE_ALL = ""  # no document has this id


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """What an answer shows of a stored document."""

    id: str
    title: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedDocument(DocumentSummary):
    """A stored document without its text; `indexed_at` is ISO 8601 in UTC.

    `family` is the number of its family, None where it is in none; `key` what it is ordered by.
    """

    receipt: Receipt
    indexed_at: str
    family: int | None
    key: str | int = ""


@dataclass(frozen=True, slots=True)
class Facet:
    """A field of the metadata: how many documents have it, and its frequent values with theirs."""

    field: str
    documents: int
    values: Sequence[tuple[str | int | float | bool, int]]
