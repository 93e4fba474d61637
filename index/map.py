"""A map of a collection: each document a point of the plane, near those that it resembles.

Some documents, the landmarks, are laid out by t-SNE (van der Maaten and Hinton, JMLR 2008), and
every other one comes between the landmarks that it is nearest to. Groups are made of the points,
and named by the words that set their documents apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from encoder.arrays import Float32, Float64, Int32, Int64
from index.id_set import IdSet

MOST_DOCUMENTS = 100_000  # on a map; of a larger collection it is a sample
MOST_GROUPS = 24
_LANDMARKS = 1_000
_NEAREST = 5  # landmarks that place another document
_SHARPNESS = 20.0  # of their weights, exp(sharpness x cosine)
_ROWS_A_CALL = 2_048
_PERPLEXITY = 30.0
_ROUNDS, _EXAGGERATED = 400, 100
_REFINEMENTS = 20  # of the groups
_SEED = 0


class Vectors(Protocol):
    """What a map needs of a document store."""

    def select(self, where: None) -> IdSet:
        """Return the ids of all vectors."""
        ...

    def vectors(self, vector_ids: Int64) -> tuple[Int64, Float32]:
        """Return those of these ids that exist, ascending Int64[N], and Float32[N, dimension]."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Documents in the plane.

    Attributes:
        vector_ids: Int64[N], ascending.
        points: Float32[N, 2], from 0 to 1.
        groups: Int32[N], the group of each document.
        centres: Float32[G, 2] of the groups.
    """

    vector_ids: Int64
    points: Float32
    groups: Int32
    centres: Float32

    def nearest_to_centres(self, count: int) -> list[Int64]:
        """Return of each group the documents nearest to its centre, at most `count`."""
        found = []
        for group, centre in enumerate(self.centres):
            rows = np.flatnonzero(self.groups == group)
            distances = ((self.points[rows] - centre) ** 2).sum(1)
            found.append(self.vector_ids[rows[np.argsort(distances, kind="stable")[:count]]])
        return found


def lay_out(store: Vectors) -> Layout:
    """Lay out the documents of a store, at most `MOST_DOCUMENTS`; the same ones alike each time."""
    random = np.random.default_rng(_SEED)
    ids = np.concatenate([found for found, _ in _read(store, np.arange(store.select(None).end))])
    if len(ids) > MOST_DOCUMENTS:
        ids = np.sort(random.choice(ids, MOST_DOCUMENTS, replace=False))
    if not len(ids):
        return Layout(
            ids, np.zeros((0, 2), np.float32), np.zeros(0, np.int32), np.zeros((0, 2), np.float32)
        )
    chosen = np.sort(random.choice(ids, min(len(ids), _LANDMARKS), replace=False))
    _, landmarks = store.vectors(chosen)
    places = _scaled(_tsne(landmarks @ landmarks.T))
    kept, points = [], []
    for found, vectors in _read(store, ids):
        kept.append(found)
        points.append(_between(vectors @ landmarks.T, places))
    everywhere = np.concatenate(points)
    groups, centres = _group(everywhere)
    return Layout(np.concatenate(kept), everywhere, groups, centres)


def _read(store: Vectors, ids: Int64) -> Iterator[tuple[Int64, Float32]]:
    for start in range(0, max(len(ids), 1), _ROWS_A_CALL):
        yield store.vectors(ids[start : start + _ROWS_A_CALL])


def _between(cosines: Float32, places: Float32) -> Float32:
    """Place documents by their cosines Float32[N, L] between L landmarks: Float32[N, 2].

    A landmark comes to its own place.
    """
    count = min(_NEAREST, len(places))
    nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(cosines, nearest, axis=1)
    weights = np.exp(_SHARPNESS * (near - near.max(1, keepdims=True)))
    itself = near > 1 - 1e-5
    weights = np.where(itself.any(1, keepdims=True), itself, weights)
    placed: Float32 = (places[nearest] * weights[:, :, None]).sum(1) / weights.sum(1)[:, None]
    return placed


def _group(points: Float32) -> tuple[Int32, Float32]:
    """Group points Float32[N, 2] by k-means: the group of each Int32[N], centres Float32[G, 2]."""
    count = int(np.clip(np.sqrt(len(points) / 4), 1, MOST_GROUPS))
    centres = points[:1]
    while len(centres) < count:  # from the point that is farthest from those that there are
        far = ((points[:, None] - centres) ** 2).sum(2).min(1)
        if not far.max():
            break
        centres = np.append(centres, points[far.argmax()][None], axis=0)
    for _ in range(_REFINEMENTS):
        groups = ((points[:, None] - centres) ** 2).sum(2).argmin(1).astype(np.int32)
        sizes = np.bincount(groups, minlength=len(centres))
        sums = [np.bincount(groups, points[:, axis], len(centres)) for axis in (0, 1)]
        moved = np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, None]
        centres = np.where(sizes[:, None] > 0, moved, centres).astype(np.float32)
    return groups, centres


def _tsne(cosines: Float32) -> Float64:
    """Lay out L points by t-SNE, of which these are the cosines Float32[L, L]: Float64[L, 2]."""
    number = len(cosines)
    random = np.random.default_rng(_SEED)
    if number < 4:
        return np.stack([np.arange(number), np.zeros(number)], axis=1)
    likeness = _likeness(np.maximum(2 - 2 * cosines, 0))
    values, directions = np.linalg.eigh(cosines - cosines.mean(0) - cosines.mean(1)[:, None])
    places: Float64 = directions[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-12))
    places = 1e-2 * places / max(places.std(), 1e-12) + 1e-6 * random.standard_normal((number, 2))
    speed, rate = np.zeros_like(places), max(number / 12, 50.0)
    for turn in range(_ROUNDS):
        squares = (places**2).sum(1)
        closeness = 1 / (1 + np.maximum(squares + squares[:, None] - 2 * places @ places.T, 0))
        np.fill_diagonal(closeness, 0)
        exaggeration = 12.0 if turn < _EXAGGERATED else 1.0
        forces = (exaggeration * likeness - closeness / closeness.sum()) * closeness
        gradient = 4 * (forces.sum(1)[:, None] * places - forces @ places)
        speed = (0.5 if turn < _EXAGGERATED else 0.8) * speed - rate * gradient
        places = places + speed
    return places


def _likeness(distances: Float32) -> Float64:
    """Return the joint probabilities p of t-SNE for squared distances Float32[L, L]."""
    number = len(distances)
    wanted = np.log(min(_PERPLEXITY, (number - 1) / 3))
    low, high = np.zeros(number), np.full(number, 1e4)
    for _ in range(40):  # halvings of each precision, all of them at once
        precision = (low + high) / 2
        weights = np.exp(-distances * precision[:, None])
        np.fill_diagonal(weights, 0)
        total = np.maximum(weights.sum(1), 1e-300)
        entropy = np.log(total) + precision * (distances * weights).sum(1) / total
        low = np.where(entropy > wanted, precision, low)
        high = np.where(entropy > wanted, high, precision)
    conditional = weights / total[:, None]
    joint: Float64 = np.maximum((conditional + conditional.T) / (2 * number), 1e-12)
    return joint


def _scaled(places: Float64) -> Float32:
    """Move places Float64[N, 2] into the unit square, with the same scale for both axes."""
    low, high = places.min(0), places.max(0)
    size = max(float((high - low).max()), 1e-12)
    scaled: Float32 = ((places - (low + high) / 2) / size + 0.5).astype(np.float32)
    return scaled
