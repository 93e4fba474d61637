"""What a live index searches: one generation, with all that belongs to it."""

from dataclasses import dataclass

from index.drift import Training
from index.faiss_index import FaissIndex
from index.recall import nprobe_bounds
from index.snapshot import Manifest


@dataclass(frozen=True, slots=True)
class Retrained:
    """What became of a new generation.

    Attributes:
        swapped: whether it is searched now; else the old one is, as before.
        recall: recall@10 of the new one on held-out vectors, against exact search.
        old_recall: that of the old one on the same vectors.
        nlist: lists of the new one.
        nprobe: lists that a query of the new one visits.
    """

    swapped: bool
    recall: float
    old_recall: float
    nlist: int
    nprobe: int


@dataclass(frozen=True, slots=True)
class Served:
    """What is searched: one generation, never changed but replaced, so that its parts agree."""

    index: FaissIndex
    generation: int
    training: Training
    nprobe: int
    published: int  # the sequence that the snapshot of this generation holds


def served_from(manifest: Manifest, index: FaissIndex) -> Served:
    """Return what to serve of a snapshot; earlier releases did not write all of its manifest."""
    least, most = nprobe_bounds(index.nlist)
    training = Training(
        manifest.sequence if manifest.trained_sequence is None else manifest.trained_sequence,
        manifest.vectors if manifest.trained_vectors is None else manifest.trained_vectors,
    )
    nprobe = least if manifest.nprobe is None else min(max(least, manifest.nprobe), most)
    return Served(index, manifest.generation, training, nprobe, manifest.sequence)
