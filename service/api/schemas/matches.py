"""Answers of POST /match."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, Field, JsonValue
from pydantic_core import to_json

from index.lexical.scoring import TermWeight
from index.search.records import AlignmentReceipt, Hit, Mode
from service.api.schemas.common import Answer, ReceiptBody, milliseconds, receipt_body
from service.api.schemas.compare import ComparisonBody, comparison_body
from service.api.schemas.fields import nullable
from service.matching.compare import Explanation
from service.matching.retrieve import Matches

_HIT_FIELDS = tuple(one.name for one in fields(Hit))
_values_of = attrgetter(*_HIT_FIELDS)


class MatchBody(BaseModel):
    """A document that matches."""

    id: str
    score: float = Field(
        description="What matches are ranked by: `semantic_score`, `lexical_score`, or in hybrid "
        "mode their weighted mean. With `like`, what all examples give together."
    )
    title: str
    metadata: dict[str, JsonValue]
    semantic_score: float = Field(
        description="Weighted mean of `vector_score` and `alignment_score`, with the weight of the "
        "mode; where the latter is null, of what the former lets expect of it."
    )
    vector_score: float = Field(description="Cosine of the two document vectors, as stored.")
    alignment_score: float | None = nullable(
        "How well the sentence blocks of the two documents match, from 0 to 1; null where they "
        "were not aligned."
    )
    lexical_score: float | None = nullable(
        "Cosine of the words of the two documents; null in semantic mode."
    )
    terms: tuple[TermWeight, ...] = Field(
        description="The terms that give most to the lexical score, each with its share of it; "
        "empty in semantic mode."
    )
    probability: float | None = nullable(
        "Probability that it is a match, among pairs half of which are; null where "
        "the checkpoint has no calibration of such scores, and with `like`."
    )
    false_positive_rate: float | None = nullable(
        "Share of random pairs of the corpus that score as high; null where the data "
        "directory has not been calibrated (`longmatch calibrate`), and with `like`."
    )
    explanation: ComparisonBody | None = nullable(
        "Why it matches, the query on the left, or the example of the highest score; null where "
        "that was not asked for."
    )
    first_stage_score: float | None = nullable(
        "What it was found by, where `score` is that of the reranker; null where it was not read."
    )
    family: int | None = nullable(
        "Number of its family of copies and versions; null where it is in none, or `collapse` was "
        "not asked for."
    )
    collapsed: list[str] = Field(
        description="Ids of other documents of the family, which are not given as matches: the "
        "first 10 of those that `filter` and `exclude` let through."
    )
    like_scores: list[float] = Field(
        description="With `like`, the score of each example, in their order, of which the other "
        "scores are means; empty without."
    )
    unlike_scores: list[float] = Field(
        description="With `unlike`, the score of each, in their order; empty without."
    )


class AlignedBody(BaseModel):
    """What became of the alignment."""

    aligned: bool = Field(
        description="Whether the matches are in its order; false where time was up, or there was "
        "nothing to align."
    )
    candidates: int = Field(description="How many were to be aligned.")
    scored: int = Field(
        description="How many were; the others have no stored block vectors, or would not be among "
        "the matches even if they aligned twice as well as the last ones did."
    )


class RerankedBody(BaseModel, from_attributes=True):
    """What became of the second stage."""

    reranked: bool = Field(
        description="Whether the matches are in its order; false where time was up."
    )
    candidates: int = Field(description="How many were to be read.")
    rescored: int = Field(description="How many were read in time.")
    reranker: str = Field(description="Name of the checkpoint that read them.")


class MatchResponse(Answer):
    """The matches of one document, best first."""

    matches: list[MatchBody]
    receipt: ReceiptBody
    scored_as: Mode = Field(
        description="Whose scores these are: the mode, or `semantic` in hybrid mode if the text "
        "has no indexed word, or while the lexical index is being made after a start."
    )
    calibration: str | None = nullable(
        "Version of the calibration that made the probabilities; null for none."
    )
    alignment: AlignedBody | None = nullable(
        "The alignment of the candidates; null in lexical mode, or where it was switched off."
    )
    rerank: RerankedBody | None = nullable("The second stage; null where none was asked for.")
    sequence: int = Field(
        description="State of the collection that was searched: the number of its changes. Every "
        "change up to it is in the answer, what was deleted later is left out."
    )


class MatchesResponse(BaseModel):
    """The matches of several documents, in the order of the queries."""

    results: list[MatchResponse]


def matches_json(
    found: Sequence[Matches], checkpoint: str, calibration: str | None, *, several: bool
) -> bytes:
    """Encode the answer to a query as a `MatchResponse`, or those to several.

    From what was found, without a model of the response: to make and encode one takes three times
    as long.
    """
    answers = [_answer(matches, checkpoint, calibration) for matches in found]
    if several:
        return to_json({"results": answers}, inf_nan_mode="null")
    (answer,) = answers
    return to_json(answer, inf_nan_mode="null")


def _answer(matches: Matches, checkpoint: str, calibration: str | None) -> dict[str, Any]:
    stage = matches.rerank
    if stage is not None and stage.reranked:
        calibration = stage.calibration
    return {
        "timings": milliseconds(matches.seconds),
        "checkpoint": checkpoint,
        "generation": matches.generation,
        "matches": [_match(hit, matches.explanations.get(hit.id)) for hit in matches.matches],
        "receipt": receipt_body(matches.receipt),
        "scored_as": matches.scored_as,
        "calibration": calibration,
        "alignment": None if matches.alignment is None else _aligned(matches.alignment),
        "rerank": None if stage is None else RerankedBody.model_validate(stage),
        "sequence": matches.sequence,
    }


def _match(hit: Hit, explanation: Explanation | None) -> dict[str, Any]:
    body = dict(zip(_HIT_FIELDS, _values_of(hit), strict=True))  # `asdict` copies every value
    body["terms"] = [{"term": one.term, "weight": one.weight} for one in hit.terms]
    body["explanation"] = None if explanation is None else comparison_body(explanation)
    return body


def _aligned(receipt: AlignmentReceipt) -> AlignedBody:
    return AlignedBody(**asdict(receipt))
