"""The result of a comparison: scores, sections, aligned passages, coverage, relation.

The two texts are called left and right. Positions are character offsets into the whole text.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from encoder.arrays import Float32

Relation = Literal["identical", "near-copy", "paraphrase", "same topic", "uncertain", "unrelated"]
PassageKind = Literal["verbatim", "paraphrase", "similar"]
SectionScoresFrom = Literal["section vectors", "block vectors"]


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a text.

    Attributes:
        span: its position, heading included.
        title: the heading, or "" where the text has none and was cut into equal parts.
    """

    span: Span
    title: str


@dataclass(frozen=True, slots=True)
class AlignedPassage:
    """A passage of the left text and the passage of the right text that matches it.

    Attributes:
        score: mean cosine of the block vectors of the two sides, between -1 and 1.
        kind: "verbatim" if the words are equal, "paraphrase" if only the meaning is, "similar" if
            both are about the same subject.
    """

    left: Span
    right: Span
    score: float
    kind: PassageKind


@dataclass(frozen=True, slots=True)
class AlignedBlockPair:
    """A sentence block of the left text and the block of the right text that it is aligned with.

    Attributes:
        similarity: of the two blocks in the space that they are aligned in.
        share: what the pair gives to the alignment score, divided by it.
    """

    left: Span
    right: Span
    similarity: float
    share: float


@dataclass(frozen=True, slots=True)
class BlockAlignment:
    """The alignment that search ranks by.

    Attributes:
        score: alignment score of the two texts.
        pairs: that give something to it, the largest share first; the shares of all sum to 1.
    """

    score: float
    pairs: tuple[AlignedBlockPair, ...]


@dataclass(frozen=True, slots=True)
class AttendedBlockPair:
    """A sentence block of the left text and a block of the right text that it attends to.

    Attributes:
        left_attention: of the left block to the right one; to all blocks of the right text it sums
            to 1.
        right_attention: of the right block to the left one, likewise.
        times_average: how many times the weights of even attention these are, the mean of both
            ways; the mean over all pairs is 1.
    """

    left: Span
    right: Span
    left_attention: float
    right_attention: float
    times_average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """What a search for one of two documents gives the other.

    Attributes:
        score: by the rule of the mode.
        scored_as: the mode, "hybrid" or "semantic".
        semantic_score: weighted mean of vector and alignment score, with the weight of the mode.
        vector_score: cosine of the two document vectors.
        alignment_score: of their sentence blocks, 0 to 1; None where they are not aligned.
        lexical_score: cosine of their words; None where they were not read.
        probability: that they match; None where that is not known.
        false_positive_rate: share of random pairs of the collection that score as high; or None.
        relevant: whether the score rises above the level of chance; or None.
        no_probability: why there is no probability; None where there is.
    """

    score: float
    scored_as: str
    semantic_score: float
    vector_score: float
    alignment_score: float | None
    lexical_score: float | None
    probability: float | None = None
    false_positive_rate: float | None = None
    relevant: bool | None = None
    no_probability: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How and where two texts match.

    Attributes:
        pair: the scores of the two texts.
        relation: the kind of relation.
        evidence: for it, in sentences, with the figures on which it is based; the last is that of
            the scores.
        left_sections: of the left text, in order, at least one.
        right_sections: of the right text.
        section_scores: Float32[L, R], cosine of each left section and each right section.
        section_scores_from: the vectors that it is the cosine of: "section vectors" that the model
            projects itself, or means of "block vectors".
        passages: in the order of the left text.
        block_alignment: of their sentence blocks; None for texts without an alignment space.
        attended_blocks: the pairs of sentence blocks that attend to each other most, the
            strongest first; None where the model has no such attention.
        left_coverage: share of the characters of the left text found in the right one, 0 to 1.
        right_coverage: the same the other way.
    """

    pair: PairScore
    relation: Relation
    evidence: tuple[str, ...]
    left_sections: tuple[Section, ...]
    right_sections: tuple[Section, ...]
    section_scores: Float32
    section_scores_from: SectionScoresFrom
    passages: tuple[AlignedPassage, ...]
    block_alignment: BlockAlignment | None
    attended_blocks: tuple[AttendedBlockPair, ...] | None
    left_coverage: float
    right_coverage: float
