"""The document store, in SQLite or PostgreSQL: documents, their vectors and a change sequence."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import index.store.rows as sql
from encoder.alignment.space import AlignmentSpace
from encoder.arrays import Float32, Int64
from encoder.blocks import Receipt
from encoder.checkpoint import VectorSpace
from index.alignment.alignment_index import AlignmentIndex, ProjectedBlocks
from index.common_text.collection import CommonTexts
from index.document import Document
from index.errors import StoreError
from index.followers import Follower, follow_all
from index.id_set import IdSet
from index.lexical.hashed_words import HashedWords
from index.lexical.lexical_index import LexicalIndex
from index.near_duplicates.families import FOLLOWING_FAMILIES, Families
from index.progress import Progress, SilentProgress
from index.sqlite.block_vectors import BLOCKS_BY_VECTOR_ID, BlockVectors, read_block_vectors
from index.sqlite.connections import document_id_list, vector_id_list
from index.store.change_log import ChangeLog, Changes, read_changes
from index.store.filters import Filter, Scalar, Selections
from index.store.records import (
    DocumentSummary,
    EncodedDocument,
    Facet,
    ListedDocument,
    StoredDocument,
)
from index.store.rows import (
    check_entries,
    stored_document,
    stored_metadata,
    vector_arrays,
)
from index.store.schema import open_tables, open_truth

MAX_FACETS, MAX_FACET_VALUES = 12, 20  # fields, and the most frequent values of each

_log = logging.getLogger(__name__)


class DocumentStore:
    """Documents and vectors of one checkpoint.

    Safe to use from many threads. Every call raises StoreError where the file cannot be read or
    written; what has failed can be called again. What returns metadata raises DamagedDocumentError
    where that of a document is no JSON any more. The sequence counts the changes of documents, and
    those of what texts have in common: a put that changes nothing, and a delete of unknown ids,
    leave it as it is.

    Attributes:
        connections: to its database.
        words: of every document; a follower, unless it is searched elsewhere.
        alignment: the aligned blocks of every document; so are they.
        families: which documents are near-duplicates, a follower.
        searched_elsewhere: whether an engine holds words and blocks.
        followers: what is derived in files of its own; up to date when a call returns.
        common_text: what many of its documents share, which counts for none of these.
        finds_families: whether near-duplicates of documents that are put are looked for.
        log: which vectors were removed, and since when that is known.
    """

    def __init__(  # noqa: PLR0913  its parameters are options
        self,
        path: Path,
        *,
        fingerprint: str | None = None,
        dimension: int = 0,
        read_only: bool = False,
        find_families: bool = True,
        space: AlignmentSpace | None = None,
        database: str | None = None,
        searched_elsewhere: bool = False,
    ) -> None:
        """Open the store at `path`; create it when it is missing, unless `read_only`.

        Without `fingerprint` and `dimension` its vectors are those of any checkpoint, and it must
        exist. With the URL of a PostgreSQL as `database`, the store is in that, and what follows it
        is next to `path`.

        Without `find_families` near-duplicates of documents that are put are not looked for. A
        store without an alignment space gets `space`, if it is given. With `searched_elsewhere` an
        engine holds words and blocks, and none are derived here.

        Raises:
            FingerprintMismatchError: the vectors in it are of another checkpoint.
            StoreError: the file is missing, damaged, not a store, or of another format.
        """
        self.path = path
        wanted = None if fingerprint is None else VectorSpace(fingerprint, dimension)
        self.connections, found = open_truth(path, database, wanted, read_only=read_only)
        self.fingerprint, self.dimension = found.fingerprint, found.dimension
        self.name = self.connections.name
        self.common_text = CommonTexts(self.connections)
        truth = (self.connections, path, self.common_text)
        self.families = Families(
            *truth,
            find=find_families,
            read_only=read_only,
            shared=None
            if database is None
            else open_tables(path, database, FOLLOWING_FAMILIES, read_only=read_only),
        )
        self.searched_elsewhere = searched_elsewhere
        self.words: LexicalIndex | HashedWords
        self.alignment: AlignmentIndex | ProjectedBlocks
        if searched_elsewhere:
            self.words = HashedWords(self.connections, self.common_text)
            self.alignment = ProjectedBlocks(self.connections, self.common_text)
        else:
            self.words = LexicalIndex(*truth, read_only=read_only)
            self.alignment = AlignmentIndex(*truth, read_only=read_only)
        derived = self.words, self.families, self.alignment
        self.followers: Sequence[Follower] = [f for f in derived if isinstance(f, Follower)]
        self.finds_families = find_families
        self.log = ChangeLog(self.connections)
        self._selections = Selections(self.connections)
        try:
            if not read_only:
                if space is not None:
                    self.alignment.start_with(space)
                follow_all(self.followers)
        except BaseException:
            self.connections.close()
            raise

    @property
    def lexical(self) -> LexicalIndex:
        """The words that this process searches, where the store is not searched elsewhere."""
        return cast(LexicalIndex, self.words)

    @property
    def counts_words(self) -> bool:
        """Whether the words are still being counted."""
        return isinstance(self.words, LexicalIndex) and self.words.counting

    def put(self, entries: Sequence[EncodedDocument]) -> Changes:
        """Insert or replace documents in one transaction that is durable at return.

        A document of unchanged text keeps its vector id and its vector; of it only title and
        metadata are updated. A new text gets a new vector id, and the old one is removed.

        Raises:
            ValueError: an id twice in one call, or a vector that is not Float32[dimension] of
                unit norm.
            StoreError: the change could not be written; nothing of it was.
        """
        check_entries(entries, self.dimension)
        ids = document_id_list(entry.document.id for entry in entries)
        hashes = {e.document.id: e.document.content_hash for e in entries}
        self.alignment.require_width(e.blocks.vectors for e in entries if e.blocks is not None)
        with self.connections.writing() as connection:
            known = {row[0]: row[1:3] for row in connection.execute(sql.STATES, (ids,))}
            same = {name for name, (_, stored) in known.items() if stored == hashes[name]}
            changed = [e for e in entries if e.document.id not in same]
            described = [e.document for e in entries if e.document.id in same]
            revised = [
                known[document.id][0]
                for document in described
                if sql.update_description(connection, known[document.id][0], document)
            ]
            advance = changed or revised
            sequence = (sql.advance_sequence if advance else sql.read_sequence)(connection)
            sql.revise(connection, revised, sequence)
            replaced = [known[e.document.id][0] for e in changed if e.document.id in known]
            sql.remove_documents(connection, replaced, sequence)
            added = sql.next_vector_ids(connection, len(changed))
            sql.insert_documents(connection, changed, hashes, added, sequence)
        changes = Changes(sequence, sorted([*revised, *added]), replaced)
        if advance:
            follow_all(self.followers, changes)
        if self._follow_common_text():
            changes = replace(changes, sequence=self.sequence)
        return changes

    def delete(self, document_ids: Sequence[str]) -> Changes:
        """Delete documents in one transaction that is durable at return; unknown ids are ignored.

        Raises:
            StoreError: the change could not be written; nothing of it was.
        """
        ids = document_id_list(document_ids)
        with self.connections.writing() as connection:
            removed = [row[1] for row in connection.execute(sql.STATES, (ids,))]
            sequence = (sql.advance_sequence if removed else sql.read_sequence)(connection)
            sql.remove_documents(connection, removed, sequence)
        changes = Changes(sequence, [], removed)
        if removed:
            follow_all(self.followers, changes)
        return changes

    def get(self, vector_ids: Sequence[int]) -> dict[int, DocumentSummary]:
        """Return what an answer shows of these vector ids, without the texts, which are long.

        Removed documents are absent.
        """
        rows = self.connections.read_rows(sql.SUMMARIES, vector_id_list(vector_ids))
        return {
            vector_id: DocumentSummary(
                document_id, title, stored_metadata(self.name, document_id, metadata)
            )
            for vector_id, document_id, title, metadata in rows
        }

    def find(self, document_ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of these ids; unknown ones are absent."""
        rows = self.connections.read_rows(sql.DOCUMENTS_BY_ID, document_id_list(document_ids))
        return {row[1]: stored_document(self.name, row) for row in rows}

    def known(
        self, documents: Sequence[Document], ids: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, EncodedDocument]:
        """Return, by their ids, documents whose text is stored, with what is stored of the text.

        Args:
            documents: titles and metadata may be others than the stored ones.
            ids: that texts are stored under, of documents that have another id.
        """
        stored = self.find([ids.get(document.id, document.id) for document in documents])
        same = {
            document.id: (document, found)
            for document in documents
            if (found := stored.get(ids.get(document.id, document.id)))
            and found.document.text == document.text
        }
        vector_ids, rows = self.vectors([found.vector_id for _, found in same.values()])
        vectors = dict(zip(vector_ids.tolist(), rows, strict=True))
        blocks = self.block_vectors(vector_ids.tolist())
        return {
            name: EncodedDocument(
                document, vectors[found.vector_id], found.receipt, blocks.get(found.vector_id)
            )
            for name, (document, found) in same.items()
            if found.vector_id in vectors  # it may have been deleted since
        }

    def listed(
        self,
        after: str,
        limit: int,
        *,
        order: str = "id",
        key: str | int | None = None,
        among: IdSet | None = None,
    ) -> list[ListedDocument]:
        """Return up to `limit` documents after one, which need not be stored; reads no text.

        Pages are cut by what documents are ordered by, not by number: one that stays as it is, is
        on exactly one of them, whatever is inserted, replaced or deleted between two pages.

        Args:
            after: the id of that one.
            limit: at least 1.
            order: one of `ORDERS`, with a minus before it for the last ones first.
            key: of that one; None for the first page.
            among: these documents alone.
        """
        statement, values = sql.listed(after, key, order, among)
        rows = self.connections.read_rows(statement, *values, limit)
        families = self.families.of(row[1] for row in rows)
        return [
            ListedDocument(
                id=document_id,
                title=title,
                metadata=stored_metadata(self.name, document_id, metadata),
                receipt=Receipt(*receipt),
                indexed_at=indexed_at,
                family=families.get(vector_id),
                key=place,
            )
            for place, vector_id, document_id, title, metadata, *receipt, indexed_at in rows
        ]

    def facets(self, among: IdSet | None = None) -> list[Facet]:
        """Return the fields of the metadata of all documents, or of some, the commonest first.

        Every element of a list counts. A field whose values all differ tells nothing.
        """
        having, counted = Counter[str](), defaultdict[str, Counter[tuple[type, Scalar]]](Counter)
        with self.connections.reading() as connection:
            for vector_id, document_id, metadata in connection.execute(sql.METADATA):
                if among is not None and not among.has(vector_id):
                    continue
                for name, value in stored_metadata(self.name, document_id, metadata).items():
                    every = value if isinstance(value, list) else [value]
                    distinct = {(type(item), item) for item in every if isinstance(item, Scalar)}
                    having[name] += bool(distinct)
                    counted[name].update(distinct)
        telling = [
            name
            for name, _ in having.most_common()
            if counted[name] and not len(counted[name]) == counted[name].total() > 1
        ]
        return [
            Facet(
                name,
                having[name],
                [(value, n) for (_, value), n in counted[name].most_common(MAX_FACET_VALUES)],
            )
            for name in telling[:MAX_FACETS]
        ]

    def whole(self, after: str, characters: int) -> list[Document]:
        """Return documents after an id until they have so many characters together.

        At least one, if there is one: memory is bounded by `characters` and the longest documents.
        """
        documents = []
        with self.connections.reading() as connection:
            rows: list[tuple[Any, ...]] = []
            while characters > 0:
                rows = rows or connection.execute(sql.WHOLE, (after,)).fetchall()[::-1]
                if not rows:
                    break
                row = rows.pop()
                documents.append(stored_document(self.name, row).document)
                characters, after = characters - len(row[2]) - len(row[4]), row[1]
        return documents

    def content_hashes(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the content hash of each document that is stored, without reading its text."""
        return {name: content_hash for name, (content_hash, _) in self.states(document_ids).items()}

    def states(self, document_ids: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        """Return the content hash of each document that is stored, and a number that another title,
        other metadata or another document under its id change.
        """
        rows = self.connections.read_rows(sql.STATES, document_id_list(document_ids))
        return {name: (content_hash, checksum) for name, _, content_hash, checksum in rows}

    def vectors(self, vector_ids: Sequence[int] | Int64) -> tuple[Int64, Float32]:
        """Return those of these ids that exist, ascending Int64[N], and Float32[N, dimension]."""
        rows = self.connections.read_rows(sql.VECTORS, vector_id_list(vector_ids))
        return vector_arrays(self.name, rows, self.dimension)

    def compared(self, vector_ids: Sequence[int] | Int64) -> tuple[Int64, Float32]:
        """Return the same as `vectors`, with the vectors as documents are compared by them.

        Those of an encoder whose document vectors are means of block vectors are whitened, in the
        space that was fitted to the collection.
        """
        present, vectors = self.vectors(vector_ids)
        return present, self.alignment.whiten(vectors)

    def block_vectors(self, vector_ids: Sequence[int]) -> dict[int, BlockVectors]:
        """Return the block vectors of these vector ids; ids that have none are absent."""
        rows = self.connections.read_rows(BLOCKS_BY_VECTOR_ID, vector_id_list(vector_ids))
        try:
            return read_block_vectors(rows)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self.name}: block vectors are damaged: {error}") from error

    def read_changes(self, position: int, last: int) -> tuple[Changes, Int64, Float32] | None:
        """Return what has changed after a sequence, with the last vectors of the same state.

        Returns:
            The changes; of the `last` of its documents the ids Int64[N], and vectors
            Float32[N, dimension]. None where the changes are forgotten, or it is ahead.

        Raises:
            StoreError: the file cannot be read, or a vector is damaged.
        """
        with self.connections.reading() as connection:
            changes = read_changes(connection, position)
            if changes is None:
                return None
            ids = vector_id_list(changes.changed[-last:])
            rows = connection.execute(sql.VECTORS, (ids,)).fetchall()
        return changes, *vector_arrays(self.name, rows, self.dimension)

    def refresh_common_text(
        self, progress: Progress, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure what many documents share, and count those again for which that has changed.

        Returns:
            Whether there were such documents.
        """
        try:
            changed = self.common_text.refresh(progress, stop)
        except ValueError as error:
            raise StoreError(f"{self.name}: {error}") from error
        follow_all(self.followers)
        return changed

    def select(self, where: Filter | None, without: Sequence[str] = ()) -> IdSet:
        """Return the vectors of the documents for which a filter now holds, without some documents.

        No filter holds for every document; unknown ids are ignored.
        """
        return self._selections.select(where, without)

    @property
    def sequence(self) -> int:
        """How often the store has changed; 0 in a new one."""
        return int(self.connections.read_rows(sql.SEQUENCE)[0][0])

    def __len__(self) -> int:
        return int(self.connections.read_rows("SELECT count(*) FROM documents")[0][0])

    def close(self) -> None:
        """Close the file; every later call raises StoreError."""
        for follower in self.followers:
            follower.close()
        self.connections.close()

    def _follow_common_text(self) -> bool:
        """Measure the common text of a small collection when it has changed a lot.

        Returns:
            Whether documents are counted otherwise since.

        A failure is only logged: what was put is stored, and the next put tries again.
        """
        try:
            drifted = self.common_text.has_drifted(following=True)
            return drifted and self.refresh_common_text(SilentProgress())
        except StoreError as error:
            _log.warning("the common text does not follow the store: %s", error)
            return False
