"""The document store in a PostgreSQL: documents, their vectors and a change sequence.

It plays the roles of `index.store.ports`, and no other: what SQLite's store has beyond them, words,
near-duplicates and alignment, is not here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import index.postgres.statements as sql
from encoder.arrays import Float32, Int64
from index.errors import StoreError
from index.id_set import IdSet
from index.postgres.address import PostgreSQLAddress
from index.postgres.change_log import PostgreSQLChangeLog, read_log_start
from index.postgres.connections import PostgreSQLConnections, Session
from index.postgres.history import advance_revision
from index.postgres.schema import check_is_ours, create_if_missing
from index.postgres.selection import select
from index.sqlite.block_vectors import BlockVectors, read_block_vectors
from index.store.checksums import (
    Checksums,
    unsound_blocks,
    unsound_documents,
    unsound_summaries,
    unsound_vectors,
)
from index.store.damage import DamageLog
from index.store.filters import Filter
from index.store.records import Change, DocumentSummary, EncodedDocument, StoredDocument
from index.store.rows import check_entries, stored_document, stored_metadata, vector_arrays

_REMEDY = "put it again, or delete it"
_ADDED_SINCE = """
SELECT vector_id FROM {s}.vectors WHERE sequence > %s ORDER BY vector_id"""
_REMOVED_SINCE = """
SELECT vector_id FROM {s}.removals WHERE sequence > %s AND added <= %s ORDER BY vector_id"""

Rows = Sequence[tuple[Any, ...]]
Check = Callable[[Session], None]  # of whether a write is still to be made; it raises if not


class PostgreSQLDocumentStore:
    """Documents and vectors of one checkpoint; all roles of `index.store.ports`.

    Safe to use from many threads, and from many processes at once: writes are made one after
    another, each in one transaction, and every read sees one state.

    Attributes:
        address: of the database and the schema.
        connections: to the database.
        log: which vectors were removed, and since when that is known.
        damage: which documents this process found to be damaged.
    """

    def __init__(
        self,
        address: PostgreSQLAddress,
        *,
        fingerprint: str,
        dimension: int,
        read_only: bool = False,
    ) -> None:
        """Open the store of a schema; create it when it is missing, unless `read_only`.

        Raises:
            FingerprintMismatchError: the vectors in it are of another checkpoint.
            StoreError: the database cannot be used, or there is no store of this format in it.
        """
        self.address = address
        self.fingerprint = fingerprint
        self.dimension = dimension
        self.connections = PostgreSQLConnections(address, read_only=read_only)
        self.log = PostgreSQLChangeLog(self.connections)
        self.damage = DamageLog(self._ids_of, address, _REMEDY)
        try:
            if not read_only:
                create_if_missing(self.connections, fingerprint, dimension)
            check_is_ours(self.connections, fingerprint, dimension)
        except BaseException:
            self.connections.close()
            raise

    def put(self, entries: Sequence[EncodedDocument], check: Check | None = None) -> Change:
        """Insert or replace documents in one transaction that is committed at return.

        A document of unchanged text keeps its vector id and its vector; of it only title and
        metadata are updated. A new text gets a new vector id, and the old one is removed. So does
        the text of a document that was found to be damaged.

        Args:
            entries: the documents.
            check: run in the transaction, before anything is written; what it raises is raised,
                and what it has locked stays so until the commit.

        Raises:
            ValueError: an id twice in one call, or a vector that is not Float32[dimension] of
                unit norm.
            StoreError: the change could not be written. Nothing of it was, unless the connection
                was lost while it was committed: then all or nothing was, and it can be repeated.
        """
        check_entries(entries, self.dimension)
        ids = [entry.document.id for entry in entries]
        with self.connections.writing() as session:
            sequence, last = sql.lock_counters(session)
            if check is not None:
                check(session)
            known = {row[0]: row[1:] for row in session.rows(sql.CONTENT_HASHES, ids)}
            described, changed = {}, []
            for entry in entries:
                vector_id, content_hash = known.get(entry.document.id, (0, b""))
                if content_hash == entry.document.content_hash and vector_id not in self.damage:
                    described[vector_id] = entry.document
                else:
                    changed.append(entry)
            revision = advance_revision(session) if entries else 0
            if described:
                sql.describe(session, described, revision)
            replaced = [known[e.document.id][0] for e in changed if e.document.id in known]
            if changed:
                sequence += 1
                rows = [sql.row_of(e, last + n, sequence) for n, e in enumerate(changed, 1)]
                sql.remove_documents(session, replaced, sequence)
                metadata = zip((row.vector_id for row in rows), changed, strict=True)
                values = {n: e.document.metadata for n, e in metadata}
                sql.insert_rows(session, rows, values, revision)
                sql.set_counters(session, sequence, last + len(changed))
        self.damage.forget(replaced)
        added = np.arange(last + 1, last + 1 + len(changed), dtype=np.int64)
        return Change(sequence, added, _int64(replaced))

    def delete(self, document_ids: Sequence[str]) -> Change:
        """Delete documents in one transaction that is committed at return; ignores unknown ids.

        Raises:
            StoreError: as `put`.
        """
        with self.connections.writing() as session:
            sequence, last = sql.lock_counters(session)
            rows = session.rows(sql.CONTENT_HASHES, sql.possible_ids(document_ids))
            removed = sorted(row[1] for row in rows)
            if removed:
                sequence += 1
                advance_revision(session)
                sql.remove_documents(session, removed, sequence)
                sql.set_counters(session, sequence, last)
        self.damage.forget(removed)
        return Change(sequence, _int64([]), _int64(removed))

    def get(
        self, vector_ids: Sequence[int], *, skip_damaged: bool = False
    ) -> dict[int, DocumentSummary]:
        """Return what an answer shows of these vector ids, without the texts, which are long.

        Removed documents are absent, as damaged ones may be.

        Raises:
            DamagedDocumentError: a document is damaged, and not to be skipped.
            StoreError: the database cannot be read.
        """
        found, checksums = self._read_with_checksums(sql.SUMMARIES, _ids(vector_ids))
        rows: Rows = [(*row[:2], sql.as_text(row[2]), row[3]) for row in found]
        unsound = unsound_summaries(rows, checksums)
        rows = self.damage.without(rows, unsound, "title or metadata", skip=skip_damaged)
        return {
            vector_id: DocumentSummary(
                document_id, title, stored_metadata(self.address, document_id, metadata)
            )
            for vector_id, document_id, title, metadata in rows
        }

    def find(
        self, document_ids: Sequence[str], *, skip_damaged: bool = False
    ) -> dict[str, StoredDocument]:
        """Return the documents of these ids; unknown ones are absent, as damaged ones may be.

        Raises:
            DamagedDocumentError: a document is damaged, and not to be skipped.
            StoreError: the database cannot be read.
        """
        ids = sql.possible_ids(document_ids)
        found, checksums = self._read_with_checksums(sql.DOCUMENTS_BY_ID, ids)
        rows: Rows = [
            (*row[:2], sql.as_text(row[2]), sql.as_text(row[3]), *row[4:]) for row in found
        ]
        unsound = unsound_documents(rows, checksums)
        rows = self.damage.without(rows, unsound, "text or title", skip=skip_damaged)
        return {row[1]: stored_document(self.address, row) for row in rows}

    def content_hashes(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the content hash of each document that is stored, without reading its text.

        Raises:
            StoreError: the database cannot be read.
        """
        with self.connections.reading() as session:
            rows = session.rows(sql.CONTENT_HASHES, sql.possible_ids(document_ids))
        return {document_id: content_hash for document_id, _, content_hash in rows}

    def vectors(
        self, vector_ids: Sequence[int] | Int64, *, skip_damaged: bool = False
    ) -> tuple[Int64, Float32]:
        """Return those of these ids that exist, ascending Int64[N], and Float32[N, dimension].

        Raises:
            DamagedDocumentError: a vector is damaged, and not to be skipped.
            StoreError: the database cannot be read, or a vector without a checksum is damaged.
        """
        rows, checksums = self._read_with_checksums(sql.VECTORS, _ids(vector_ids))
        unsound = unsound_vectors(rows, checksums)
        rows = self.damage.without(rows, unsound, "vector", skip=skip_damaged)
        return vector_arrays(self.address, [(row[0], row[1]) for row in rows], self.dimension)

    def block_vectors(
        self, vector_ids: Sequence[int], *, skip_damaged: bool = False
    ) -> dict[int, BlockVectors]:
        """Return the block vectors of these vector ids; ids that have none are absent.

        Raises:
            DamagedDocumentError: block vectors are damaged, and not to be skipped.
            StoreError: the database cannot be read, or ones without a checksum are damaged.
        """
        rows, checksums = self._read_with_checksums(sql.BLOCKS, _ids(vector_ids))
        unsound = unsound_blocks(rows, checksums)
        rows = self.damage.without(rows, unsound, "block vectors", skip=skip_damaged)
        try:
            return read_block_vectors(rows)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self.address}: block vectors are damaged: {error}") from error

    def changes_since(self, sequence: int) -> Change:
        """Return what an index of `sequence` must do to hold what the store holds now.

        Returns:
            The present sequence; the present vector ids added after `sequence`; the vector ids of
            `sequence` that are gone. Both ascending.

        Raises:
            ValueError: `sequence` is below 0 or ahead of the store.
            StoreError: the database cannot be read, or the changes since `sequence` are forgotten.
        """
        return self.read_changes(sequence, 0)[0]

    def read_changes(self, sequence: int, last: int) -> tuple[Change, Int64, Float32]:
        """Return `changes_since` and, of the same state, the `last` vectors that were added.

        Returns:
            The change; the highest ids of those it added, Int64[N], N <= last; their vectors
            Float32[N, dimension].

        Raises:
            ValueError: `sequence` is below 0 or ahead of the store.
            StoreError: the database cannot be read, a vector in it is damaged, or the changes
                since `sequence` are forgotten.
        """
        with self.connections.reading() as session:
            present = sql.read_sequence(session)
            if not 0 <= sequence <= present:
                raise ValueError(f"sequence {sequence} is not between 0 and the store's {present}")
            if 0 < sequence < read_log_start(session):
                raise StoreError(f"{self.address}: the changes since {sequence} are forgotten")
            added = _int64(session.rows(_ADDED_SINCE, sequence))
            removed = _int64(session.rows(_REMOVED_SINCE, sequence, sequence))
            wanted = _ids(added[max(0, len(added) - last) :])
            rows = session.rows(sql.VECTORS, wanted) if wanted else []
        ids, vectors = vector_arrays(
            self.address, [(row[0], row[1]) for row in rows], self.dimension
        )
        return Change(present, added, removed), ids, vectors

    def select(self, where: Filter | None, without: Sequence[str] = ()) -> IdSet:
        """Return the vectors of the documents for which a filter now holds.

        Args:
            where: the filter; None holds for every document.
            without: ids of documents to exclude; unknown ones are ignored.

        Raises:
            StoreError: the database cannot be read.
        """
        with self.connections.reading() as session:
            return select(session, where, without)

    @property
    def sequence(self) -> int:
        """How often the set of vectors has changed; 0 in a new store."""
        with self.connections.reading() as session:
            return sql.read_sequence(session)

    def __len__(self) -> int:
        with self.connections.reading() as session:
            return int(session.value("SELECT count(*) FROM {s}.documents"))

    def close(self) -> None:
        """Close the connections; every later call raises StoreError."""
        self.connections.close()

    def _read_with_checksums(
        self, statement: str, ids: Sequence[Any]
    ) -> tuple[Rows, Mapping[int, Checksums]]:
        """Return rows that begin with a vector id, and their checksums."""
        with self.connections.reading() as session:
            rows = session.rows(statement, ids)
            return rows, sql.read_checksums(session, (row[0] for row in rows))

    def _ids_of(self, vector_ids: Sequence[int]) -> dict[int, str]:
        with self.connections.reading() as session:
            return {row[0]: row[1] for row in session.rows(sql.SUMMARIES, _ids(vector_ids))}


def _ids(vector_ids: Sequence[int] | Int64) -> list[int]:
    return [int(one) for one in vector_ids]


def _int64(values: Sequence[Any]) -> Int64:
    return np.array(values, dtype=np.int64).reshape(-1)
