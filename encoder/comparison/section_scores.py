"""Scores of sections and chunks by a model with vectors of sections (CoLDE, section 4.3).

A section is made of the sentence blocks that begin in it, as in training. The attention between two
texts is what the model learned between a section and the next one: here the other text is the next.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.comparison.result import AttendedBlockPair, Section, Span

MAX_PAIRS = 512  # of attended blocks


class SectionReader(Protocol):
    """The part of an encoder that reads sections; see `encoder.onnx_encoder.OnnxEncoder`."""

    def section_vector(
        self, blocks: Float32, number: int, next_blocks: Float32, next_number: int
    ) -> Float32:
        """Return the vector [D] of a section, of unit norm."""
        ...

    def chunk_attention(self, blocks: Float32, next_blocks: Float32) -> Float32 | None:
        """Return how much blocks attend to those of a following section: [S, T]."""
        ...


def section_vectors(
    reader: SectionReader, block_vectors: Float32, offsets: Int64, sections: Sequence[Section]
) -> Float32:
    """Return the vector of each section of a text.

    Sections follow one another as in training: after the last comes the first.

    Args:
        reader: of the model that made the block vectors.
        block_vectors: [S, H] of the text, at least one.
        offsets: [S, 2], first character and the character after the last of each block.
        sections: L of the text, in order.

    Returns:
        [L, D], unit norm; zero for a section in a part that was not read.
    """
    places = [np.arange(*one) for one in blocks_of_sections(offsets, sections)]
    read = [number for number, place in enumerate(places) if len(place)]
    found = []
    for number, section in enumerate(read):
        after = (number + 1) % len(read)
        own, following = block_vectors[places[section]], block_vectors[places[read[after]]]
        found.append(reader.section_vector(own, number, following, after))
    vectors = np.zeros((len(sections), len(found[0])), dtype=np.float32)
    vectors[read] = found
    return vectors


def blocks_of_sections(offsets: Int64, sections: Sequence[Section]) -> list[tuple[int, int]]:
    """Return the blocks of each section, as (first, after the last).

    They are the blocks that begin in the section; where none does, those that reach into it, and
    none where the section was not read.
    """
    starts = [0, *(section.span.start for section in sections[1:]), sections[-1].span.end]
    cuts = np.searchsorted(offsets[:, 0], starts, side="left").tolist()
    found = []
    for (first, last), section in zip(pairwise(cuts), sections, strict=True):
        if first == last:  # the block before it may reach into it
            first -= first > 0 and offsets[first - 1, 1] > section.span.start
        found.append((int(first), last))
    return found


def attended_blocks(
    reader: SectionReader, left: tuple[Float32, Int64], right: tuple[Float32, Int64]
) -> tuple[AttendedBlockPair, ...] | None:
    """Return the pairs of blocks of two texts that attend to each other most.

    Args:
        reader: of the model that made the block vectors.
        left: block vectors [S, H] and offsets [S, 2] of one text.
        right: [T, H] and [T, 2] of the other.

    Returns:
        At most `MAX_PAIRS`, the strongest first; None where the model has no attention.
    """
    there = reader.chunk_attention(left[0], right[0])  # [S, T], rows sum to 1
    back = reader.chunk_attention(right[0], left[0])  # [T, S]
    if there is None or back is None:
        return None
    times = (there * len(back) + back.T * len(there)) / 2  # even weights are 1 / T and 1 / S
    best = np.argsort(-times, axis=None, kind="stable")[:MAX_PAIRS]
    return tuple(
        AttendedBlockPair(
            Span(*left[1][row].tolist()),
            Span(*right[1][column].tolist()),
            float(there[row, column]),
            float(back[column, row]),
            float(times[row, column]),
        )
        for row, column in zip(*np.unravel_index(best, times.shape), strict=True)
    )
