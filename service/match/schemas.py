"""Requests and answers of POST /match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue
from pydantic_core import to_json

from encoder.comparison.alignment import MAX_PASSAGES
from index.lexical.scoring import TermWeight
from index.search import records
from index.search.calibrate import Scoring, why_no_probability
from service.compare.logic import Explanation
from service.compare.schemas import ComparisonBody, ScoresBody, comparison_json
from service.encode import Query
from service.match.filter import MAX_EXCLUDED, FilterField
from service.match.retrieve import DEFAULT_TOP_K, MAX_TOP_K, Matches, RerankedBody
from service.schemas import (
    Answer,
    BodyModel,
    BoundsBody,
    DocumentId,
    QueryBody,
    ReceiptBody,
    Strict,
    milliseconds,
    nullable,
    optional,
)
from service.settings import Settings

MAX_QUERIES = 32  # of one request, and examples: they are encoded together
MAX_CANDIDATES = 200  # of the reranker for one query: a pair takes tens of milliseconds
RERANK_SECONDS = 5.0  # for one query; a request may give less


class ExplainBody(BodyModel):
    """How much to explain."""

    matches: Annotated[int, Field(ge=1)] = Field(
        default=10,
        description="How many of the first matches of each query; of all queries together at most "
        "`max_explained_matches` (see /version).",
    )
    passages: Annotated[int, Field(ge=0, le=MAX_PASSAGES)] = Field(
        default=20,
        description="How many passages of each, the largest ones, and how many pairs of aligned "
        "blocks.",
    )


class AlignBody(BodyModel):
    """Aligning: the sentence blocks of the best candidates are matched with those of the query."""

    candidates: Annotated[int, Field(ge=1, le=records.MAX_ALIGNED)] = Field(
        default=records.DEFAULT_ALIGNMENT.candidates, description="How many of them."
    )
    budget_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = optional(
        "Milliseconds that it may take for each query; `alignment_budget_ms` of the settings when "
        "not given. Out of time, matches keep the order of the stage before, and "
        "`alignment.aligned` is false."
    )

    def to_options(self, settings: Settings) -> records.AlignmentOptions:
        """Return the options of the alignment; the budget of the settings is the default."""
        given = self.budget_ms
        milliseconds = settings.alignment_budget_ms if given is None else given
        return records.AlignmentOptions(self.candidates, milliseconds / 1000)


Queries = Annotated[list[QueryBody], Field(min_length=1, max_length=MAX_QUERIES)]


class RerankBody(BodyModel):
    """The second stage: the first candidates are read together with the query."""

    candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] = Field(
        description="How many of them; at most `max_rerank_candidates` (see /version)."
    )
    budget_ms: (
        Annotated[float, Field(ge=1e-3, le=1000 * RERANK_SECONDS, allow_inf_nan=False)] | None
    ) = optional(
        "Milliseconds that it may take for each query. Out of time, the matches are those of the "
        "first stage, and `rerank.reranked` is false."
    )

    @property
    def seconds(self) -> float:
        """How long it may take for one query."""
        return RERANK_SECONDS if self.budget_ms is None else self.budget_ms / 1000


def _candidates_alone(value: object) -> object:
    return {"candidates": value} if type(value) is int else value


def _switched(value: object) -> object:
    """Read true as the defaults, and false as none."""
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict | AlignBody | ExplainBody):
        raise ValueError("must be true, false or an object")
    return value


def _or(short: dict[str, Any], default: bool | None = None) -> Callable[[dict[str, Any]], None]:
    """Describe a field that may have a short form, too."""
    return lambda schema: schema.update(anyOf=[short, *schema["anyOf"]], default=default)


_NUMBER = {"type": "integer", "minimum": 1, "maximum": MAX_CANDIDATES}
_SWITCH = {"type": "boolean"}


class MatchRequest(QueryBody, BoundsBody):
    """What to match: exactly one of `text`, `id`, `queries` and `like`.

    A stored document is left out of its own matches.
    """

    one_of: ClassVar[Sequence[str]] = ("text", "id", "queries", "like")
    apart: ClassVar[Mapping[str, Sequence[str]]] = {
        "title": ("id", "queries", "like"),
        "unlike": ("text", "id", "queries"),
        "like": ("rerank", "min_probability", "max_false_positive_rate"),
    }

    queries: Queries | None = optional(
        "Several queries; at most `max_queries_per_request` (see /version)."
    )
    like: Queries | None = optional(
        "Examples, all of which a match is like; with those of `unlike` at most "
        "`max_queries_per_request` (see /version). They are not among the matches. `rerank` and "
        "bounds that need a calibration are refused with them."
    )
    unlike: Queries | None = optional(
        "Examples of what a match is not: a document that is nearer to one of them than to those "
        "of `like` has a lower score. Only together with `like`."
    )
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = optional(
        "Matches to give for each query; at most `max_top_k`, "
        "`default_top_k` when not given (see /version)."
    )
    mode: records.Mode = Field(
        default=records.DEFAULT_MODE,
        description="By what documents are found and ranked: document vectors, words, or both.",
    )
    filter: FilterField | None = optional(
        "Give no match for whose metadata this does not hold; it acts inside the search, so that "
        "`top_k` come back whenever so many exist."
    )
    exclude: Annotated[list[DocumentId], Field(max_length=MAX_EXCLUDED)] | None = optional(
        "Ids of documents not to give."
    )
    align: Annotated[AlignBody | None, BeforeValidator(_switched)] = Field(
        default_factory=AlignBody,
        description="Match the sentence blocks of the best candidates with those of the query, in "
        "semantic and hybrid mode. Nothing is encoded for it.",
        json_schema_extra=_or(_SWITCH, default=True),
    )
    rerank: Annotated[RerankBody | None, BeforeValidator(_candidates_alone)] = Field(
        default=None,
        description="Read the first candidates together with the query and put the best first; a "
        "number is that of the candidates. Refused where the service has no reranker.",
        json_schema_extra=_or(_NUMBER),
    )
    explain: Annotated[ExplainBody | None, BeforeValidator(_switched)] = Field(
        default=None,
        description="Say of the first matches why they match: passages, sections, coverage, "
        "relation. It is made from stored vectors: no match is encoded for it.",
        json_schema_extra=_or(_SWITCH, default=False),
    )
    collapse: bool = Field(
        default=False,
        description="Give one match of each family of copies and versions, the best; `top_k` come "
        "back whenever so many families exist.",
    )
    strict: Strict = False

    def to_search(self, settings: Settings) -> records.SearchOptions:
        """Return how many documents to find for each query, by what, and which."""
        return records.SearchOptions(
            top_k=self.top_k or DEFAULT_TOP_K,
            mode=self.mode,
            bounds=self.bounds,
            where=None if self.filter is None else self.filter.to_filter(),
            exclude=tuple(self.exclude or ()),
            collapse=self.collapse,
            alignment=None if self.align is None else self.align.to_options(settings),
        )

    def to_queries(self) -> list[Query]:
        """Return the queries or examples, each with the JSON pointer to it."""
        lists = {"queries": self.queries, "like": self.like, "unlike": self.unlike}
        several = [
            query.to_query(f"#/{field}/{number}")
            for field, given in lists.items()
            for number, query in enumerate(given or ())
        ]
        return several or [self.to_query("#")]


# Why matches have no probability, besides what a collection gives for a reason.
NO_MAP_OF_RERANKER = "the reranker has no calibration of such scores"
OF_EXAMPLES = "scores of several examples together have none"

_HIT_FIELDS = tuple(field.name for field in fields(records.Hit))
_values_of = attrgetter(*_HIT_FIELDS)


class MatchBody(ScoresBody):
    """A document that matches."""

    id: str
    score: float = Field(
        description="What matches are ranked by: `semantic_score`, `lexical_score`, or in hybrid "
        "mode their weighted mean. With `like`, what all examples give together."
    )
    title: str
    metadata: dict[str, JsonValue]
    terms: tuple[TermWeight, ...] = Field(
        description="The terms that give most to the lexical score, each with its share of it; "
        "empty in semantic mode."
    )
    explanation: ComparisonBody | None = nullable(
        "Why it matches, the query on the left, or the example of the highest score, scored as by "
        "POST /compare; null where that was not asked for."
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
        "the matches even if they aligned twice as well as those before them did."
    )


class QueryReceiptBody(ReceiptBody):
    """What was read of a query, and how much of it counts for nothing."""

    common_text: float = Field(
        description="Share of its words that stand in text which many unrelated documents of the "
        "collection share, such as a licence: it counts for no match. Of several examples the mean."
    )


class MatchResponse(Answer):
    """The matches of one document, best first."""

    matches: list[MatchBody]
    receipt: QueryReceiptBody
    scored_as: records.Mode = Field(
        description="Whose scores these are: the mode, or `semantic` in hybrid mode if the text "
        "has no indexed word, or while the lexical index is being made after a start."
    )
    calibration: str | None = nullable(
        "Version of the calibration that made the probabilities; null for none."
    )
    no_probability: str | None = nullable(
        "Why the matches have no probabilities; null where they have."
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
    found: Sequence[Matches], checkpoint: str, scoring: Scoring, *, several: bool
) -> bytes:
    """Encode the answer to a query as a `MatchResponse`, or those to several.

    From what was found, without a model of the response: to make and encode one takes three times
    as long.
    """
    answers = [_answer(matches, checkpoint, scoring) for matches in found]
    return to_json({"results": answers} if several else answers[0], inf_nan_mode="null")


def _answer(matches: Matches, checkpoint: str, scoring: Scoring) -> dict[str, Any]:
    stage, answer = matches.rerank, matches.answer
    calibration, why = scoring.version, why_no_probability(scoring, answer.scored_as)
    if stage is not None and stage.reranked:
        calibration, why = stage.calibration, None if stage.calibration else NO_MAP_OF_RERANKER
    elif answer.hits and answer.hits[0].like_scores:
        why = OF_EXAMPLES
    return {
        "timings": milliseconds(matches.seconds),
        "checkpoint": checkpoint,
        "generation": answer.generation,
        "matches": [_match(hit, matches.explanations.get(hit.id)) for hit in answer.hits],
        "receipt": {
            **ReceiptBody.model_validate(matches.receipt).model_dump(),
            "common_text": answer.common_text,
        },
        "scored_as": answer.scored_as,
        "calibration": calibration,
        "no_probability": why,
        "alignment": answer.alignment,
        "rerank": stage,
        "sequence": answer.sequence,
    }


def _match(hit: records.Hit, explanation: Explanation | None) -> dict[str, Any]:
    body = dict(zip(_HIT_FIELDS, _values_of(hit), strict=True))  # `asdict` copies every value
    body["terms"] = [{"term": term.term, "weight": term.weight} for term in hit.terms]
    body["explanation"] = None if explanation is None else comparison_json(explanation)
    return body
