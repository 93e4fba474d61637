"""Document vectors -> positions in the plane, neighbours near neighbours: t-SNE, in NumPy.

The affinities are uniform over the nearest neighbours of each document, and the start is the first
two principal components, so that the same documents make the same map. The repulsion of all pairs
of many documents is a convolution on a grid, computed by FFT: a step takes time linear in them. As
in "Fast interpolation-based t-SNE" (Linderman et al. 2019), with linear interpolation.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from index.vectors.faiss.ivf import neighbours_of

NEIGHBOURS = 15
_NEAREST, _SHARPNESS = 5, 20.0
STEPS, _GATHERED = 500, 100  # the first of them with all affinities exaggerated
_EXAGGERATION = 12.0
_FEWEST = 16  # documents; of fewer, each would be a neighbour of each
_FEW = 256  # documents; all pairs of fewer take less time than a grid
_CELL, _CELLS = 0.5, (64, 512)  # side of a cell; along the longer side of the map
_LONGEST_STEP = 5.0

Complex = NDArray[np.complexfloating]


def lay_out(vectors: Float32, advanced: Callable[[float], None]) -> Float32:
    """Return a position Float32[N, 2] for each of N unit vectors Float32[N, D].

    Args:
        vectors: of documents; equal ones get different positions close to each other.
        advanced: is called with the share that is done, and stops the layout by raising.
    """
    positions = _start(vectors)
    if len(vectors) < _FEWEST:
        return positions
    neighbours = neighbours_of(vectors, min(NEIGHBOURS, len(vectors) // 4))
    rows, columns, begins = _edges(neighbours)
    velocity = np.zeros_like(positions)
    spectra = lru_cache(maxsize=1)(_spectra)
    for step in range(STEPS):
        exaggeration = _EXAGGERATION if step < _GATHERED else 1.0
        offsets = positions[columns] - positions[rows]
        offsets /= (1.0 + np.einsum("ed,ed->e", offsets, offsets))[:, None]
        attraction = np.add.reduceat(offsets, begins) * (exaggeration / len(rows))
        rate = len(vectors) / exaggeration
        velocity *= 0.5 if step < _GATHERED else 0.8
        velocity += 4 * rate * (attraction + _repulsion(positions, spectra))
        longest = np.abs(velocity).max(axis=1, keepdims=True)
        velocity *= np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-12))
        positions += velocity
        advanced((step + 1) / STEPS)
    return positions


def between(vectors: Float32, landmarks: Float32, positions: Float32) -> Float32:
    """Place documents amid those that they are nearest to: positions Float32[N, 2].

    Args:
        vectors: Float32[N, D], of unit norm.
        landmarks: Float32[L, D], of documents that are laid out, at positions Float32[L, 2].
    """
    cosines = vectors @ landmarks.T
    near = np.argpartition(-cosines, _NEAREST, axis=1)[:, :_NEAREST]
    weights = np.take_along_axis(cosines, near, axis=1)
    weights = np.exp(_SHARPNESS * (weights - weights.max(axis=1, keepdims=True)))
    middle = (positions[near] * weights[:, :, None]).sum(axis=1)
    placed: Float32 = middle / weights.sum(axis=1)[:, None]
    return placed


def _start(vectors: Float32) -> Float32:
    """Return about the first two principal components, of unit variance, and a little noise."""
    random = np.random.default_rng(0)
    noise = random.normal(scale=0.01, size=(len(vectors), 2))
    if len(vectors) < 2:
        return np.zeros((len(vectors), 2), dtype=np.float32)
    centred = vectors - vectors.mean(axis=0)
    axes = random.normal(size=(vectors.shape[1], 2)).astype(np.float32)
    for _ in range(20):  # of subspace iteration, a fraction of the time of all components
        axes = np.linalg.qr(centred.T @ (centred @ axes))[0]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    start = centred @ axes
    positions = np.zeros((len(vectors), 2))
    positions[:, : start.shape[1]] = start / max(float(start.std()), 1e-6)
    return (positions + noise).astype(np.float32)


def _edges(neighbours: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the pairs of neighbours in both directions by their first, and where each begins."""
    number, k = neighbours.shape
    rows = np.repeat(np.arange(number), k)
    columns = neighbours.ravel()
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    order = np.argsort(both[0], kind="stable")
    rows, columns = both[0][order], both[1][order]
    return rows, columns, np.searchsorted(rows, np.arange(number))


def _repulsion(positions: Float32, spectra: Callable[[int, float], Complex]) -> Float32:
    """Return the force of all positions Float32[N, 2] on each, by a grid if they are many."""
    if len(positions) < _FEW:
        offsets = positions[:, None] - positions
        affinity = 1 / (1 + np.square(offsets).sum(axis=2))
        pushed: Float32 = np.einsum("nm,nmd->nd", affinity**2, offsets)
        return pushed / max(float(affinity.sum()) - len(positions), 1e-12)
    low = positions.min(axis=0)
    extent = float((positions.max(axis=0) - low).max())
    most = np.clip(4 * len(positions) ** 0.5, *_CELLS)  # equal documents drift far apart
    cells = int(64 * np.ceil(np.clip(extent / _CELL, _CELLS[0], most) / 64))
    side = _CELL if extent <= _CELL * cells > _CELL * _CELLS[0] else extent / cells
    scaled = (positions - low) / side
    corner = scaled.astype(np.int64)
    share = scaled - corner
    weights = np.stack([1 - share, share])  # [2, N, 2]
    size = 2 * (cells + 2)
    places = [
        ((corner[:, 0] + x) * size + corner[:, 1] + y, weights[x, :, 0] * weights[y, :, 1])
        for x in (0, 1)
        for y in (0, 1)
    ]
    density = np.zeros(size * size)
    for place, weight in places:
        density += np.bincount(place, weight, size * size)
    spectrum = np.fft.rfft2(density.reshape(size, size).astype(np.float32))
    fields = np.fft.irfft2(spectrum * spectra(size, side), (size, size))
    flat = fields.reshape(3, -1)
    at = sum(weight * flat[:, place] for place, weight in places)
    total = max(float(at[0].sum()) - len(positions), 1e-12)
    forces: Float32 = (at[1:].T / total).astype(np.float32)
    return forces


def _spectra(size: int, side: float) -> Complex:
    """Return the spectra of the kernels: of the affinity, and of the force along each axis."""
    steps = np.fft.fftfreq(size, 1 / size) * side
    x, y = np.meshgrid(steps, steps, indexing="ij")
    affinity = 1 / (1 + x * x + y * y)
    kernels = np.stack([affinity, affinity**2 * x, affinity**2 * y]).astype(np.float32)
    return np.fft.rfft2(kernels)
