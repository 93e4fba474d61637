"""Question and answer of POST /compare."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, Field

from encoder.comparison import result
from encoder.comparison.alignment import MAX_PASSAGES
from index.search.calibrate import CHANCE_DOCUMENTS
from index.search.records import Mode
from service.compare.logic import Explanation
from service.schemas import STAGE_TIMES, BodyModel, QueryBody, ReceiptBody, Strict, nullable


class PlaceBody(BaseModel):
    """A part of one of the two texts."""

    start: int = Field(description="Its first character in the whole text, from 0.")
    end: int = Field(description="The character after its last.")
    text: str


class PairBody(BaseModel):
    """A part of the left text and a part of the right text."""

    left: PlaceBody
    right: PlaceBody


class PassageBody(PairBody):
    """A passage of the left text and the passage of the right text that matches it."""

    score: float = Field(description="Cosine of the mean block vectors of the two sides.")
    kind: result.PassageKind = Field(
        description="`verbatim`: the same words; `paraphrase`: the same said in other words; "
        "`similar`: of the same matter, and not counted as covered."
    )


class BlockPairBody(PairBody):
    """A sentence block of the left text and the block of the right text aligned with it."""

    similarity: float = Field(
        description="Of the two blocks, in the space that they are aligned in; at most 1."
    )
    share: float = Field(description="What the pair gives to `alignment_score`, divided by it.")


class AttendedPairBody(PairBody):
    """A sentence block of the left text and a block of the right text that attend to each other."""

    left_attention: float = Field(
        description="Attention weight of the left block to the right one, the mean over the heads. "
        "The weights of a left block to all blocks of the right text sum to 1."
    )
    right_attention: float = Field(description="The same of the right block to the left one.")
    times_average: float = Field(
        description="How many times the weights of even attention these are, the mean of both "
        "ways; the mean over all pairs of blocks is 1."
    )


class DifferenceBody(PlaceBody):
    """A sentence block of one text that the other does not have."""

    kind: result.DifferenceKind = Field(
        description="`missing`: most of its words are in no passage that the texts share; "
        "`changed`: the other text has it with other words."
    )
    words: list[PlaceBody] = Field(
        description="The runs of its words that the other text does not have in this order."
    )
    nearest: PlaceBody | None = nullable(
        "The block of the other text that is closest in meaning; null for a sentence in a part "
        "that was not read."
    )
    similarity: float | None = nullable("Cosine of these two blocks; null without `nearest`.")


class DifferencesBody(BaseModel):
    """What each text has that the other lacks, block by block, in its order."""

    left: list[DifferenceBody] = Field(description="What the left text has and the right lacks.")
    right: list[DifferenceBody] = Field(description="What the right text has and the left lacks.")


class SectionBody(BaseModel):
    """A section of a text: what its headings open, or one of two halves."""

    start: int
    end: int
    title: str = Field(description='Its heading; "" where there is none.')


class ScoresBody(BaseModel):
    """The scores of two documents."""

    semantic_score: float = Field(
        description="Weighted mean of `vector_score` and `alignment_score`, with the weight of the "
        "mode; where the latter is null, of what the former lets expect of it."
    )
    vector_score: float = Field(description="Cosine of the two document vectors.")
    alignment_score: float | None = nullable(
        "How well the sentence blocks of the two documents match, from 0 to 1; null where they "
        "were not aligned."
    )
    lexical_score: float | None = nullable(
        "Cosine of the words of the two documents; null where they were not read, as in semantic "
        "mode."
    )
    probability: float | None = nullable(
        "Probability that they match, among pairs half of which do; null where `no_probability` "
        "says why."
    )
    false_positive_rate: float | None = nullable(
        "Share of random pairs of the corpus that score as high; null where that was not measured: "
        "fewer than 100 documents, or not yet; and with `like`."
    )
    relevant: bool | None = nullable(
        "Whether the score rises above the level of chance: at most "
        f"{CHANCE_DOCUMENTS} of the measured documents, `false_positive_rate` of them, would reach "
        "it if they were random; null where `false_positive_rate` is."
    )


class ComparisonBody(ScoresBody):
    """How two texts match, and where. Offsets count characters of the whole text."""

    score: float = Field(
        description="What a search for the left text in hybrid mode gives the right one."
    )
    scored_as: Mode = Field(
        description="Whose score it is: `semantic` if the left text has no indexed word, or while "
        "the lexical index is being made after a start."
    )
    no_probability: str | None = nullable("Why there is no probability; null where there is.")
    relation: result.Relation
    evidence: list[str] = Field(description="What the relation rests on, a sentence a figure.")
    left_coverage: float = Field(
        description="Share of the left text, by the characters of its words, in verbatim and "
        "paraphrased passages."
    )
    right_coverage: float = Field(description="The same of the right text.")
    passages: list[PassageBody] = Field(description="In the order of the left text.")
    passages_left_out: int = Field(description="Smaller passages that were found, too.")
    aligned_blocks: list[BlockPairBody] | None = nullable(
        "The pairs of blocks that give most to `alignment_score`, the largest share first, at most "
        "as many as passages were asked for; the shares of all pairs sum to 1."
    )
    left_sections: list[SectionBody]
    right_sections: list[SectionBody]
    section_scores: list[list[float]] = Field(
        description="Cosine of each left section, a row, and each right section, a column."
    )
    section_scores_from: result.SectionScoresFrom = Field(
        description="The vectors that `section_scores` compare. `section vectors`: what the model "
        "projects each section to, as it was trained (CoLDE). `block vectors`: means of the "
        "vectors of sentence blocks."
    )
    attended_blocks: list[AttendedPairBody] | None = nullable(
        "The pairs of blocks that attend to each other most by the chunkwise attention of the "
        "model (CoLDE), the strongest first, at most as many as passages were asked for; null "
        "for a model without it."
    )


def comparison_json(explanation: Explanation) -> dict[str, Any]:
    """Return a comparison as a `ComparisonBody`, with the text of its passages and blocks."""
    comparison = explanation.comparison
    aligned, attended = comparison.block_alignment, comparison.attended_blocks
    texts = (explanation.left.text, explanation.right.text)
    return {
        **asdict(comparison.pair),
        "relation": comparison.relation,
        "evidence": comparison.evidence,
        "left_coverage": comparison.left_coverage,
        "right_coverage": comparison.right_coverage,
        "passages": _pairs(comparison.passages, texts),
        "passages_left_out": explanation.passages_left_out,
        "aligned_blocks": None if aligned is None else _pairs(aligned.pairs, texts),
        "left_sections": [_section(section) for section in comparison.left_sections],
        "right_sections": [_section(section) for section in comparison.right_sections],
        "section_scores": [
            [round(score, 4) for score in row] for row in comparison.section_scores.tolist()
        ],
        "section_scores_from": comparison.section_scores_from,
        "attended_blocks": None if attended is None else _pairs(attended, texts),
    }


def _pairs(
    pairs: Sequence[result.AlignedPassage | result.AlignedBlockPair | result.AttendedBlockPair],
    texts: tuple[str, str],
) -> list[dict[str, Any]]:
    """Return what parts of two texts have in common, with these parts."""
    return [
        {**asdict(pair), "left": _place(pair.left, texts[0]), "right": _place(pair.right, texts[1])}
        for pair in pairs
    ]


def _place(span: result.Span, text: str) -> dict[str, Any]:
    return {**span._asdict(), "text": text[slice(*span)]}


def _section(section: result.Section) -> dict[str, Any]:
    return {**section.span._asdict(), "title": section.title}


def differences_json(found: result.Differences, left: str, right: str) -> dict[str, Any]:
    """Return the differences of two texts, with the text of their blocks and words."""
    return {
        "left": [_difference(entry, left, right) for entry in found.left],
        "right": [_difference(entry, right, left) for entry in found.right],
    }


def _difference(found: result.Difference, text: str, other: str) -> dict[str, Any]:
    return {
        **_place(found.span, text),
        "kind": found.kind,
        "words": [_place(words, text) for words in found.words],
        "nearest": None if found.nearest is None else _place(found.nearest, other),
        "similarity": found.similarity,
    }


DEFAULT_PASSAGES = 100


class CompareRequest(BodyModel):
    """Two texts to compare, which the answer and the page call by their titles."""

    left: QueryBody
    right: QueryBody
    passages: Annotated[int, Field(ge=0, le=MAX_PASSAGES)] = Field(
        default=DEFAULT_PASSAGES,
        description="Passages, and pairs of aligned blocks, to give at most, the largest ones.",
    )
    differences: bool = Field(
        default=False,
        description="Give `differences`, too: what each text has that the other lacks.",
    )
    strict: Strict = False


class ReadBody(BaseModel):
    """One of the two texts as it was read."""

    id: str | None = nullable("Of the stored document; null for a text of the request.")
    title: str
    receipt: ReceiptBody


class CompareResponse(ComparisonBody):
    """How two texts match, and where."""

    differences: DifferencesBody | None = nullable(
        "What each text has that the other lacks; null if it was not asked for."
    )
    left: ReadBody
    right: ReadBody
    timings: dict[str, float] = Field(description=STAGE_TIMES)
    checkpoint: str = Field(description="Name of the checkpoint that made the vectors.")
    calibration: str | None = nullable(
        "Version of the calibration that made the probability; null for none."
    )
