"""A text prepared for comparisons: its words, sentences, sections and vectors."""

from dataclasses import dataclass

import numpy as np

from encoder.alignment.space import AlignedBlocks, choose_blocks
from encoder.arrays import Float32, Int64, unit
from encoder.comparison.matches import Sentences, Words, cut_sentences, locate_words
from encoder.comparison.result import Section, Span
from encoder.comparison.sections import SectionReader, find_sections, section_vectors
from encoder.payload import blank_payload
from encoder.sentences import split_sentences


@dataclass(frozen=True, slots=True)
class ComparableText:
    """A text with everything that a comparison needs; `prepare_text` makes it.

    Attributes:
        text: the whole of it.
        vector: Float32[D], its document vector as it is compared, unit norm.
        block_vectors: Float32[S, H], unit norm.
        offsets: Int64[S, 2], characters of each block.
        words: of the text.
        sentences: of the text.
        sections: of the text.
        aligned: the chosen blocks in an alignment space; None without one.
        section_vectors: Float32[L, D] of the sections, unit norm; None where the model has none.
    """

    text: str
    vector: Float32
    block_vectors: Float32
    offsets: Int64
    words: Words
    sentences: Sentences
    sections: tuple[Section, ...]
    aligned: AlignedBlocks | None
    section_vectors: Float32 | None


def prepare_text(
    text: str,
    vector: Float32,
    block_vectors: Float32,
    offsets: Int64,
    *,
    aligned: AlignedBlocks | None = None,
    reader: SectionReader | None = None,
    language: str = "en",
) -> ComparableText:
    """Find the words, sentences and sections of a text, once for all comparisons.

    Args:
        text, vector, block_vectors, offsets, aligned: as of a `ComparableText`.
        reader: of sections, of the model that made the block vectors; None where it has none.
        language: of the text, ISO 639-1.

    Raises:
        ValueError: there is no block, or not one offset a block, or the aligned blocks are others.
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    if not len(block_vectors) or offsets.shape != (len(block_vectors), 2):
        raise ValueError(f"{len(block_vectors)} block vectors do not fit {offsets.shape} offsets")
    expected = len(choose_blocks(len(block_vectors)))
    if aligned is not None and len(aligned) != expected:
        raise ValueError(f"{len(aligned)} aligned blocks, not the expected {expected}")
    words, sections = locate_words(text), find_sections(text)
    block_vectors = block_vectors.astype(np.float32, copy=False)
    read = None
    if reader is not None:
        read = section_vectors(reader, block_vectors, offsets, sections)
    return ComparableText(
        text=text,
        vector=vector,
        block_vectors=block_vectors,
        offsets=offsets,
        words=words,
        sentences=cut_sentences(list(split_sentences(blank_payload(text)[0], language)), words),
        sections=sections,
        aligned=aligned,
        section_vectors=read,
    )


def span_vectors(read: ComparableText, spans: list[Span]) -> Float32:
    """Return the mean of the blocks that each span touches, weighted by characters: [P, H].

    They have unit norm, or are zero for a span in a part that was not read.
    """
    table = np.array(spans, dtype=np.int64).reshape(-1, 2)
    ends = np.minimum(table[:, 1:], read.offsets[:, 1])
    starts = np.maximum(table[:, :1], read.offsets[:, 0])
    weights = np.maximum(ends - starts, 0).astype(np.float32)
    return unit(weights @ read.block_vectors)
