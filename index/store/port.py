"""The port of the document store: the truth, which everything that is searched follows."""

from collections.abc import Sequence
from typing import Protocol

from encoder.arrays import Float32, Int64
from index.errors import StorageError
from index.id_set import IdSet
from index.sqlite.block_vectors import BlockVectors
from index.sqlite.connections import Space
from index.store.change_log import ChangeLog
from index.store.filters import Filter
from index.store.listing import DocumentPages
from index.store.records import Change, DocumentSummary, EncodedDocument, StoredDocument


class DocumentStore(Protocol):
    """Documents and vectors of one checkpoint. Safe to use from many threads.

    Every call raises StoreError where the documents cannot be read or written; what has failed can
    be called again. What changes a document, be it only its title, advances the sequence.
    """

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the checkpoint that made the vectors."""
        ...

    @property
    def dimension(self) -> int:
        """The dimension of the document vectors."""
        ...

    @property
    def sequence(self) -> int:
        """How often the store has changed; 0 in a new one."""
        ...

    @property
    def failure(self) -> StorageError | None:
        """The failure of the disk that opening the store or the last write met."""
        ...

    @property
    def log(self) -> ChangeLog:
        """Which vectors were removed, and since when that is known."""
        ...

    @property
    def pages(self) -> DocumentPages:
        """The documents in the order of their ids."""
        ...

    def put(self, entries: Sequence[EncodedDocument]) -> Change:
        """Insert or replace documents, durable at return; all of them or none."""
        ...

    def delete(self, document_ids: Sequence[str]) -> Change:
        """Delete documents, durable at return; unknown ids are ignored."""
        ...

    def get(self, vector_ids: Sequence[int]) -> dict[int, DocumentSummary]:
        """Return what an answer shows of these vector ids; removed ones are absent."""
        ...

    def find(self, document_ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of these ids; unknown ones are absent."""
        ...

    def content_hashes(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the content hash of each document that is stored, without reading its text."""
        ...

    def vectors(self, vector_ids: Sequence[int] | Int64) -> tuple[Int64, Float32]:
        """Return those of these ids that exist, ascending Int64[N], and Float32[N, dimension]."""
        ...

    def block_vectors(self, vector_ids: Sequence[int]) -> dict[int, BlockVectors]:
        """Return the block vectors of these vector ids; ids that have none are absent."""
        ...

    def changes_since(self, sequence: int) -> Change:
        """Return what an index of `sequence` must do to hold what the store holds now."""
        ...

    def read_changes(self, sequence: int, last: int) -> tuple[Change, Int64, Float32]:
        """Return `changes_since` and, of the same state, the `last` vectors that were added."""
        ...

    def select(self, where: Filter | None, without: Sequence[str] = ()) -> IdSet:
        """Return the vectors of the documents for which a filter now holds, without some."""
        ...

    def reclaim(self, pages: int) -> Space:
        """Return free pages to the file system."""
        ...

    def close(self) -> None:
        """Close the store; every later call raises StoreError."""
        ...

    def __len__(self) -> int: ...
