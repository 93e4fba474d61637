"""What is answered. Fields that a later server adds are left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True, slots=True)
class Receipt:
    """How much of a document was read.

    Attributes:
        tokens: of the whole text.
        tokens_read: whose words were counted.
        blocks: sentence blocks of the tokens that were read.
        blocks_left_out: beyond what the checkpoint reads.
        tokens_encoded: by the Transformer.
        payload_characters: that were not read, as they are data.
    """

    tokens: int
    tokens_read: int
    blocks: int
    blocks_left_out: int
    tokens_encoded: int
    payload_characters: int


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a text: its characters from `start` to before `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of the left text, and the one of the right text that matches it.

    Attributes:
        left: its place.
        right: its place.
        score: cosine of the mean block vectors of the two sides.
        kind: "verbatim", "paraphrase" or "similar".
    """

    left: Place
    right: Place
    score: float
    kind: str


@dataclass(frozen=True, slots=True)
class BlockPair:
    """Two sentence blocks that are aligned, and what they give to the alignment score."""

    left: Place
    right: Place
    similarity: float
    share: float


@dataclass(frozen=True, slots=True)
class AttendedPair:
    """Two sentence blocks that attend to each other."""

    left: Place
    right: Place
    left_attention: float
    right_attention: float
    times_average: float


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a text."""

    start: int
    end: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How two texts match, and where; as in the documentation of POST /compare."""

    score: float
    scored_as: str
    semantic_score: float
    vector_score: float
    alignment_score: float | None
    lexical_score: float | None
    probability: float | None
    false_positive_rate: float | None
    relevant: bool | None
    no_probability: str | None
    relation: str
    evidence: list[str]
    left_coverage: float
    right_coverage: float
    passages: list[Passage]
    passages_left_out: int
    aligned_blocks: list[BlockPair] | None
    left_sections: list[Section]
    right_sections: list[Section]
    section_scores: list[list[float]]
    section_scores_from: str
    attended_blocks: list[AttendedPair] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence block of one text that the other lacks, or has with other words."""

    start: int
    end: int
    text: str
    kind: str
    words: list[Place]
    nearest: Place | None
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Differences:
    """What each of two texts has that the other lacks."""

    left: list[Difference]
    right: list[Difference]


@dataclass(frozen=True, slots=True)
class ReadSide:
    """One of two texts as it was read; the id is None for a text of the request."""

    id: str | None
    title: str
    receipt: Receipt


# Of the kinds of passages, as on the page.
_COLOURS = {"verbatim": "#d9722e", "paraphrase": "#3f78d8", "similar": "#2f9e5f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Explanation):
    """The answer to a comparison."""

    differences: Differences | None
    left: ReadSide
    right: ReadSide
    timings: dict[str, float]
    checkpoint: str
    calibration: str | None

    def _repr_html_(self) -> str:
        """What a notebook shows: relation, evidence, a picture, and the passages side by side."""
        rows = [
            (escape(side.kind), _text(side.left.text), _text(side.right.text))
            for side in self.passages
        ]
        names = (escape(side.title or side.id or "text") for side in (self.left, self.right))
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.evidence)
        chance = _probability(self.probability, self.no_probability)
        head = f"<p><b>{escape(self.relation)}</b>, {chance}</p><ul>{said}</ul>"
        return head + self._picture() + _table(("", *names), rows)

    def _picture(self) -> str:
        """Return an SVG of both texts as bars, with a band between the places of each passage."""
        shown = self.passages
        if not shown:
            return ""
        left = max([*(part.end for part in self.left_sections), *(p.left.end for p in shown)])
        right = max([*(part.end for part in self.right_sections), *(p.right.end for p in shown)])
        bands = ""
        for passage in shown:
            above, below = passage.left, passage.right
            tops = [f"{100 * at / left:.2f},4" for at in (above.start, above.end)]
            ends = [f"{100 * at / right:.2f},20" for at in (below.end, below.start)]
            colour = _COLOURS.get(passage.kind, "gray")
            bands += f'<polygon points="{" ".join(tops + ends)}" fill="{colour}" opacity="0.5"/>'
        bars = "".join(f'<rect y="{y}" width="100" height="4" fill="silver"/>' for y in (0, 20))
        return (
            '<svg viewBox="0 0 100 24" preserveAspectRatio="none" width="100%" height="90" '
            'role="img" aria-label="Where the passages below are in the texts, the left one above">'
            f"{bars}{bands}</svg>"
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A term that two documents share, and its share of the lexical score."""

    term: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A document that matches.

    Attributes:
        id: of the document.
        score: what matches are ranked by.
        title: of the document.
        metadata: of the document.
        semantic_score: of vector and alignment, with the weight of the mode.
        vector_score: cosine of the document vectors.
        alignment_score: of the sentence blocks; None where they were not aligned.
        lexical_score: cosine of the words; None in semantic mode.
        terms: that give most to the lexical score.
        probability: that it is a match; None without a calibration.
        false_positive_rate: share of random pairs that score as high; None if not measured.
        relevant: whether the score rises above the level of chance; None if not measured.
        explanation: why it matches; None if not requested.
        first_stage_score: what it was found by, where a reranker gave the score.
        family: number of its family of copies and versions, if matches were collapsed.
        collapsed: ids of others of the family.
        like_scores: of each example, in a search by examples; the others are then means of these.
        unlike_scores: of each example of what is not looked for.
    """

    id: str
    score: float
    title: str
    metadata: dict[str, Any]
    semantic_score: float
    vector_score: float
    alignment_score: float | None
    lexical_score: float | None
    terms: list[Term]
    probability: float | None
    false_positive_rate: float | None
    relevant: bool | None
    explanation: Explanation | None
    first_stage_score: float | None
    family: int | None
    collapsed: list[str]
    like_scores: list[float]
    unlike_scores: list[float]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What became of the alignment of the candidates."""

    aligned: bool
    candidates: int
    scored: int


@dataclass(frozen=True, slots=True)
class Reranking:
    """What became of the second stage."""

    reranked: bool
    candidates: int
    rescored: int
    reranker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matches of one document, best first.

    Attributes:
        matches: best first.
        receipt: what was read of the document.
        scored_as: the mode whose scores these are.
        calibration: version of the one that made the probabilities.
        no_probability: why the matches have none; None where they have.
        alignment: what became of it; None in lexical mode, or where it was switched off.
        rerank: what became of it; None if not requested.
        timings: milliseconds of each stage.
        checkpoint: that made the vectors.
        generation: of the index.
        sequence: of the collection that was searched.
    """

    matches: list[Match]
    receipt: Receipt
    scored_as: str
    calibration: str | None
    no_probability: str | None
    alignment: Alignment | None
    rerank: Reranking | None
    timings: dict[str, float]
    checkpoint: str
    generation: int
    sequence: int

    def _repr_html_(self) -> str:
        """What a notebook shows: title, probability, why, and the passage that is most alike."""
        rows = []
        for match in self.matches:
            found = match.explanation
            why = best = ""
            if found is not None:
                why = next(iter(found.evidence), "")
                nearest = max(found.passages, key=lambda passage: passage.score, default=None)
                best = "" if nearest is None else nearest.right.text
            chance = _probability(match.probability, self.no_probability)
            rows.append((escape(match.title or match.id), chance, escape(why), _text(best)))
        return _table(("document", "probability", "why", "passage"), rows)


def _probability(probability: float | None, reason: str | None) -> str:
    if probability is None:
        return f"not calibrated: {escape(reason or '')}"
    return f"{100 * probability:.0f} %"


_SHOWN = 300  # characters of a passage in a notebook


def _text(text: str) -> str:
    line = " ".join(text.split())
    return escape(line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …")


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table of HTML, whose cells are HTML."""
    style = "text-align: left; vertical-align: top"  # Jupyter has numbers in mind
    head = "".join(f'<th style="{style}">{name}</th>' for name in names)
    cells = ("".join(f'<td style="{style}">{cell}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True)
class Indexed:
    """A document that was stored; `unchanged` if it had the same text before."""

    id: str
    receipt: Receipt
    unchanged: bool


@dataclass(frozen=True, slots=True)
class IndexResult:
    """Documents that were stored: durable, and found by the next match."""

    indexed: int
    documents: list[Indexed]
    timings: dict[str, float]
    checkpoint: str
    generation: int


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document, as a page or a request for one gives it.

    Attributes:
        id: of the document.
        title: "" if it has none.
        metadata: as stored.
        receipt: what was read of it.
        indexed_at: when its text was stored, ISO 8601 in UTC.
        family: number of its family of copies and versions, if it is in one.
        text: if requested.
    """

    id: str
    title: str
    metadata: dict[str, Any]
    receipt: Receipt
    indexed_at: str
    family: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two documents that match each other; `left` was stored first."""

    left: str
    right: str
    left_title: str
    right_title: str
    score: float
    vector_score: float
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class Event:
    """A new document that matches a standing query.

    Attributes:
        number: ascending; iterate `after` it to go on.
        query: id of the standing query.
        created: ISO 8601 in UTC.
        document: id of the document.
        title: of the document.
        score: as a match has it; `scored_as` is the mode whose score it is.
        probability: that it is a match.
        false_positive_rate: share of random pairs that score as high.
    """

    number: int
    query: str
    created: str
    document: str
    title: str
    score: float
    scored_as: str
    probability: float | None
    false_positive_rate: float | None


@dataclass(frozen=True, slots=True)
class FeedbackQuery:
    """The query of a verdict: the stored document `id`, or, if None, a text of this title."""

    id: str | None
    title: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """A verdict on a match of a query.

    Attributes:
        id: of the verdict: the same for the same query and match.
        match: id of the document that was the answer; `grade`: 0 is not relevant, 1 to 3 relevant.
        created: when the first verdict was given, ISO 8601 in UTC; `changed`: when this grade was.
    """

    id: str
    query: FeedbackQuery
    match: str
    grade: int
    created: str
    changed: str


@dataclass(frozen=True, slots=True)
class Member:
    """A document of a family; `copy` if its text is identical."""

    id: str
    title: str
    copy: bool


@dataclass(frozen=True, slots=True)
class Embedding:
    """The document vector of a text, of unit norm, and what was read of it."""

    vector: list[float]
    receipt: Receipt
