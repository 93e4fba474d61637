"""The searchable copy of the lexical tables: segments in memory and on the disk.

Each change of the tables adds a small segment; those of similar size are merged, so there are
few. `publish` writes them to files, which are mapped into memory when the copy is opened; what
changed since is read from the tables. A copy that is missing or unusable is built again from them.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder.arrays import Int64
from index.errors import SnapshotError, StoreError
from index.lexical.frequencies import Frequencies, TermCounts, no_terms
from index.lexical.segment import MOST_TERMS, divide, make_segment, merge_segments
from index.lexical.segment_files import CURRENT, delete_others, load_snapshot, save_snapshot
from index.lexical.snapshot import (
    LexicalSnapshot,
    LiveSegment,
    fresh_segment,
    outdated,
    without_documents,
)
from index.lexical.tables import (
    STATISTICS,
    InsertedTerms,
    JoinedTerms,
    TermStatistics,
    forget_removed,
    read_added,
    read_removed,
    read_statistics,
)
from index.sqlite.connections import SQLiteConnections

_MERGED_AT_ONCE = 4
_MERGED_WHILE_WRITING = 2**23  # terms of documents; larger merges are left to `publish`
_STEPS_BETWEEN_LOOKS = 100_000  # of SQLite, to learn that the store is being closed
_REWRITTEN = 0.75  # a file of which less than this share is present is written again

_log = logging.getLogger(__name__)


class SegmentedIndex:
    """The copy of the lexical tables of an open store. Safe to use from many threads."""

    def __init__(self, connections: SQLiteConnections, directory: Path) -> None:
        """Use the connections of a store, and the directory of its published copy."""
        self._connections = connections
        self._directory = directory
        self._updating = threading.Lock()
        self._publishing = threading.Lock()  # taken first
        self._snapshot = _empty("")
        self._opened = False
        self._published = 0  # changes
        self._maker: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def building(self) -> bool:
        """Whether `make_in_background` has not ended yet: `snapshot` would wait for it."""
        return not self._opened and self._maker is not None and self._maker.is_alive()

    def make_in_background(self) -> None:
        """Begin to open the copy, or to build it again, in a thread."""
        self._maker = threading.Thread(target=self._make, name="lexical index", daemon=True)
        self._maker.start()

    def wait(self, seconds: float) -> None:
        """Wait for that thread, at most so long."""
        if self._maker is not None:
            self._maker.join(seconds)

    def close(self) -> None:
        """Let that thread give up, and wait for it."""
        self._stopping.set()
        if self._maker is not None:
            self._maker.join()

    def _make(self) -> None:
        try:
            self.catch_up()
        except StoreError as error:  # the first search tries again, and answers with the error
            if not self._stopping.is_set():
                _log.warning("the lexical index could not be made: %s", error)

    def snapshot(self) -> LexicalSnapshot:
        """Return the present state of the tables.

        While another thread reads a change, the state before it.
        """
        if self._is(TermStatistics(*self._connections.read_rows(STATISTICS)[0])):
            return self._snapshot
        # The thread that holds the lock reads a change that was not yet acknowledged.
        if self._updating.acquire(blocking=not self._opened):
            try:
                self._catch_up()
            finally:
                self._updating.release()
        return self._snapshot

    def catch_up(self) -> None:
        """Bring the copy to the present state of the tables; wait for it, unlike `snapshot`."""
        with self._updating:
            self._catch_up()

    def follow(self, inserted: InsertedTerms) -> None:
        """Bring the copy to the state after an insert that was committed, or to a later one."""
        with self._updating:
            if not self._is(inserted.before):
                self._catch_up()
            elif len(inserted.documents.vector_ids):
                try:
                    self._snapshot = _with_inserted(self._snapshot, inserted)
                except BaseException:
                    self._opened = False  # the term counts were changed in part
                    raise

    @property
    def frequencies(self) -> Frequencies:
        """Those by which norms are computed in the snapshot that was read last."""
        return self._snapshot.frequencies

    def use_frequencies(self, frequencies: Frequencies) -> None:
        """Compute norms by frequencies that another process chose for the same tables."""
        with self._updating:
            segments = tuple(_outdated(self._snapshot.segments))
            self._snapshot = replace(self._snapshot, segments=segments, frequencies=frequencies)

    def unpublished(self) -> int:
        """Count the changes that opening the store would have to read from the tables."""
        return max(0, self._snapshot.changes - self._published)

    def publish(self) -> None:
        """Write the copy to files, so that opening the store need not make it.

        Searches and changes go on meanwhile.

        Raises:
            SnapshotError: the files cannot be written; the former ones stay.
        """
        with self._publishing:
            with self._connections.writing():
                pass  # refuses where the store is read only
            self.catch_up()
            with self._updating:
                before = self._snapshot
                snapshot = replace(before, terms=before.terms.copy())
            snapshot = _with_norms(
                replace(snapshot, segments=tuple(_merge_for_files(snapshot.segments)))
            )
            try:
                saved = save_snapshot(self._directory, snapshot)
            except OSError as error:
                message = f"{self._directory}: no lexical index was written: {error}"
                raise SnapshotError(message) from error
            with self._updating:
                self._swap_in(before, replace(snapshot, segments=saved.segments))
                self._published = snapshot.changes
            delete_others(self._directory, saved)
            with self._connections.writing() as connection:
                forget_removed(connection, snapshot.changes)

    def _swap_in(self, before: LexicalSnapshot, saved: LexicalSnapshot) -> None:
        """Replace the segments of an earlier snapshot by those in files."""
        now = self._snapshot
        if now.identity != before.identity:
            return
        old = {id(live.segment) for live in before.segments}
        present = [live.segment.documents.vector_ids[live.present] for live in before.segments]
        still = [
            live.segment.documents.vector_ids[live.present]
            for live in now.segments
            if id(live.segment) in old
        ]
        gone = np.setdiff1d(_joined(present), _joined(still))
        kept, _ = without_documents(saved.segments, gone)
        new = [live for live in now.segments if id(live.segment) not in old]
        self._snapshot = replace(
            now, segments=(*kept, *_outdated(new)), frequencies=saved.frequencies
        )

    def _is(self, now: TermStatistics) -> bool:
        snapshot = self._snapshot
        return self._opened and (snapshot.changes, snapshot.identity) == (now.changes, now.identity)

    def _catch_up(self) -> None:
        """Bring the snapshot to the present state; `_updating` is held."""
        with self._connections.reading() as connection:
            now = read_statistics(connection)
            if self._is(now):
                return
            snapshot = self._snapshot
            if not self._opened:
                snapshot = self._load(now)
                self._published = snapshot.changes
            if snapshot.identity != now.identity or snapshot.changes > now.changes:
                snapshot = _empty(now.identity)
                self._published = 0
            connection.set_progress_handler(self._stopping.is_set, _STEPS_BETWEEN_LOOKS)
            try:
                snapshot = _follow(connection, snapshot)
                if not snapshot.is_whole and self._opened:
                    # The tables have forgotten removals that it did not know, which the process
                    # that forgot them has published.
                    snapshot = _follow(connection, self._load(now))
                if not snapshot.is_whole:
                    snapshot = _follow(connection, _empty(now.identity))
            except BaseException:
                self._opened = False  # the term counts were changed in part
                raise
            connection.set_progress_handler(None, 0)
            self._snapshot, self._opened = snapshot, True

    def _load(self, now: TermStatistics) -> LexicalSnapshot:
        try:
            return load_snapshot(self._directory)
        except SnapshotError as error:
            level = logging.WARNING if (self._directory / CURRENT).exists() else logging.INFO
            _log.log(level, "building the lexical index from the document store: %s", error)
            return _empty(now.identity)


def _empty(identity: str) -> LexicalSnapshot:
    none = no_terms()
    return LexicalSnapshot((), none, Frequencies(none.frequencies, 0, 0), 0, 0, identity)


def _follow(connection: sqlite3.Connection, snapshot: LexicalSnapshot) -> LexicalSnapshot:
    """Return a snapshot of what the tables hold now; the term counts are changed in place."""
    now = read_statistics(connection)
    terms = snapshot.terms
    terms.read_new(connection)
    removed = read_removed(connection, snapshot.changes)
    damaged = snapshot.damaged.difference(removed.tolist())
    segments, gone = without_documents(snapshot.segments, removed)
    terms.count(gone, -1)
    for added in read_added(connection, snapshot.changes, terms.last, MOST_TERMS):
        segments, gone = without_documents(segments, added.documents.vector_ids)
        terms.count(gone, -1)
        segments = _with_documents(segments, terms, added.documents)
        damaged = damaged.union(added.damaged)
    if damaged - snapshot.damaged:
        _log.error(
            "the words of vector id %d and %d others are damaged and are not searched: "
            "run longmatch doctor --repair",
            *(min(damaged), len(damaged) - 1),
        )
    return _snapshot_of(snapshot, segments, now, damaged)


def _with_inserted(snapshot: LexicalSnapshot, inserted: InsertedTerms) -> LexicalSnapshot:
    """Return a snapshot with new documents, without reading; changes the term counts in place."""
    before, number = inserted.before, len(inserted.documents.vector_ids)
    if inserted.new:
        snapshot.terms.learn(max(inserted.new.values()), *inserted.levels())
    segments = _with_documents(snapshot.segments, snapshot.terms, inserted.documents)
    now = TermStatistics(before.documents + number, before.changes + number, before.identity)
    return _snapshot_of(snapshot, segments, now, snapshot.damaged)


def _with_documents(
    segments: Sequence[LiveSegment], terms: TermCounts, documents: JoinedTerms
) -> list[LiveSegment]:
    terms.count(documents, 1)
    return _merge_small([*segments, fresh_segment(make_segment(documents))])


def _snapshot_of(
    snapshot: LexicalSnapshot,
    segments: list[LiveSegment],
    now: TermStatistics,
    damaged: frozenset[int],
) -> LexicalSnapshot:
    """Return the snapshot after a change; frequencies that no longer serve are renewed."""
    frequencies = snapshot.frequencies
    if not frequencies.serve(now.documents, now.changes):
        frequencies = Frequencies(snapshot.terms.copy().frequencies, now.documents, now.changes)
        segments = _outdated(segments)
    return LexicalSnapshot(
        tuple(segments),
        snapshot.terms,
        frequencies,
        now.documents,
        now.changes,
        now.identity,
        damaged,
    )


def _outdated(segments: Iterable[LiveSegment]) -> list[LiveSegment]:
    return [outdated(live) for live in segments]


def _with_norms(snapshot: LexicalSnapshot) -> LexicalSnapshot:
    """Return the snapshot with the norms of all documents, by its frequencies."""
    frequencies = Frequencies(snapshot.terms.frequencies, snapshot.number, snapshot.changes)
    segments = _outdated(snapshot.segments)
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
    runs = [others[part] for part in divide([other.segment.size for other in others], MOST_TERMS)]
    return [*kept, *(_merged(run) for run in runs)]


def _is_worth_keeping(live: LiveSegment) -> bool:
    return live.segment.size >= MOST_TERMS // 2 and bool(live.present.mean() >= _REWRITTEN)


def _merged(segments: Sequence[LiveSegment]) -> LiveSegment:
    merged = fresh_segment(merge_segments([(live.segment, live.present) for live in segments]))
    merged_ids = merged.segment.documents.vector_ids
    for live in segments:
        kept = np.searchsorted(merged_ids, live.segment.documents.vector_ids[live.present])
        merged.squares[kept] = live.squares[live.present]
        merged.current[kept] = live.current[live.present]
    return merged


def _joined(parts: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
