"""What searches read of the lexical index: segments as they are at one moment, and their files.

The files are mapped into memory:

    lexical/
      0000000001.segment ...   arrays of a segment, one after another
      0000000003.terms         the frequencies of all terms, and the norms of all documents

A manifest names them. It has the CRC-32 of every file, so any changed byte is found. At a start all
of them are read and compared; a cryptographic digest would take several times as long.
"""

import json
import mmap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Bool, Float32, Float64, Int64, UInt32
from encoder.atomic_files import sync
from index.errors import SnapshotError
from index.id_set import IdSet
from index.lexical.frequencies import Frequencies, TermCounts, no_terms
from index.lexical.scoring import inverse_document_frequencies, squared_norms
from index.lexical.segment import QueryReads, Segment, join_documents
from index.lexical.tables import NO_TERMS, DocumentTerms, JoinedTerms

_DOCUMENTS_A_CALL = 500
_LEAST_SQUARE = 1e-24  # of a norm
_NO_DOCUMENTS = join_documents([])
_THREADS = 4  # that compare files with their checksums
_Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of arrays.

    Attributes:
        name: of the file.
        sizes: of its arrays.
        checksum: CRC-32 of its content.
        removed: rows of a segment whose documents are not present.
    """

    name: str
    sizes: Sequence[int]
    checksum: int
    removed: Sequence[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LiveSegment:
    """A segment, and what is known of its N documents.

    Attributes:
        segment: never changes.
        present: Bool[N], which of its documents are still there.
        squares: Float64[N], squared norms; NaN until they are needed. Readers fill them in, each
            with the same value.
        current: Bool[N], which of them are by the frequencies of the snapshot, not by earlier ones,
            which are near enough to choose candidates by.
        file: that has the segment, if there is one.
    """

    segment: Segment
    present: Bool
    squares: Float64
    current: Bool
    file: SegmentFile | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LexicalSnapshot:
    """All documents as of `changes` of the words. A document is present in one segment at most.

    Attributes:
        segments: in the order in which they were made.
        terms: how many documents have each term; shared by all snapshots, as of the newest.
        frequencies: the same at an earlier moment, by which norms are computed.
        number: how many documents there are.
        changes: of the words.
        identity: of their file.
    """

    segments: tuple[LiveSegment, ...]
    terms: TermCounts
    frequencies: Frequencies
    number: int
    changes: int
    identity: str

    def find(self, vector_ids: Int64) -> Iterator[tuple[LiveSegment, Int64, Int64]]:
        """Yield segments with the present documents of theirs among the given ids [K].

        Yields:
            The segment, positions [F] in the given ids, and rows [F] of the segment.
        """
        for live in self.segments:
            positions, rows = live.segment.find(vector_ids)
            kept = live.present[rows]
            if kept.any():
                yield live, positions[kept], rows[kept]

    def documents(self, vector_ids: Int64) -> tuple[Int64, JoinedTerms]:
        """Return those of these ids [K] that are present, as positions [F], and their terms."""
        found = list(self.find(vector_ids))
        positions = [np.zeros(0, dtype=np.int64), *(positions for _, positions, _ in found)]
        joined = join_documents((live.segment.documents, rows) for live, _, rows in found)
        return np.concatenate(positions), joined

    def scores(self, reads: QueryReads, vector_ids: Int64) -> Float32:
        """Return the cosine Float32[K] of a query with each document [K]; 0 for missing ones."""
        scores = np.zeros(len(vector_ids), dtype=np.float32)
        for live, positions, rows in self.find(vector_ids):
            dots = reads.of(live.segment).of(rows)
            self.fill_squares(live, rows[~live.current[rows]])
            norms = np.sqrt(np.maximum(live.squares[rows], _LEAST_SQUARE))
            scores[positions] = np.minimum(dots / norms, 1.0)
        return scores

    def terms_of(self, vector_id: int) -> DocumentTerms:
        """Return the terms of one document; none if it is not there."""
        for live, _, rows in self.find(np.array([vector_id], dtype=np.int64)):
            return live.segment.terms_of(int(rows[0]))
        return NO_TERMS

    def best(self, reads: QueryReads, k: int, among: IdSet | None) -> Int64:
        """Return the k documents with the highest cosines by the terms that are read by term.

        Those are the terms that few documents have, and the top others; norms may be by earlier
        frequencies. Documents without any of the terms are not returned; of equal cosines,
        lower ids come first.

        Returns:
            Int64[N], N <= k, in any order.
        """
        ids, cosines = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for live in self.segments:
            part = reads.of(live.segment)
            rows = np.flatnonzero(live.present & (part.dots > 0))
            candidates = live.segment.vector_ids[rows]
            if among is not None:
                kept = among.contains(candidates)
                candidates, rows = candidates[kept], rows[kept]
            self.fill_squares(live, rows[np.isnan(live.squares[rows])])
            ids.append(candidates)
            squares = np.maximum(live.squares[rows], _LEAST_SQUARE)
            cosines.append(part.dots[rows] / np.sqrt(squares))
        return _greatest(np.concatenate(ids), np.concatenate(cosines), k)

    def idf(self, term_ids: UInt32 | Int64) -> Float32:
        """Return the inverse document frequency [K] of term ids of this snapshot."""
        levels = self.terms.levels.take(term_ids)
        return inverse_document_frequencies(
            self.frequencies.of(term_ids), levels, self.frequencies.number
        )

    def fill_squares(self, live: LiveSegment, rows: Int64) -> None:
        """Compute the squared norms of these rows Int64[K] of a segment, in parts."""
        for start in range(0, len(rows), _DOCUMENTS_A_CALL):
            some = rows[start : start + _DOCUMENTS_A_CALL]
            documents = join_documents([(live.segment.documents, some)])
            live.squares[some] = squared_norms(documents, self.idf)
            live.current[some] = True

    def present_ids(self) -> Int64:
        """Return the ids of all documents, ascending."""
        present = (live.segment.vector_ids[live.present] for live in self.segments)
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *present]))


def fresh_segment(segment: Segment) -> LiveSegment:
    """Return a segment all documents of which are present, and whose norms are not known."""
    size = len(segment)
    none = np.zeros(size, dtype=np.bool_)
    return LiveSegment(segment, ~none, np.full(size, np.nan), none)


def outdated(live: LiveSegment) -> LiveSegment:
    """Return a segment whose norms are to be computed again, by other frequencies."""
    return replace(live, squares=live.squares.copy(), current=np.zeros_like(live.current))


def without_documents(
    segments: Sequence[LiveSegment], vector_ids: Int64
) -> tuple[list[LiveSegment], JoinedTerms]:
    """Return segments in which these documents are not present, and the terms that they had."""
    left: list[LiveSegment] = []
    removed = []
    if not len(vector_ids):
        return list(segments), _NO_DOCUMENTS
    for live in segments:
        _, rows = live.segment.find(vector_ids)
        rows = rows[live.present[rows]]
        if len(rows):
            present = live.present.copy()
            present[rows] = False
            removed.append((live.segment.documents, rows))
            left.append(replace(live, present=present))
        else:
            left.append(live)
    return left, join_documents(removed) if removed else _NO_DOCUMENTS


def _greatest(ids: Int64, sums: Float64, k: int) -> Int64:
    if len(ids) <= k:
        return ids
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = ids[sums > least], np.sort(ids[sums == least])
    return np.concatenate([above, equal[: k - len(above)]])


def save_snapshot(directory: Path, snapshot: LexicalSnapshot) -> str:
    """Write the files of a snapshot, durable at return, and return the manifest of them.

    Those that are there stay. The frequencies of the snapshot are those of its terms.
    """
    number = max(
        (int(path.stem) for path in directory.glob("*.*") if path.stem.isdigit()), default=0
    )
    files = []
    for live in snapshot.segments:
        file = live.file
        if file is None or not (directory / file.name).exists():
            number += 1
            arrays = [getattr(live.segment, name) for name in _SEGMENT_ARRAYS]
            file = _write(directory / f"{number:010}.segment", arrays)
        files.append(replace(file, removed=tuple(np.flatnonzero(~live.present).tolist())))
    counts = snapshot.terms.copy()
    squares = np.concatenate([np.zeros(0), *(live.squares for live in snapshot.segments)])
    arrays = [squares, counts.frequencies, counts.levels]
    terms = _write(directory / f"{number + 1:010}.terms", arrays)
    sync(directory)
    manifest = {
        "identity": snapshot.identity,
        "changes": snapshot.changes,
        "number": snapshot.number,
        "segments": [asdict(file) for file in files],
        "terms": asdict(terms),
    }
    return json.dumps(manifest)


def load_snapshot(directory: Path, manifest: str) -> LexicalSnapshot:
    """Map the snapshot of a manifest into memory.

    Raises:
        SnapshotError: a file is missing or damaged.
    """
    fields = json.loads(manifest)
    number, changes = fields["number"], fields["changes"]
    files = [SegmentFile(**file) for file in fields["segments"]]
    terms, squares = _load_terms(directory, SegmentFile(**fields["terms"]))
    parts = np.split(squares, np.cumsum([file.sizes[0] for file in files]))[: len(files)]
    with ThreadPoolExecutor(_THREADS, "lexical files") as threads:
        segments = tuple(threads.map(partial(_load_segment, directory), files, parts))
    frequencies = Frequencies(terms.frequencies.copy(), number, changes)
    return LexicalSnapshot(segments, terms, frequencies, number, changes, fields["identity"])


def delete_others(directory: Path, manifest: str) -> None:
    """Delete the files that the snapshot of a manifest does not need."""
    fields = json.loads(manifest)
    needed = {file["name"] for file in (*fields["segments"], fields["terms"])}
    for path in (*directory.glob("*.segment"), *directory.glob("*.terms")):
        if path.name not in needed:
            with suppress(OSError):
                path.unlink()


_SEGMENT_ARRAYS = [field.name for field in fields(Segment) if field.init]
_SEGMENT_TYPES = (*["<i8"] * 3, *["<u4"] * 5, *["<u2"] * 4)
_TERMS_TYPES = ("<f8", "<i4", "u1")


def _load_segment(directory: Path, file: SegmentFile, squares: Float64) -> LiveSegment:
    segment = Segment(*_load(directory, file, _SEGMENT_TYPES, mmap.ACCESS_READ))
    present = np.ones(len(segment), dtype=np.bool_)
    present[list(file.removed)] = False
    return LiveSegment(segment, present, squares, ~np.isnan(squares), file)


def _load_terms(directory: Path, file: SegmentFile) -> tuple[TermCounts, Float64]:
    if not any(file.sizes):
        return no_terms(), np.zeros(0)
    # Private pages: counting does not change the file.
    squares, frequencies, levels = _load(directory, file, _TERMS_TYPES, mmap.ACCESS_COPY)
    return TermCounts(frequencies, levels, len(levels) - 1), squares


def _load(directory: Path, file: SegmentFile, types: Sequence[str], access: int) -> list[_Array]:
    """Map the arrays of a file.

    Raises:
        SnapshotError: it is missing or damaged.
    """
    path = directory / file.name
    mapped = _map(path, access)
    if crc32(mapped) != file.checksum:
        raise SnapshotError(f"{path}: is damaged")
    arrays, offset = [], 0
    for size, dtype in zip(file.sizes, types, strict=True):
        arrays.append(np.frombuffer(mapped, dtype=dtype, count=size, offset=offset))
        offset += arrays[-1].nbytes
    return arrays


def _map(path: Path, access: int) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=access)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise SnapshotError(f"{path}: cannot be read: {error}") from error


def _write(path: Path, arrays: Sequence[_Array]) -> SegmentFile:
    checksum = 0
    with path.open("xb") as file:
        for array in arrays:
            data = np.ascontiguousarray(array).view(np.uint8).data
            file.write(data)
            checksum = crc32(data, checksum)
    sync(path)
    return SegmentFile(path.name, tuple(len(array) for array in arrays), checksum)
