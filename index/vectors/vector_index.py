"""The port of the searchable copy: what every index engine does for Longmatch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from encoder.arrays import Float32, Int64
from index.id_set import IdSet

NO_VECTOR = -1


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The nearest vectors of each query, best first.

    Attributes:
        ids: Int64[Q, k], vector ids; `NO_VECTOR` where fewer than k were found.
        scores: Float32[Q, k], cosines; -inf where fewer than k were found.
        sequence: of the store that the index held while it was searched; 0 where it keeps none.
        generation: of the index that was searched; 0 where it has none.
    """

    ids: Int64
    scores: Float32
    sequence: int = 0
    generation: int = 0


class VectorIndex(Protocol):
    """Unit vectors under ids that the document store gave out. Safe to use from many threads."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        ...

    def __len__(self) -> int:
        """Return how many vectors can be found."""
        ...

    def add(self, ids: Int64, vectors: Float32) -> None:
        """Add vectors Float32[N, dimension] under ids Int64[N]; all of them or none.

        Raises:
            ValueError: a wrong shape, a vector that is not finite, an id below 0, given twice or
                already there (to replace a vector, remove it first).
        """
        ...

    def remove(self, ids: Int64) -> int:
        """Remove the vectors of ids Int64[N] and return how many of them were there."""
        ...

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k vectors of highest cosine for each query Float32[Q, dimension].

        Args:
            vectors: queries of unit norm.
            k: how many to find for each.
            nprobe: cells visited for each query; None takes the engine's default.
            among: find no other vectors; of these k, whenever there are k. As many more cells
                are visited as that takes.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        ...

    def save(self, path: Path) -> None:
        """Write the index to one new file.

        Raises:
            OSError: the file cannot be written whole.
        """
        ...
