"""How a comparison of two texts looks in an answer."""

from pydantic import BaseModel, Field

from encoder.comparison import AlignedPassage, PassageKind, Relation, Section, Span
from service.api.fields import nullable
from service.comparing import Explained


class PlaceBody(BaseModel):
    """A part of one of the two texts."""

    start: int = Field(description="Its first character in the whole text, from 0.")
    end: int = Field(description="The character after its last.")
    text: str


class PassageBody(BaseModel):
    """A passage of the left text and the passage of the right text that matches it."""

    left: PlaceBody
    right: PlaceBody
    score: float = Field(description="Cosine of the mean block vectors of the two sides.")
    kind: PassageKind = Field(
        description="`verbatim`: the same words; `paraphrase`: the same said in other words; "
        "`similar`: of the same matter, and not counted as covered."
    )


class SectionBody(BaseModel):
    """A section of a text: what its headings open, or one of two halves."""

    start: int
    end: int
    title: str = Field(description='Its heading; "" where there is none.')


class ComparisonBody(BaseModel):
    """How two texts match, and where. Offsets count characters of the whole text."""

    score: float = Field(description="Cosine of the two document vectors.")
    probability: float | None = nullable(
        "Probability that they match; null where the checkpoint has no calibration."
    )
    relation: Relation
    evidence: list[str] = Field(description="What the relation rests on, a sentence a figure.")
    left_coverage: float = Field(
        description="Share of the left text, by the characters of its words, in verbatim and "
        "paraphrased passages."
    )
    right_coverage: float = Field(description="The same of the right text.")
    passages: list[PassageBody] = Field(description="In the order of the left text.")
    passages_left_out: int = Field(description="Smaller passages that were found, too.")
    left_sections: list[SectionBody]
    right_sections: list[SectionBody]
    section_scores: list[list[float]] = Field(
        description="Cosine of each left section, a row, and each right section, a column."
    )


def comparison_body(explained: Explained) -> ComparisonBody:
    """Shape a comparison, with the text of its passages."""
    comparison = explained.comparison
    texts = (explained.left.text, explained.right.text)
    return ComparisonBody(
        score=comparison.score,
        probability=comparison.probability,
        relation=comparison.relation,
        evidence=list(comparison.evidence),
        left_coverage=comparison.left_coverage,
        right_coverage=comparison.right_coverage,
        passages=[_passage(passage, *texts) for passage in comparison.passages],
        passages_left_out=explained.passages_left_out,
        left_sections=[_section(section) for section in comparison.left_sections],
        right_sections=[_section(section) for section in comparison.right_sections],
        section_scores=[
            [round(score, 4) for score in row] for row in comparison.section_scores.tolist()
        ],
    )


def _passage(passage: AlignedPassage, left: str, right: str) -> PassageBody:
    return PassageBody(
        left=_place(passage.left, left),
        right=_place(passage.right, right),
        score=passage.score,
        kind=passage.kind,
    )


def _place(span: Span, text: str) -> PlaceBody:
    return PlaceBody(start=span.start, end=span.end, text=text[span.start : span.end])


def _section(section: Section) -> SectionBody:
    return SectionBody(start=section.span.start, end=section.span.end, title=section.title)
