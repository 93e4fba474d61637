"""Whoever turns texts into document vectors in bench_encoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from encoder.arrays import Float32


@dataclass(frozen=True, slots=True)
class Contestant:
    """Texts to vectors in two steps, which are timed apart.

    Attributes:
        name: for people.
        precision: of its weights.
        batch_size: blocks or chunks that one call of its model takes; 0 for packed batches.
        tokenise: the texts of D documents -> what `encode` takes.
        encode: -> Float32[D, dimension], unit norm.
    """

    name: str
    precision: str
    batch_size: int
    tokenise: Callable[[Sequence[str]], Any]
    encode: Callable[[Any], Float32]
