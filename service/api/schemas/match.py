"""Requests of POST /match."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from encoder.comparison.alignment import MAX_PASSAGES
from index.search.records import (
    DEFAULT_ALIGNMENT,
    DEFAULT_MODE,
    MAX_ALIGNED,
    AlignmentOptions,
    Bounds,
    Mode,
    SearchOptions,
)
from service.api.schemas.common import (
    exactly_one,
    title_of_text,
    to_query,
)
from service.api.schemas.fields import (
    Body,
    Characters,
    Cosine,
    DocumentId,
    Share,
    Title,
    exclusive,
    optional,
    or_a_number,
)
from service.api.schemas.filter import MAX_EXCLUDED, FilterField
from service.matching.compare import ExplainOptions
from service.matching.examples import OF_ONE_DOCUMENT
from service.matching.match import MatchOptions
from service.matching.queries import Query
from service.matching.rerank import RerankOptions
from service.matching.retrieve import DEFAULT_TOP_K
from service.settings import Settings


class QueryBody(Body):
    """One of several queries."""

    model_config = exclusive("text", "id", title_of="text")

    text: Characters | None = optional("Text of a document.")
    title: Title | None = optional(
        "Title of the text, if it has one: a document of this title, or one that names it, is "
        "nearer in lexical and hybrid mode.",
    )
    id: DocumentId | None = optional(
        "Id of a stored document, which is left out of its own matches.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        exactly_one(text=self.text, id=self.id)
        title_of_text(self.text, self.title)
        return self


class ExplainBody(Body):
    """How much to explain."""

    matches: Annotated[int, Field(ge=1)] = Field(
        default=ExplainOptions().matches,
        description="How many of the first matches of each query; of all queries together at most "
        "`max_explained_matches` (see /version).",
    )
    passages: Annotated[int, Field(ge=0, le=MAX_PASSAGES)] = Field(
        default=ExplainOptions().passages,
        description="How many passages of each, the largest ones, and how many pairs of aligned "
        "blocks.",
    )


class AlignBody(Body):
    """Aligning: the sentence blocks of the best candidates are matched with those of the query."""

    candidates: Annotated[int, Field(ge=1, le=MAX_ALIGNED)] = Field(
        default=DEFAULT_ALIGNMENT.candidates, description="How many of them."
    )
    budget_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = optional(
        "Milliseconds that it may take for each query; `alignment_budget_ms` of the settings when "
        "not given. Out of time, matches keep the order of the stage before, and "
        "`alignment.aligned` is false."
    )

    def to_options(self, budget_seconds: float) -> AlignmentOptions:
        """Return the options of the alignment, with a default for the budget."""
        given = self.budget_ms
        return AlignmentOptions(self.candidates, budget_seconds if given is None else given / 1000)


class RerankBody(Body):
    """The second stage: the first candidates are read together with the query."""

    candidates: Annotated[int, Field(ge=1)] = Field(
        description="How many of them; at most `max_rerank_candidates` (see /version)."
    )
    budget_ms: Annotated[float, Field(ge=1e-3, allow_inf_nan=False)] | None = optional(
        "Milliseconds that it may take for each query. Out of time, the matches are those of the "
        "first stage, and `rerank.reranked` is false."
    )

    def to_options(self) -> RerankOptions:
        """Return the options of the reranker."""
        if self.budget_ms is None:
            return RerankOptions(self.candidates)
        return RerankOptions(self.candidates, self.budget_ms / 1000)


def _to_explain(explain: ExplainBody | None) -> ExplainOptions | None:
    """Return how much to explain; None for nothing."""
    return None if explain is None else ExplainOptions(explain.matches, explain.passages)


def _candidates_alone(value: object) -> object:
    return {"candidates": value} if type(value) is int else value


def _switched(value: object) -> object:
    """Read true as the defaults, and false as none."""
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict | AlignBody | ExplainBody):
        raise ValueError("must be true, false or an object")
    return value


def _switch(schema: dict[str, Any], *, on: bool = False) -> None:
    given, _ = schema.pop("anyOf")
    schema.update(anyOf=[{"type": "boolean"}, given], default=on)


def _switch_on(schema: dict[str, Any]) -> None:
    _switch(schema, on=True)


class MatchRequest(Body):
    """What to match: exactly one of `text`, `id`, `queries` and `like`."""

    model_config = exclusive(
        *("text", "id", "queries", "like"),
        title_of="text",
        needs={"unlike": "like"},
        without={"like": OF_ONE_DOCUMENT},
    )

    text: Characters | None = optional("Text of a document.")
    title: Title | None = optional(
        "Title of the text, if it has one: a document of this title, or one that names it, is "
        "nearer in lexical and hybrid mode.",
    )
    id: DocumentId | None = optional(
        "Id of a stored document, which is left out of its own matches.",
    )
    queries: Annotated[list[QueryBody], Field(min_length=1)] | None = optional(
        "Several queries; at most `max_queries_per_request` (see /version).",
    )
    like: Annotated[list[QueryBody], Field(min_length=1)] | None = optional(
        "Examples, all of which a match is like; with those of `unlike` at most "
        "`max_queries_per_request` (see /version). They are not among the matches. `rerank` and "
        "bounds that need a calibration are refused with them.",
    )
    unlike: Annotated[list[QueryBody], Field(min_length=1)] | None = optional(
        "Examples of what a match is not: a document that is nearer to one of them than to those "
        "of `like` has a lower score. Only together with `like`.",
    )
    top_k: Annotated[int, Field(ge=1)] | None = optional(
        "Matches to give for each query; at most `max_top_k`, "
        "`default_top_k` when not given (see /version).",
    )
    mode: Mode = Field(
        default=DEFAULT_MODE,
        description="By what documents are found and ranked: document vectors, words, or both.",
    )
    filter: FilterField | None = optional(
        "Give no match for whose metadata this does not hold; it acts inside the search, so that "
        "`top_k` come back whenever so many exist."
    )
    exclude: Annotated[list[DocumentId], Field(max_length=MAX_EXCLUDED)] | None = optional(
        "Ids of documents not to give."
    )
    min_score: Cosine | None = optional("Give no match whose score is under this.")
    min_probability: Share | None = optional(
        "Give no match under this probability; refused where the checkpoint has no calibration."
    )
    max_false_positive_rate: Share | None = optional(
        "Give no match whose score a larger share of random pairs of the corpus reaches; refused "
        "where the data directory has not been calibrated (`longmatch calibrate`)."
    )
    align: Annotated[AlignBody | None, BeforeValidator(_switched)] = Field(
        default_factory=AlignBody,
        description="Match the sentence blocks of the best candidates with those of the query, in "
        "semantic and hybrid mode. Nothing is encoded for it.",
        json_schema_extra=_switch_on,
    )
    rerank: Annotated[RerankBody | None, BeforeValidator(_candidates_alone)] = Field(
        default=None,
        description="Read the first candidates together with the query and put the best first; a "
        "number is that of the candidates. Refused where the service has no reranker.",
        json_schema_extra=or_a_number,
    )
    explain: Annotated[ExplainBody | None, BeforeValidator(_switched)] = Field(
        default=None,
        description="Say of the first matches why they match: passages, sections, coverage, "
        "relation. It is made from stored vectors: no match is encoded for it.",
        json_schema_extra=_switch,
    )
    collapse: bool = Field(
        default=False,
        description="Give one match of each family of copies and versions, the best; `top_k` come "
        "back whenever so many families exist.",
    )
    strict: bool = Field(
        default=False,
        description="Refuse with 422, naming tokens and limit, a text that is too long to be read "
        "whole, rather than read its beginning.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        exactly_one(text=self.text, id=self.id, queries=self.queries, like=self.like)
        title_of_text(self.text, self.title)
        if self.unlike is not None and self.like is None:
            raise ValueError("give unlike only together with like")
        return self

    def to_options(self, settings: Settings) -> MatchOptions:
        """Return the options of each query."""
        budget = settings.alignment_budget_ms / 1000
        bounds = Bounds(self.min_score, self.min_probability, self.max_false_positive_rate)
        return MatchOptions(
            search=SearchOptions(
                top_k=self.top_k or DEFAULT_TOP_K,
                mode=self.mode,
                bounds=bounds,
                where=None if self.filter is None else self.filter.to_filter(),
                exclude=tuple(self.exclude or ()),
                collapse=self.collapse,
                alignment=None if self.align is None else self.align.to_options(budget),
            ),
            rerank=None if self.rerank is None else self.rerank.to_options(),
            explain=_to_explain(self.explain),
            strict=self.strict,
        )

    def to_queries(self) -> list[Query]:
        """Return the queries, each with the JSON pointer to it."""
        if self.queries is None:
            return [to_query("#", self.text, self.id, self.title)]
        return _to_queries("queries", self.queries)

    def to_examples(self) -> tuple[list[Query], list[Query]]:
        """Return the examples that matches are like, and the others; none without `like`."""
        return _to_queries("like", self.like or []), _to_queries("unlike", self.unlike or [])


def _to_queries(field: str, given: Sequence[QueryBody]) -> list[Query]:
    return [
        to_query(f"#/{field}/{number}", query.text, query.id, query.title)
        for number, query in enumerate(given)
    ]
