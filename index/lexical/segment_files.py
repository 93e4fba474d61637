"""Segments in files, which are mapped into memory.

    lexical/
      0000000001.segment ...   arrays of a segment, one after another
      0000000003.terms         the frequencies of all terms, and the norms of all documents

A manifest names them. It has the CRC-32 of every file, so any changed byte is found. At a start all
of them are read and compared; a cryptographic digest would take several times as long.
"""

import json
import mmap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float64
from encoder.atomic_files import sync
from index.errors import SnapshotError
from index.lexical.frequencies import Frequencies, TermCounts, no_terms
from index.lexical.segment import Segment
from index.lexical.snapshot import LexicalSnapshot, LiveSegment, SegmentFile

_THREADS = 4  # that compare files with their checksums

_Array = NDArray[Any]


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
