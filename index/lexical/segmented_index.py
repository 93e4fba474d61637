"""The words of a store as a follower: a file, and segments in memory and on the disk.

Each change of the file adds a small segment; those of similar size are merged, so there are few.
`publish` writes them to files, which are mapped into memory when the words are opened; the file
then forgets what these hold. Where they do not belong together, the texts are counted again.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder.arrays import Bool
from index.common_text.collection import CommonTexts
from index.errors import LexicalIndexNotReadyError, SnapshotError, StorageError, StoreError
from index.followers import Follower
from index.lexical.frequencies import Frequencies, no_terms
from index.lexical.segment import MOST_TERMS, bounded, make_segment, merge_segments
from index.lexical.snapshot import (
    LexicalSnapshot,
    LiveSegment,
    delete_others,
    fresh_segment,
    load_snapshot,
    outdated,
    save_snapshot,
    without_documents,
)
from index.lexical.stored_texts import StoredTexts
from index.lexical.tables import (
    PENDING,
    STATE,
    WORDS,
    WORDS_FILE,
    WordsState,
    add_pending,
    end_pending,
    find_term_ids,
    note_published,
    note_titles,
    read_changed,
    read_manifest,
    read_new_terms,
    read_state,
    remove_terms,
    write_terms,
)
from index.lexical.terms import QUOTE, count_titles
from index.progress import Progress
from index.sqlite.connections import SQLiteConnections
from index.store.change_log import Changes
from index.store.database import Connection, Connections

LEXICAL_DIRECTORY = "lexical"  # in the folder of the store
_MERGED_AT_ONCE = 4
_MERGED_WHILE_WRITING = 2**23  # terms of documents; larger merges are left to `publish`
_REWRITTEN = 0.75  # a file of which less than this share is present is written again
_READ_FOR_TITLES = 256
_ATTEMPTS = 5  # to read segments while others are published

_VECTOR_IDS = """
SELECT vector_id FROM documents ORDER BY vector_id"""
_TITLE_TERM_IDS = """
SELECT term_id FROM terms WHERE term >= ? AND term < ?"""

_log = logging.getLogger(__name__)


class SegmentedIndex(Follower):
    """The words of an open store. Safe to use from many threads.

    Memory follows the file, in the process that writes it as in others.
    """

    TASK = "counting words"

    def __init__(
        self, truth: Connections, store: Path, common: CommonTexts, *, read_only: bool
    ) -> None:
        """Follow the store at a path; `DocumentStore.lexical` does."""
        path = store.with_name(LEXICAL_DIRECTORY) / WORDS_FILE
        super().__init__(truth, path, WORDS, read_only=read_only)
        self._texts = StoredTexts(truth, common)
        self._publishing = threading.Lock()  # taken first
        self._snapshot = _empty("")
        self._published = 0  # changes

    @property
    def counting(self) -> bool:
        """Whether all documents are still being counted: until then there is no snapshot."""
        return not self._state().counted if self._read_only else self.unfinished

    def snapshot(self) -> LexicalSnapshot:
        """Return the words of all documents that were put; none of those that were deleted.

        Raises:
            LexicalIndexNotReadyError: they are still being counted.
            StoreError: a file cannot be read.
        """
        self.catch_up()
        return self._snapshot

    def catch_up(self) -> None:
        """Bring memory to the file; where this process writes it, the file to the store first.

        Raises:
            LexicalIndexNotReadyError: the words are still being counted.
            StoreError: a file cannot be read.
        """
        if self._read_only:
            state = self._state()
            if not _is_of(self._snapshot, state):
                with self._following:
                    self._read_file()
            counting = not state.counted
        else:
            self._connections()  # of the file that is there now
            self._make_up()
            counting = self.unfinished
        if counting:
            raise LexicalIndexNotReadyError

    def rebuild(self) -> None:
        """Count all texts again; many of them are left to `finish`."""
        self._snapshot = _empty("")
        self._texts.forget()
        super().rebuild()
        pending = self.pending()  # each is a change when it is counted
        with self.writing() as connection:
            note_titles(connection, self._snapshot.changes + pending)

    @property
    def frequencies(self) -> Frequencies:
        """Those by which norms are computed in the snapshot that was read last."""
        return self._snapshot.frequencies

    def use_frequencies(self, frequencies: Frequencies) -> None:
        """Compute norms by frequencies that another process chose for the same words."""
        with self._following:
            segments = tuple(map(outdated, self._snapshot.segments))
            self._snapshot = replace(self._snapshot, segments=segments, frequencies=frequencies)

    def unpublished(self) -> int:
        """Count the changes that opening the words would have to read from the file."""
        return max(0, self._snapshot.changes - self._published)

    def publish(self) -> None:
        """Write the segments to files, and let the file forget what they hold.

        Searches and changes go on meanwhile.

        Raises:
            SnapshotError: the files cannot be written; the former ones stay.
            StoreError: the words cannot be read, or were opened for reading only.
        """
        directory = self.path.parent
        with self._publishing:
            with self.writing():
                pass  # refuses where the file is read only
            self.catch_up()
            with self._following:
                before = self._snapshot
                snapshot = replace(before, terms=before.terms.copy())
            snapshot = _with_norms(
                replace(snapshot, segments=tuple(_merge_for_files(snapshot.segments)))
            )
            try:
                manifest = save_snapshot(directory, snapshot)
            except OSError as error:
                message = f"{directory}: no lexical index was written: {error}"
                raise SnapshotError(message) from error
            snapshot = load_snapshot(directory, manifest)
            with self._following:
                if self._snapshot.identity != before.identity:
                    return  # made again meanwhile
                self._read_state(snapshot)
                self._published = snapshot.changes
                with self.writing() as connection:
                    unused = np.flatnonzero(self._snapshot.terms.copy().frequencies == 0)
                    note_published(connection, snapshot.changes, manifest, unused)
            delete_others(directory, manifest)

    def changes_since_title_refresh(self) -> int:
        """Count the documents put, removed or changed since the last complete `refresh_titles`."""
        with self.reading() as connection:
            state = read_state(connection)
            return state.changes - state.titles

    def refresh_titles(self, progress: Progress, stop: Callable[[], bool] = lambda: False) -> None:
        """Count the documents again that name other titles than when they were counted.

        A document is searched for the titles that are known when it is put; those of later
        documents, and changed ones, are found here. A pass that ends early because `stop` returns
        true is repeated by the next.
        """
        bounds = (QUOTE, chr(ord(QUOTE) + 1))
        with self.reading() as connection:
            changes = read_state(connection).changes
            rows = connection.execute(_TITLE_TERM_IDS, bounds).fetchall()
        is_title = np.zeros(max(rows, default=(0,))[0] + 1, dtype=np.bool_)
        is_title[[row[0] for row in rows]] = True
        self._texts.forget()
        with self._truth.reading() as store:
            vector_ids = [row[0] for row in store.execute(_VECTOR_IDS)]
        progress.started("searching texts for titles", len(vector_ids))
        for start in range(0, len(vector_ids), _READ_FOR_TITLES):
            if stop():
                return
            some = vector_ids[start : start + _READ_FOR_TITLES]
            with self._following:
                differing = self._with_other_titles(some, is_title)
                self._work_off(differing)
            changes += len(differing)  # without the writes of this pass
            progress.advanced(len(some))
        with self.writing() as connection:
            note_titles(connection, changes)

    def _with_other_titles(self, vector_ids: Sequence[int], is_title: Bool) -> list[int]:
        """Return those of these documents whose texts name other titles than they were found to."""
        named = dict(self._texts.count(vector_ids, count_titles))
        with self.reading() as connection:
            ids = find_term_ids(connection, {term for terms in named.values() for term in terms})
        snapshot, differing = self._snapshot, []
        for vector_id, terms in named.items():
            term_ids, counts = snapshot.terms_of(vector_id)
            held = is_title.take(term_ids, mode="clip") & (term_ids < len(is_title))
            found = dict(zip(term_ids[held].tolist(), counts[held].tolist(), strict=True))
            if found != {ids.get(term, -1): count for term, count in terms.items()}:
                differing.append(vector_id)
        return differing

    def _add(self, connection: Connection, vector_ids: Sequence[int]) -> Sequence[int]:
        add_pending(connection, vector_ids)
        return vector_ids

    def _remove(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        remove_terms(connection, vector_ids)
        self._texts.note_gone(len(vector_ids))

    def _rest(self, limit: int, after: int = 0) -> Sequence[int]:
        with self._connections().reading() as connection:
            return [row[0] for row in connection.execute(PENDING, (after, limit))]

    def _derive(self, connection: Connection, vector_ids: Sequence[int]) -> None:
        write_terms(connection, self._texts.count(vector_ids))
        end_pending(connection, vector_ids)

    def _work_off(self, vector_ids: Sequence[int]) -> None:
        with self._following:
            super()._work_off(vector_ids)
            self._read_file()

    def _missing(self) -> Changes | None:
        changes = super()._missing()
        if changes is None:
            return None
        try:
            self._read_file()
        except StorageError:
            raise
        except (SnapshotError, StoreError) as error:
            _log.warning("the words are counted again: %s", error)
            return None
        return changes

    def _read_file(self) -> None:
        """Bring memory to the file; `_following` is held.

        Raises:
            SnapshotError: the published segments are missing or damaged.
            StoreError: the file cannot be read.
        """
        for _ in range(1, _ATTEMPTS):
            with suppress(SnapshotError):  # of files that are deleted when others are published
                self._read_state(self._snapshot)
                return
        self._read_state(self._snapshot)

    def _read_state(self, snapshot: LexicalSnapshot) -> None:
        """Take a snapshot, with what has changed in the file since then, for the present one."""
        with self._noting_damage(), self._connections().reading() as connection:
            state = read_state(connection)
            if snapshot.identity != state.identity or snapshot.changes < state.published:
                snapshot = _empty(state.identity)
                if state.published:
                    snapshot = load_snapshot(self.path.parent, read_manifest(connection))
                self._published = snapshot.changes
            if not _is_of(snapshot, state):
                try:
                    snapshot = _follow(connection, snapshot, state)
                except BaseException:
                    self._snapshot = _empty("")  # the term counts were changed in part
                    raise
            self._snapshot = snapshot

    def _open(self) -> SQLiteConnections:
        if not self._read_only:
            try:
                self.path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"{self.path.parent}: cannot be made: {error.strerror}") from error
        return super()._open()

    def _state(self) -> WordsState:
        return WordsState(*self._connections().read_rows(STATE)[0])


def _empty(identity: str) -> LexicalSnapshot:
    none = no_terms()
    return LexicalSnapshot((), none, Frequencies(none.frequencies, 0, 0), 0, 0, identity)


def _is_of(snapshot: LexicalSnapshot, state: WordsState) -> bool:
    return (snapshot.identity, snapshot.changes) == (state.identity, state.changes)


def _follow(
    connection: Connection, snapshot: LexicalSnapshot, state: WordsState
) -> LexicalSnapshot:
    """Return a snapshot of what the file holds now; the term counts are changed in place."""
    terms, segments, number = snapshot.terms, list(snapshot.segments), snapshot.number
    terms.learn(read_new_terms(connection, terms.last))
    for changed, documents in read_changed(connection, snapshot.changes, MOST_TERMS):
        segments, gone = without_documents(segments, changed)
        terms.count(gone, -1)
        number += len(documents.vector_ids) - len(gone.vector_ids)
        if len(documents.vector_ids):
            terms.count(documents, 1)
            segments = _merge_small([*segments, fresh_segment(make_segment(documents))])
    frequencies = snapshot.frequencies
    if not frequencies.serve(number, state.changes):  # they are renewed
        frequencies = Frequencies(terms.copy().frequencies, number, state.changes)
        segments = list(map(outdated, segments))
    return LexicalSnapshot(
        tuple(segments), terms, frequencies, number, state.changes, state.identity
    )


def _with_norms(snapshot: LexicalSnapshot) -> LexicalSnapshot:
    """Return the snapshot with the norms of all documents, by its frequencies."""
    counted = snapshot.terms.copy().frequencies
    frequencies = Frequencies(counted, snapshot.number, snapshot.changes)
    segments = list(map(outdated, snapshot.segments))
    snapshot = replace(snapshot, segments=tuple(segments), frequencies=frequencies)
    for live in segments:
        live.squares[:] = np.nan  # of those that are not there
        snapshot.fill_squares(live, np.flatnonzero(live.present))
    return snapshot


def _merge_small(segments: list[LiveSegment]) -> list[LiveSegment]:
    """Merge the last segments while they are small and of similar size."""
    while len(segments) >= _MERGED_AT_ONCE:
        last = segments[-_MERGED_AT_ONCE:]
        sizes = [live.segment.size for live in last]
        if sum(sizes) > _MERGED_WHILE_WRITING or max(sizes) >= _MERGED_AT_ONCE * sizes[-1]:
            break
        segments = [*segments[:-_MERGED_AT_ONCE], _merged(last)]
    return segments


def _merge_for_files(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    """Return as few segments as files may be; those that are in files mostly stay."""
    kept = [live for live in segments if live.file is not None and _is_worth_keeping(live)]
    known = {id(live) for live in kept}
    others = [live for live in segments if id(live) not in known and live.present.any()]
    sizes = np.array([other.segment.size for other in others], dtype=np.int64)
    return [*kept, *(_merged(others[run]) for run in bounded(sizes, MOST_TERMS))]


def _is_worth_keeping(live: LiveSegment) -> bool:
    return live.segment.size >= MOST_TERMS // 2 and bool(live.present.mean() >= _REWRITTEN)


def _merged(segments: Sequence[LiveSegment]) -> LiveSegment:
    merged = fresh_segment(merge_segments([(live.segment, live.present) for live in segments]))
    merged_ids = merged.segment.vector_ids
    for live in segments:
        kept = np.searchsorted(merged_ids, live.segment.vector_ids[live.present])
        merged.squares[kept] = live.squares[live.present]
        merged.current[kept] = live.current[live.present]
    return merged
