"""The map of a collection: made by `longmatch index`, and in a thread on demand after changes.

What takes long, places and clusters, is in `map.json` beside the store, for the next start. They
are used if they are of the same vectors of the same store; the file may be deleted.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.atomic_files import write_atomically
from index.errors import IndexingError
from index.progress import Progress
from index.store.document_store import DocumentStore
from index.store.records import Facet
from index.vectors.faiss.ivf import clusters_of
from service.map.layout import STEPS, between, lay_out
from service.threads import Worker

MAX_POINTS = 100_000  # of a larger collection, documents are chosen evenly by their ids in it
MAX_LANDMARKS = 20_000  # of them that are laid out; the others come between these
MAP_FILE = "map.json"
SIDE = 2**16  # a coordinate is an integer below it
MAX_VALUES = 11  # of a field that a map is coloured by: the most frequent ones
OTHER = -1  # the number of a value that is none of them
_ROWS_A_CALL = 2_048
_MAX_CLUSTERS, _NAMED_BY, _WORDS = 24, 12, 3
_MAX_DRIFT = 0.1  # share of new documents up to which a job does not make the map again

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A part of the map: its middle in coordinates, and at most three telling words."""

    x: int
    y: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Colouring:
    """The values of a field: the frequent ones, and the number of that of each point."""

    values: Sequence[str | int | float | bool]
    of: Sequence[int]


@dataclass(frozen=True, slots=True)
class CorpusMap:
    """The map of N documents.

    Attributes:
        sequence: of the store.
        documents: that the store held; those of the map are fewer if these are too many.
        vector_ids: Int64[N].
        ids: of the documents.
        places: Int64[N, 2], from 0 to below `SIDE`.
        of: the cluster of each.
        clusters: of neighbours on the map.
        fields: of the metadata, by which it can be coloured.
    """

    sequence: int
    documents: int
    vector_ids: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ids: Sequence[str] = ()
    places: Int64 = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    of: Sequence[int] = ()
    clusters: Sequence[Cluster] = ()
    fields: Mapping[str, Colouring] = field(default_factory=dict)


class _StoppedError(Exception):
    """The collection is being closed."""


class LiveMap:
    """The map of an open collection, kept until its store has changed. Safe for many threads.

    Attributes:
        worker: the thread that makes it, once it was asked for.
    """

    def __init__(self, store: DocumentStore) -> None:
        self.worker = Worker("maps", self._make)
        self._store = store
        self._made: CorpusMap | None = None
        self._share = 0.0

    def read(self) -> tuple[CorpusMap, float | None]:
        """Return the newest map, and how much of one of the present store is made: None if it is.

        Before the first one is made there is one without points.
        """
        made = self._made
        if made is not None and made.sequence >= self._store.sequence:
            return made, None
        self.worker.woken.set()
        self.worker.start()
        return made or CorpusMap(0, 0), self._share

    def _make(self) -> None:
        """Make the map, unless it is that of the store."""
        made = self._made
        try:
            if made is None or made.sequence < self._store.sequence:
                made = make_map(self._store, made or read_kept(self._store), self._advanced)
                self._made = made
                _keep(made, self._store)
        except _StoppedError:
            pass
        except IndexingError as error:  # the next request tries again
            _LOG.warning("the map could not be made: %s", error)
        finally:
            self._share = 0.0

    def _advanced(self, share: float) -> None:
        if self.worker.stopping.is_set():
            raise _StoppedError
        self._share = share


def keep_map(store: DocumentStore, progress: Progress) -> None:
    """Make and keep the map at the end of a job, unless few documents are newer than it."""
    kept, ids = read_kept(store), store.log.added_after(0)[1]
    newer = len(ids) if kept is None else np.count_nonzero(ids > kept.vector_ids.max(initial=-1))
    if newer > _MAX_DRIFT * len(ids):
        progress.started("making the map", STEPS, unit="steps")
        _keep(make_map(store, None, lambda _: progress.advanced(1)), store)


def _key(store: DocumentStore) -> str:
    return f"{store.log.identity} {store.fingerprint}"


def read_kept(store: DocumentStore) -> CorpusMap | None:
    """Return the documents, places and clusters of the map that was kept of a store, if any."""
    try:
        kept = json.loads((store.path.parent / MAP_FILE).read_bytes())
        if kept["store"] != _key(store):
            return None
        ids, places, of = (np.array(kept[name], dtype=np.int64) for name in ("ids", "places", "of"))
        clusters = [Cluster(x, y, tuple(words)) for x, y, words in kept["clusters"]]
    except (OSError, KeyError, TypeError, ValueError):  # there is none, or it is damaged
        return None
    return CorpusMap(0, 0, ids, (), places.reshape(-1, 2), of.tolist(), clusters)


def _keep(made: CorpusMap, store: DocumentStore) -> None:
    kept = {
        "store": _key(store),
        "ids": made.vector_ids.tolist(),
        "places": made.places.tolist(),
        "of": list(made.of),
        "clusters": [(cluster.x, cluster.y, cluster.words) for cluster in made.clusters],
    }
    try:
        write_atomically(store.path.parent / MAP_FILE, json.dumps(kept))
    except OSError as error:  # the next start makes it again
        _LOG.warning("the map could not be kept: %s", error)


def make_map(
    store: DocumentStore, before: CorpusMap | None, advanced: Callable[[float], None]
) -> CorpusMap:
    """Make the map of what a store holds now.

    Args:
        store: of the documents.
        before: an earlier map, whose places are kept if the documents have the same vectors.
        advanced: as of `lay_out`.
    """
    sequence, present = store.log.added_after(0)
    documents, ids = len(present), _some(present, MAX_POINTS)
    if before is not None and np.array_equal(before.vector_ids, ids):
        places, of, clusters = before.places, before.of, before.clusters
    else:
        ids, positions = _positions(store, ids, advanced)
        places = quantised(positions)
        centres, labels = divide(places)
        of = labels.tolist()
        clusters = _named(store, ids, places, centres, labels)
    stored = {}
    for start in range(0, len(ids), _ROWS_A_CALL):
        stored.update(store.get(ids[start : start + _ROWS_A_CALL].tolist()))
    present = np.array([vector_id in stored for vector_id in ids.tolist()], dtype=bool)
    shown = [stored[vector_id] for vector_id in ids[present].tolist()]
    metadata = [summary.metadata for summary in shown]
    return CorpusMap(
        sequence=sequence,
        documents=documents,
        vector_ids=ids[present],
        ids=[summary.id for summary in shown],
        places=places[present],
        of=np.array(of, dtype=np.int64)[present].tolist(),
        clusters=clusters,
        fields={facet.field: coloured(facet, metadata) for facet in store.facets()},
    )


def _some(ids: Int64, most: int) -> Int64:
    """Return at most so many ids, chosen evenly."""
    if len(ids) <= most:
        return ids
    return ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)]


def _positions(
    store: DocumentStore, ids: Int64, advanced: Callable[[float], None]
) -> tuple[Int64, Float32]:
    """Return the documents of these ids that are still there, and their positions [N, 2]."""
    found, landmarks = store.compared(_some(ids, MAX_LANDMARKS))
    positions = lay_out(landmarks, advanced)
    if len(ids) <= MAX_LANDMARKS:
        return found, positions
    every, placed = [], []
    for start in range(0, len(ids), _ROWS_A_CALL):
        part, vectors = store.compared(ids[start : start + _ROWS_A_CALL])
        every.append(part)
        placed.append(between(vectors, landmarks, positions))
        advanced(1.0)
    return np.concatenate(every), np.concatenate(placed)


def quantised(positions: Float32) -> Int64:
    """Return positions [N, 2] as integers below `SIDE`, in the same proportions, in the middle."""
    if len(positions) == 0:
        return np.zeros((0, 2), dtype=np.int64)
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = (SIDE - 1) / max(float((high - low).max()), 1e-9)
    places: Float32 = (positions - (low + high) / 2) * scale + (SIDE - 1) / 2
    return places.round().astype(np.int64)


def divide(places: Int64) -> tuple[Float32, Int64]:
    """Divide places [N, 2] into clusters by k-means; return centres [K, 2] and labels [N]."""
    wanted = int(np.clip(round(len(places) ** 0.5 / 2), 1, _MAX_CLUSTERS))
    if not len(places):
        return np.zeros((0, 2), dtype=np.float32), np.zeros(0, dtype=np.int64)
    centres, labels = clusters_of(places.astype(np.float32), wanted)
    kept, labels = np.unique(labels, return_inverse=True)  # of equal places, some have none
    return centres[kept], labels


def _named(
    store: DocumentStore, ids: Int64, places: Int64, centres: Float32, labels: Int64
) -> list[Cluster]:
    """Name each cluster by the words that its middle shares most, and other clusters do not."""
    found = []
    for number, centre in enumerate(centres):
        distances = np.square(places - centre).sum(axis=1)
        distances[labels != number] = np.inf
        size = int(np.count_nonzero(labels == number))
        nearest = np.argsort(distances)[: min(size, _NAMED_BY)]
        members = ids[nearest].tolist()
        try:
            query = store.words.read_stored(members[0])
            explained = store.words.explain(query, members[1:] or members)
        except IndexingError:  # the words are being counted
            explained = {}
        weights = defaultdict[str, float](float)
        for terms in explained.values():
            for term in terms:
                weights[term.term.strip('"')] += term.weight
        middle = places[nearest[0]].tolist()  # the centre may lie between groups
        found.append((middle, weights))
    shared = Counter(word for _, weights in found for word in weights)
    return [Cluster(x, y, _distinct(weights, shared)) for (x, y), weights in found]


def _distinct(weights: Mapping[str, float], shared: Mapping[str, int]) -> tuple[str, ...]:
    """Return the first words by weight and by how few clusters share them; none within another."""
    chosen: list[str] = []
    for word in sorted(weights, key=lambda word: -weights[word] / shared[word]):
        if not word.isdigit() and not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return tuple(chosen[:_WORDS])


def coloured(facet: Facet, metadata: Sequence[Mapping[str, Any]]) -> Colouring:
    """Return the frequent values of a field, and which of them each document has.

    Of a list the first element counts.
    """
    values = [value for value, _ in facet.values[:MAX_VALUES]]
    numbers = {(type(value), value): number for number, value in enumerate(values)}

    def number_of(value: Any) -> int:
        first = value[0] if isinstance(value, list) and value else value
        is_scalar = isinstance(first, str | int | float)
        return numbers.get((type(first), first), OTHER) if is_scalar else OTHER

    return Colouring(values, [number_of(fields.get(facet.field)) for fields in metadata])
