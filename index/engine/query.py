"""The input of an engine: a query; and the time that the stages of its search take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from encoder.arrays import Float32, Int64
from index.lexical.scoring import LexicalQuery
from index.vectors.vector_index import NO_VECTOR

SearchStage = Literal["lexical", "search", "align", "fetch"]
Seconds = dict[SearchStage, float]  # that the stages of a search have taken


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """The input of a search.

    Attributes:
        text: the whole text, whose words are read.
        vector: Float32[dimension] of unit norm, as the encoder gave it.
        title: of the text, if it has one.
        blocks: Float32[S, H], its block vectors; not needed of a stored document.
        vector_id: of a stored document, which is left out of its own matches.
        terms: of the text, if they were read before.
        offsets: Int64[S, 2], the first character of each block and the one after its last; without
            them, blocks of common text count like others.
    """

    text: str
    vector: Float32
    title: str = ""
    blocks: Float32 | None = None
    vector_id: int = NO_VECTOR
    terms: LexicalQuery | None = None
    offsets: Int64 | None = None


@contextmanager
def timed(seconds: Seconds, stage: SearchStage) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
