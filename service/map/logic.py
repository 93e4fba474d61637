"""The map of a collection, kept until its documents change."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from index.directory.data_directory import DataDirectory
from index.errors import LexicalIndexNotReadyError
from index.map import Layout, lay_out
from index.store.records import DocumentSummary

SIDE = 65_535  # of the square that coordinates are in
MOST_VALUES = 12  # of a metadata field; the rest of them count as one
_NAMED_BY = 40  # documents of each group
_WORDS = 3
_ROWS_A_CALL = 1_000


@dataclass(frozen=True, slots=True)
class MapGroup:
    """A group of documents: its telling words, how many documents it has, and its centre."""

    words: tuple[str, ...]
    documents: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class DocumentMap:
    """The documents of a collection on a map.

    Attributes:
        documents: of the collection.
        summaries: of the N documents on the map.
        x, y: of each, from 0 to `SIDE`.
        groups: the group of each.
        names: the groups.
    """

    documents: int
    summaries: Sequence[DocumentSummary]
    x: Sequence[int]
    y: Sequence[int]
    groups: Sequence[int]
    names: Sequence[MapGroup]

    def values(self, field: str) -> tuple[list[str], list[int | None]]:
        """Return the most frequent values of a metadata field, and of each document which it has.

        Of a list, the first value counts. None stands for every other value, and for none.
        """
        found = [_first_value(summary.metadata.get(field)) for summary in self.summaries]
        counts = Counter(value for value in found if value is not None)
        shown = sorted(value for value, _ in counts.most_common(MOST_VALUES))
        rows = {value: row for row, value in enumerate(shown)}
        return shown, [None if value is None else rows.get(value) for value in found]


class KeptMap:
    """The map of one collection. Safe to use from many threads, of which one makes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[int, DocumentMap] | None = None

    def read(self, data: DataDirectory) -> DocumentMap:
        """Return the map; making it takes seconds, after every change of the documents again.

        Raises:
            StoreError: the documents cannot be read.
        """
        with self._lock:
            sequence = data.store.sequence
            if self._kept is None or self._kept[0] != sequence:
                self._kept = sequence, _make(data)
            return self._kept[1]


def _make(data: DataDirectory) -> DocumentMap:
    layout = lay_out(data.store)
    ids = layout.vector_ids.tolist()
    summaries: dict[int, DocumentSummary] = {}
    for start in range(0, len(ids), _ROWS_A_CALL):
        summaries |= data.store.get(ids[start : start + _ROWS_A_CALL])
    rows = [row for row, vector_id in enumerate(ids) if vector_id in summaries]
    points, groups = np.rint(layout.points[rows] * SIDE).astype(int), layout.groups[rows]
    return DocumentMap(
        documents=len(data.store),
        summaries=[summaries[ids[row]] for row in rows],
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        groups=groups.tolist(),
        names=_name_groups(data, layout),
    )


def _name_groups(data: DataDirectory, layout: Layout) -> list[MapGroup]:
    try:
        words = data.store.lexical.telling_words(layout.nearest_to_centres(_NAMED_BY), _WORDS)
    except LexicalIndexNotReadyError:  # it is being made
        words = [()] * len(layout.centres)
    counts = np.bincount(layout.groups, minlength=len(words)).tolist()
    centres = np.rint(layout.centres * SIDE).astype(int).tolist()
    return [
        MapGroup(some, count, *centre)
        for some, count, centre in zip(words, counts, centres, strict=True)
    ]


def _first_value(value: object) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) and value != "" else None
