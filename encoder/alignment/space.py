"""The space that block vectors are aligned in, and the statistics of a corpus that make it.

Block vectors of one corpus resemble each other: they share a mean, few directions hold most of the
variance, and some blocks ("hubs": boilerplate, lists) are close to all others. A space removes
all three: it subtracts the mean, whitens (divides by a power of the standard deviation along the
principal axes), and knows a sample of the corpus, the background, against which the hubness of a
block is measured.

    x -> normalise((x - mean) projection)
    hubness(x) = mean cosine of x to the `NEIGHBOURS` nearest blocks of the background

Where the vector of a document is the mean of those of its blocks, a space whitens it, too: along
the axes of the blocks, all of them, and less the mean of document vectors.

The hubness is the mean similarity r of cross-domain similarity local scaling (CSLS; Conneau et al.,
"Word translation without parallel data", ICLR 2018, section 2.3); common blocks count less for it,
as frequent words do for their inverse document frequency.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Float64, Int8, Int64, read_arrays, unit
from encoder.checkpoint import ALIGNMENT, Checkpoint, read_verified, write_manifest
from encoder.errors import CheckpointError

DIMENSION = 128
NEIGHBOURS = 10
BACKGROUND = 4_000  # blocks
MAX_BLOCKS = 96  # of a document; of longer ones, blocks at equal distances
MIN_SAMPLE = 2_000  # blocks; fewer say too little about the principal axes
MIN_DOCUMENTS = 100  # the statistics of fewer are those of their topics
BLOCKS_AN_AXIS = 4  # to whiten documents; of fewer, the last axes would be noise that is enlarged
SAMPLE_DOCUMENTS = 2_000  # their block vectors are held in memory
SAMPLE_BLOCKS = 20_000
WHITENING_POWER = 0.5
COMMON_HUBNESS = 2.0  # of a block of common text: no cosine is more than half of it
_ARRAYS = ("mean", "projection", "background", "background_scales")
_INT8 = 127.0
_SMALLEST = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class AlignedBlocks:
    """The blocks of one document in a space.

    Attributes:
        codes: Int8[S, D], the vectors times 127 / their largest number.
        scales: Float32[S], what codes are multiplied by; the vectors then have unit norm.
        hubness: Float32[S].
    """

    codes: Int8
    scales: Float32
    hubness: Float32

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """How document vectors are whitened that are the means of block vectors.

    Attributes:
        mean: Float32[H].
        projection: Float32[H, H].
    """

    mean: Float32
    projection: Float32


@dataclass(frozen=True, eq=False)
class AlignmentSpace:
    """A space to align block vectors in, and to compare document vectors in.

    Attributes:
        mean: Float32[H].
        projection: Float32[H, D].
        background: Int8[B, D], blocks of a corpus in this space, as codes; B may be 0.
        background_scales: Float32[B].
        documents: how document vectors are whitened; None where they are compared as they are.
    """

    mean: Float32
    projection: Float32
    background: Int8
    background_scales: Float32
    documents: Whitening | None = None

    @property
    def dimension(self) -> int:
        """Width D of a vector in this space."""
        return int(self.projection.shape[1])

    def project(self, vectors: Float32) -> AlignedBlocks:
        """Project block vectors [S, H], at most `MAX_BLOCKS` of them.

        Raises:
            ValueError: they have another width than the space.
        """
        if vectors.shape[1] != len(self.mean):
            raise ValueError(
                f"block vectors of {vectors.shape[1]} numbers in a space for {len(self.mean)}"
            )
        chosen = vectors[choose_blocks(len(vectors))]
        codes, scales = quantise(_transform(chosen, self.mean, self.projection))
        return AlignedBlocks(codes, scales, self._hubness(codes * scales[:, None]))

    def whiten(self, vectors: Float32) -> Float32:
        """Return document vectors [N, dimension] as they are compared, at unit norm."""
        if self.documents is None:
            return vectors
        return _transform(vectors, self.documents.mean, self.documents.projection)

    def _hubness(self, rows: Float32) -> Float32:
        """Return the hubness [S] of vectors [S, D]; 0 without a background."""
        if not len(self.background):
            return np.zeros(len(rows), dtype=np.float32)
        nearest = min(NEIGHBOURS, len(self.background))
        cosines = rows @ self._background_rows.T
        cosines.partition(len(self.background) - nearest, axis=1)
        hubness: Float32 = cosines[:, -nearest:].mean(axis=1)
        return hubness

    @cached_property
    def _background_rows(self) -> Float32:
        return self.background * self.background_scales[:, None]


def choose_blocks(count: int) -> Int64:
    """Return which of `count` blocks are aligned: all, or `MAX_BLOCKS` at equal distances."""
    return at_equal_distances(count, MAX_BLOCKS)


def at_equal_distances(count: int, limit: int) -> Int64:
    """Return all of `count` positions, or `limit` of them at equal distances."""
    chosen = min(count, limit)
    return np.arange(chosen, dtype=np.int64) * count // max(chosen, 1)


def sample_blocks(documents: Sequence[NDArray[np.floating]]) -> Float32:
    """Return the block vectors that a space is fitted to, of at least one document of [S, H]."""
    chosen = at_equal_distances(len(documents), SAMPLE_DOCUMENTS).tolist()
    each = max(1, SAMPLE_BLOCKS // len(chosen))
    parts = [documents[row][at_equal_distances(len(documents[row]), each)] for row in chosen]
    return np.concatenate(parts).astype(np.float32)


def fit_to_blocks(
    documents: Sequence[NDArray[np.floating]], *, whitens: bool
) -> AlignmentSpace | None:
    """Fit a space to the block vectors [S, H] of documents; None of too few blocks.

    Args:
        documents: of a corpus, of which some are sampled.
        whitens: whether their vectors are the means of these, which are whitened.
    """
    sample = sample_blocks(documents)
    if len(sample) < MIN_SAMPLE:
        return None
    if not whitens:
        return fit_space(sample)
    means = [blocks.mean(axis=0, dtype=np.float32) for blocks in documents if len(blocks)]
    return fit_space(sample, documents=unit(np.stack(means)))


def fit_space(
    sample: Float32, *, dimension: int = DIMENSION, documents: Float32 | None = None
) -> AlignmentSpace:
    """Fit a space to block vectors of a corpus.

    Deterministic: the background are rows at equal distances.

    Args:
        sample: [N, H] block vectors of many documents, in any order.
        dimension: of the space; H where that is fewer.
        documents: [M, H] vectors of documents, where these are to be whitened; they stay as they
            are with fewer than `BLOCKS_AN_AXIS` H blocks.

    Raises:
        ValueError: there are fewer than `MIN_SAMPLE` blocks, or one is not finite.
    """
    if len(sample) < MIN_SAMPLE:
        raise ValueError(f"{len(sample)} blocks are fewer than {MIN_SAMPLE}")
    if not np.isfinite(sample).all():
        raise ValueError("a block vector is not finite")
    mean: Float64 = sample.mean(axis=0, dtype=np.float64)
    centred = sample - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(sample))
    deviations = np.sqrt(np.maximum(variances[::-1], variances[-1] * 1e-6 + _SMALLEST**2))
    whitened = (axes[:, ::-1] * deviations**-WHITENING_POWER).astype(np.float32)
    background = sample[at_equal_distances(len(sample), BACKGROUND)]
    space = mean.astype(np.float32), whitened[:, :dimension].copy()
    whitening = None
    if documents is not None:
        enough = len(sample) >= BLOCKS_AN_AXIS * len(mean)
        whitening = Whitening(documents.mean(axis=0), whitened) if enough else _neutral(len(mean))
    return AlignmentSpace(*space, *quantise(_transform(background, *space)), whitening)


def neutral_space(width: int, *, whitens: bool = False) -> AlignmentSpace:
    """Return the space of cosines of the vectors [., width] themselves.

    With `whitens`, a space that is fitted after it whitens document vectors.
    """
    same = _neutral(width)
    codes, scales = quantise(same.projection[:0])
    return AlignmentSpace(
        same.mean, same.projection, codes, scales, documents=same if whitens else None
    )


def _neutral(width: int) -> Whitening:
    return Whitening(np.zeros(width, dtype=np.float32), np.eye(width, dtype=np.float32))


def quantise(rows: Float32) -> tuple[Int8, Float32]:
    """Return codes Int8[N, D] and scales Float32[N] of vectors [N, D]; products have unit norm."""
    largest = np.abs(rows).max(axis=1, initial=_SMALLEST, keepdims=True)
    codes = np.rint(rows * (_INT8 / largest)).astype(np.int8)
    norms = np.linalg.norm(codes.astype(np.float32), axis=1)
    return codes, np.reciprocal(np.maximum(norms, 1.0), dtype=np.float32)


def _transform(vectors: Float32, mean: Float32, projection: Float32) -> Float32:
    rows: Float32 = ((vectors - mean) @ projection).astype(np.float32, copy=False)
    return unit(rows)


def write_space(space: AlignmentSpace) -> bytes:
    """Serialise a space as an .npz file."""
    file = io.BytesIO()
    arrays = {name: getattr(space, name) for name in _ARRAYS}
    if space.documents is not None:
        arrays["document_mean"] = space.documents.mean
        arrays["document_projection"] = space.documents.projection
    np.savez(file, **arrays)
    return file.getvalue()


def read_space(data: bytes) -> AlignmentSpace:
    """Read what `write_space` wrote.

    Raises:
        ValueError: it is something else, or damaged.
    """
    try:
        arrays = read_arrays(data)
        whitening = None
        if "document_mean" in arrays:
            whitening = Whitening(arrays["document_mean"], arrays["document_projection"])
        space = AlignmentSpace(**{name: arrays[name] for name in _ARRAYS}, documents=whitening)
    except (KeyError, ValueError) as error:
        raise ValueError(f"not an alignment space: {error}") from error
    _check(space)
    return space


def _check(space: AlignmentSpace) -> None:
    if space.projection.ndim != 2:
        raise ValueError(f"the projection has shape {space.projection.shape}")
    width, dimension = space.projection.shape
    blocks, documents = len(space.background), space.documents
    expected: dict[str, tuple[NDArray[Any], tuple[int, ...], type]] = {
        "mean": (space.mean, (width,), np.float32),
        "projection": (space.projection, (width, dimension), np.float32),
        "background": (space.background, (blocks, dimension), np.int8),
        "background_scales": (space.background_scales, (blocks,), np.float32),
    }
    if documents is not None:
        expected["document_mean"] = (documents.mean, (width,), np.float32)
        expected["document_projection"] = (documents.projection, (width, width), np.float32)
    for name, (array, shape, kind) in expected.items():
        if array.shape != shape or array.dtype != kind:
            raise ValueError(f"{name} has shape {array.shape} of {array.dtype}")


def open_space(checkpoint: Checkpoint) -> AlignmentSpace:
    """Return the space of a checkpoint: of its training documents, or else the neutral one."""
    if ALIGNMENT not in checkpoint.files:
        return neutral_space(checkpoint.block_dimension, whitens=checkpoint.mean_of_blocks)
    path = checkpoint.directory / ALIGNMENT
    try:
        space = read_space(read_verified(checkpoint.directory, checkpoint.files, ALIGNMENT))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if len(space.mean) != checkpoint.block_dimension:
        raise CheckpointError(
            f"{path}: is for block vectors of {len(space.mean)} numbers, "
            f"not {checkpoint.block_dimension}"
        )
    return space


def write_checkpoint_space(directory: Path, space: AlignmentSpace) -> None:
    """Write the space into a checkpoint and update its manifest."""
    (directory / ALIGNMENT).write_bytes(write_space(space))
    write_manifest(directory)
