"""A document store whose truth is in PostgreSQL, and which is read from a copy in SQLite.

Every write goes to the database first, and the copy then follows it, as it follows the writes of
other processes. What belongs to words, near-duplicates and alignment is made here of the texts and
block vectors, as a store of SQLite makes it. The copy can be deleted at any time.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import index.store.statements as sql
from encoder.alignment.space import AlignmentSpace
from index.alignment.tables import (
    FittedSpace,
    find_space,
    insert_aligned_blocks,
    insert_space,
    load_space,
)
from index.errors import IndexingError, StorageError
from index.lexical.lexical_index import LexicalIndex
from index.lexical.tables import insert_terms, replace_terms
from index.lexical.terms import count_terms_and_titles
from index.lexical.title_refresh import MAX_DRIFT
from index.near_duplicates.tables import add_texts
from index.postgres.document_store import Check, PostgreSQLDocumentStore
from index.postgres.history import Revision, peek_revision
from index.progress import Progress, SilentProgress
from index.replica.changes import Changes, Position
from index.replica.copied_alignment import CopiedAlignment
from index.replica.whole_rows import ALIGNMENT
from index.sqlite.block_vectors import read_block_vectors
from index.sqlite.connections import SQLiteConnections, vector_id_list
from index.sqlite.task_state import read_state, write_state
from index.store.checksums import write_checksums
from index.store.document_store import SQLiteDocumentStore
from index.store.ports import StoredWords
from index.store.records import Change, DocumentRow, EncodedDocument
from index.store.rows import signed_texts

_STATE = "copy"
_log = logging.getLogger(__name__)
_TEXT = """
SELECT text FROM documents WHERE vector_id = ?"""
_PRESENT = """
SELECT vector_id FROM documents WHERE vector_id IN (SELECT value FROM json_each(?))"""


class CopiedDocumentStore(SQLiteDocumentStore):
    """The local copy of a store in PostgreSQL, and writes to that. Safe to use from many threads.

    Attributes:
        database: the store that is copied.
    """

    def __init__(
        self,
        path: Path,
        database: PostgreSQLDocumentStore,
        *,
        find_families: bool = True,
        space: AlignmentSpace | None = None,
        checkpoints: bool = True,
        make_words: Callable[[SQLiteConnections, Path], StoredWords] = LexicalIndex,
        progress: Progress | None = None,
    ) -> None:
        """Open the copy at `path`, or make it, and bring it to the state of the database.

        Args:
            path: of the file.
            database: the store that is copied; it is closed with this one.
            find_families: as of the store in SQLite.
            space: that blocks are aligned in, for a database that has none yet.
            checkpoints: as of the store in SQLite.
            make_words: as of the store in SQLite.
            progress: of the copying.

        Raises:
            StoreError: the file is damaged or the copy of another history, or the database cannot
                be used.
        """
        super().__init__(
            path,
            fingerprint=database.fingerprint,
            dimension=database.dimension,
            find_families=find_families,
            checkpoints=checkpoints,
            make_words=make_words,
        )
        self.database = database
        self._following = threading.RLock()
        self._problem: IndexingError | None = None
        self._write_failure: StorageError | None = None
        try:
            with self._connections.reading() as connection:
                self._position = read_position(connection)
            self._note_damage(self._position.damaged)
            self.alignment = CopiedAlignment(
                self._connections, path, database.connections, self._follow_to_present
            )
            self._bring_up(progress or SilentProgress())
            if space is not None:
                self.alignment.start_with(space)
        except BaseException:
            super().close()
            raise

    @property
    def revision(self) -> int:
        """How many writes of the database the copy holds."""
        known = self._position.revision
        return 0 if known is None else known.number

    @property
    def problem(self) -> IndexingError | None:
        """Why the copy could not follow the database the last time; None if it could."""
        return self._problem

    @property
    def failure(self) -> StorageError | None:
        """The failure of database or disk that the last write met."""
        return self._write_failure or super().failure

    def put(self, entries: Sequence[EncodedDocument], check: Check | None = None) -> Change:
        """Insert or replace documents, all or none; at return database and copy have them.

        Args:
            entries: the documents.
            check: as of `PostgreSQLDocumentStore.put`.

        Raises:
            ValueError: as of `PostgreSQLDocumentStore.put`.
            StoreError: as there; or they are stored, and the copy could not follow.
        """
        return self._write(lambda: self.database.put(entries, check))

    def delete(self, document_ids: Sequence[str]) -> Change:
        """Delete documents, all or none; at return neither database nor copy have them.

        Raises:
            StoreError: as `put`.
        """
        return self._write(lambda: self.database.delete(document_ids))

    def follow(self) -> bool:
        """Bring the copy to the present state of the database; return whether it had changed.

        Raises:
            StoreError: the copy is of another history; or the database cannot be read, or the copy
                not be written: then a later call makes up for it.
        """
        with self._following:
            try:
                changed = peek_revision(self.database.connections) != self._position.revision
                if changed:
                    self._follow(SilentProgress(), in_steps=False)
            except IndexingError as error:
                self._problem = error
                raise
            if self._problem is not None:  # what kept it from being read kept it from being written
                self._problem = self._write_failure = None
            return changed

    def close(self) -> None:
        """Close copy and connections; every later call raises StoreError."""
        super().close()
        self.database.close()

    def _write(self, write: Callable[[], Change]) -> Change:
        try:
            change = write()
        except StorageError as error:
            self._write_failure = error
            raise
        self._write_failure = None
        self.follow()
        return change

    def _follow_to_present(self) -> int:
        self.follow()
        return self.revision

    def _bring_up(self, progress: Progress) -> None:
        """Follow the database in steps, of which a kill costs one, and finish what follows."""
        with self._following:
            self._follow(progress, in_steps=True)
        if self.changes_since_title_refresh() > MAX_DRIFT * len(self):
            self.refresh_titles(progress)
        self.alignment.refresh(progress, fit=False)

    def _follow(self, progress: Progress, *, in_steps: bool) -> None:
        """Apply all changes since the position, in one transaction unless `in_steps`.

        In steps the copy is of no state of the database until the last one.
        """
        with self.database.connections.reading() as session, ExitStack() as whole:
            changes = Changes(session, self._position)
            writing = self._connections.writing
            alone = None if in_steps else whole.enter_context(writing())

            def transaction() -> AbstractContextManager[sqlite3.Connection]:
                return writing() if alone is None else nullcontext(alone)

            if in_steps and (number := changes.count_added()):
                progress.started("copying the database", number)
                _log.info("copying %d documents of %s", number, self.database.address)
            with transaction() as connection, self._damaged_words():
                _take_space(connection, changes.attachments())
                gone = changes.removed()
                removed = _remove(connection, gone, changes.sequence)
                damaged = self._describe(connection, changes)
                # Now the documents after the last one are all that is missing.
                position = changes.reached(gone, damaged)
                _write_position(connection, position)
            self._note_damage(damaged)
            for rows, damaged in changes.added():
                with transaction() as connection:
                    self._insert(connection, rows)
                    position = position.after([one.vector_id for one in rows], damaged)
                    _write_position(connection, position)
                self._note_damage(damaged)
                progress.advanced(len(rows) + len(damaged))
            with transaction() as connection:
                connection.execute("UPDATE meta SET sequence = ?", (position.sequence,))
        self._position = position
        self.damage.forget(removed)
        self._selections.changed()
        if not in_steps:
            self.lexical.changed()

    def _insert(self, connection: sqlite3.Connection, rows: Sequence[DocumentRow]) -> None:
        """Insert documents with what is made of their texts and block vectors."""
        titles = self.lexical.titles(connection)
        sql.insert_rows(connection, rows)
        counted = [
            (one.vector_id, count_terms_and_titles(one.text, titles, one.title)) for one in rows
        ]
        insert_terms(connection, counted)
        if self.finds_families:
            add_texts(connection, signed_texts(rows, {}))
        self._align(connection, rows)
        self.lexical.remember_titles([one.title for one in rows], len(rows))

    def _align(self, connection: sqlite3.Connection, rows: Sequence[DocumentRow]) -> None:
        stored = find_space(connection)
        if stored is None:
            return
        space = load_space(connection, stored.space_id)
        packed = [
            (one.vector_id, one.offsets, one.block_vectors)
            for one in rows
            if one.offsets is not None
        ]
        blocks = read_block_vectors(packed)
        projected = ((n, space.project(one.vectors)) for n, one in blocks.items())
        insert_aligned_blocks(connection, stored.space_id, projected)

    def _describe(self, connection: sqlite3.Connection, changes: Changes) -> list[int]:
        """Write titles and metadata that changed; return which are damaged in the database."""
        described, damaged = changes.described()
        present = _present(connection, described)
        titles = self.lexical.titles(connection)
        for vector_id in present:
            document = described[vector_id]
            if sql.update_description(connection, vector_id, document):
                (text,) = connection.execute(_TEXT, (vector_id,)).fetchone()
                terms = count_terms_and_titles(text, titles, document.title)
                replace_terms(connection, [(vector_id, terms)])
        write_checksums(connection, present)
        self.lexical.remember_titles([described[one].title for one in present], 0)
        return damaged

    def _note_damage(self, vector_ids: Sequence[int]) -> None:
        if vector_ids:
            self.database.damage.note(vector_ids, "row")


def read_position(connection: sqlite3.Connection) -> Position:
    """Return how far the copy in a database of SQLite has followed, inside a transaction."""
    match read_state(connection, _STATE):
        case [int(number), str(stamp), int(sequence), int(last), list(damaged)]:
            return Position(Revision(number, stamp), sequence, last, tuple(damaged))
        case [None, None, int(sequence), int(last), list(damaged)]:
            return Position(None, sequence, last, tuple(damaged))
    return Position()


def _write_position(connection: sqlite3.Connection, position: Position) -> None:
    known = position.revision
    named = (None, None) if known is None else (known.number, known.stamp)
    value = [*named, position.sequence, position.last, list(position.damaged)]
    write_state(connection, _STATE, value)


def _take_space(connection: sqlite3.Connection, attachments: Mapping[str, bytes]) -> None:
    """Take the alignment space of the database; searches use it once all blocks are in it."""
    if ALIGNMENT in attachments:
        fitted = FittedSpace.unpack(attachments[ALIGNMENT])
        insert_space(connection, fitted, current=find_space(connection) is None)


def _remove(
    connection: sqlite3.Connection, vector_ids: Sequence[int], sequence: int
) -> Sequence[int]:
    removed = _present(connection, vector_ids)
    sql.remove_documents(connection, removed, sequence)
    return removed


def _present(connection: sqlite3.Connection, vector_ids: Iterable[int]) -> list[int]:
    rows = connection.execute(_PRESENT, (vector_id_list(vector_ids),))
    return sorted(row[0] for row in rows)
