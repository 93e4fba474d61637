"""Records of the store: encoded documents, stored documents, summaries, changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encoder.arrays import Float32, Int64
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


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """What an answer shows of a stored document."""

    id: str
    title: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What an index must do to reach `sequence`.

    Attributes:
        sequence: of the store, after it.
        added: vector ids Int64[N].
        removed: vector ids Int64[M].
        vectors: of the added ones, Float32[N, dimension], where this is the one change between
            the sequence before and this one; otherwise they are to be read from the store.
    """

    sequence: int
    added: Int64
    removed: Int64
    vectors: Float32 | None = None


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document with everything that is stored about it.

    Attributes:
        vector_id: its number.
        sequence: at which its vector was added.
        document_id: its id.
        content_hash: SHA-256 of its text.
        title: its title.
        metadata: canonical JSON.
        text: its text.
        receipt: the fields of the receipt, in their order.
        indexed_at: ISO 8601 in UTC.
        vector: Float32[dimension], little-endian.
        offsets: of its sentence blocks, as stored; None if it has no block vectors.
        block_vectors: as stored; None if it has none.
    """

    vector_id: int
    sequence: int
    document_id: str
    content_hash: bytes
    title: str
    metadata: str
    text: str
    receipt: tuple[int, ...]
    indexed_at: str
    vector: bytes
    offsets: bytes | None = None
    block_vectors: bytes | None = None

    def checked(self) -> tuple[Any, ...]:
        """Return what `checksums_of` takes."""
        return (
            *(self.vector_id, self.document_id, self.title, self.metadata, self.content_hash),
            *(*self.receipt, self.indexed_at, self.vector, self.offsets, self.block_vectors),
        )
