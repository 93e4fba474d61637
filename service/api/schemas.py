"""Requests and answers of the API. Limits that are settings are checked behind it, not here."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, model_validator

from encoder.blocks import Receipt
from index.document import Document
from index.errors import DocumentError
from index.modes import DEFAULT_MODE, Mode
from index.sqlite_store import StoredDocument
from service.api.fields import (
    Body,
    Characters,
    Cosine,
    DocumentId,
    Metadata,
    Share,
    Title,
    nullable,
    optional,
    or_a_number,
)
from service.calibration import Bounds
from service.encoding import PointedText
from service.errors import FieldError, InvalidInputError
from service.indexing import IndexedDocuments
from service.matching import Matches, Query, StoredQuery
from service.metrics import Stage
from service.reranking import RerankReceipt
from service.second_stage import Rerank


class QueryBody(Body):
    """One of several queries."""

    text: Characters | None = optional("Text of a document.")
    id: DocumentId | None = optional(
        "Id of a stored document, which is left out of its own matches.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        _exactly_one(text=self.text, id=self.id)
        return self


class RerankBody(Body):
    """The second stage: the first candidates are read together with the query."""

    candidates: Annotated[int, Field(ge=1)] = Field(
        description="How many of them; at most `max_rerank_candidates` (see /version)."
    )
    budget_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = optional(
        "Milliseconds that it may take for each query. Out of time, the matches are those of the "
        "first stage, and `rerank.reranked` is false."
    )


def _candidates_alone(value: object) -> object:
    return {"candidates": value} if type(value) is int else value


class MatchRequest(Body):
    """What to match: exactly one of `text`, `id` and `queries`."""

    text: Characters | None = optional("Text of a document.")
    id: DocumentId | None = optional(
        "Id of a stored document, which is left out of its own matches.",
    )
    queries: Annotated[list[QueryBody], Field(min_length=1)] | None = optional(
        "Several queries; at most `max_queries_per_request` (see /version).",
    )
    top_k: Annotated[int, Field(ge=1)] | None = optional(
        "Matches to give for each query; at most `max_top_k`, "
        "`default_top_k` when not given (see /version).",
    )
    mode: Mode = Field(
        default=DEFAULT_MODE,
        description="By what documents are found and ranked: document vectors, words, or both.",
    )
    min_score: Cosine | None = optional("Give no match whose score is under this.")
    min_probability: Share | None = optional(
        "Give no match under this probability; refused where the checkpoint has no calibration."
    )
    max_false_positive_rate: Share | None = optional(
        "Give no match whose score a larger share of random pairs of the corpus reaches; refused "
        "where the data directory has not been calibrated (`longmatch calibrate`)."
    )
    strict: bool = Field(
        default=False,
        description="Refuse with 422, naming tokens and limit, a text that is too long to be read "
        "whole, rather than read its beginning.",
    )

    rerank: Annotated[RerankBody | None, BeforeValidator(_candidates_alone)] = Field(
        default=None,
        description="Read the first candidates together with the query and put the best first; a "
        "number is that of the candidates. Refused where the service has no reranker.",
        json_schema_extra=or_a_number,
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        _exactly_one(text=self.text, id=self.id, queries=self.queries)
        return self

    def to_rerank(self) -> Rerank | None:
        """Return what is asked of the second stage."""
        if self.rerank is None:
            return None
        budget = self.rerank.budget_ms
        return Rerank(self.rerank.candidates, None if budget is None else budget / 1000)

    def to_bounds(self) -> Bounds:
        """Return what a match must reach."""
        return Bounds(self.min_score, self.min_probability, self.max_false_positive_rate)

    def to_queries(self) -> list[Query]:
        """Return the queries, each with the pointer to its place in the request."""
        if self.queries is None:
            return [_query("#", self.text, self.id)]
        return [
            _query(f"#/queries/{number}", query.text, query.id)
            for number, query in enumerate(self.queries)
        ]


class DocumentBody(Body):
    """A document to store."""

    id: DocumentId = Field(description="Your own id; a document of the same id is replaced.")
    text: Characters = Field(
        description="The whole text; at most `max_text_characters` (see /version)."
    )
    title: Title = ""
    metadata: Metadata = Field(
        default_factory=dict, description="Any JSON object; given back with every match."
    )


class IndexRequest(Body):
    """Documents to insert or replace, all or none of them."""

    documents: list[DocumentBody] = Field(
        min_length=1, description="At most `max_documents_per_request` (see /version)."
    )
    strict: bool = Field(
        default=False,
        description="Refuse with 422, naming tokens and limit, a text that is too long to be read "
        "whole, rather than read its beginning.",
    )

    def to_documents(self) -> list[Document]:
        """Return the documents.

        Raises:
            InvalidInputError: fields are refused; names all of them.
        """
        documents: list[Document] = []
        refused: list[FieldError] = []
        for number, body in enumerate(self.documents):
            try:
                documents.append(Document(body.id, body.text, body.title, body.metadata))
            except DocumentError as error:
                refused.append(FieldError(f"#/documents/{number}/{error.field}", error.reason))
        if refused:
            raise InvalidInputError(refused)
        return documents


class ReceiptBody(BaseModel):
    """What was read of a document and what was left out."""

    tokens: int = Field(description="Tokens of the whole text.")
    tokens_read: int = Field(description="Tokens that reached the encoder.")
    blocks: int = Field(description="Sentence blocks read.")
    blocks_left_out: int = Field(description="Sentence blocks beyond what the checkpoint reads.")


class TermBody(BaseModel):
    """A term that two documents share."""

    term: str
    weight: float = Field(description="Its share of the lexical score.")


class MatchBody(BaseModel):
    """A document that matches."""

    id: str
    score: float = Field(
        description="What matches are ranked by: `semantic_score`, `lexical_score`, or in hybrid "
        "mode their weighted mean."
    )
    title: str
    metadata: dict[str, JsonValue]
    semantic_score: float = Field(description="Cosine of the two document vectors.")
    lexical_score: float | None = nullable(
        "Cosine of the words of the two documents; null in semantic mode."
    )
    terms: list[TermBody] = Field(
        description="The terms that give most to the lexical score; empty in semantic mode."
    )
    probability: float | None = nullable(
        "Probability that it is a match, among pairs half of which are; null where "
        "the checkpoint has no calibration of such scores."
    )
    false_positive_rate: float | None = nullable(
        "Share of random pairs of the corpus that score as high; null where the data "
        "directory has not been calibrated (`longmatch calibrate`)."
    )
    first_stage_score: float | None = nullable(
        "What it was found by, where `score` is that of the reranker; null where it was not read."
    )


class RerankedBody(BaseModel):
    """What became of the second stage."""

    reranked: bool = Field(
        description="Whether the matches are in its order; false where time was up."
    )
    candidates: int = Field(description="How many were to be read.")
    rescored: int = Field(description="How many were read in time.")
    reranker: str = Field(description="Name of the checkpoint that read them.")


class Answer(BaseModel):
    """What every answer that used the index says of how it was made."""

    timings: dict[str, float] = Field(description="Milliseconds of each stage.")
    checkpoint: str = Field(description="Name of the checkpoint that made the vectors.")
    generation: int = Field(description="Generation of the index.")


class MatchResponse(Answer):
    """The matches of one document, best first."""

    matches: list[MatchBody]
    receipt: ReceiptBody
    calibration: str | None = nullable(
        "Version of the calibration that made the probabilities; null for none."
    )
    rerank: RerankedBody | None = nullable("The second stage; null where none was asked for.")


class MatchesResponse(BaseModel):
    """The matches of several documents, in the order of the queries."""

    results: list[MatchResponse]


class IndexedBody(BaseModel):
    """A document that was stored."""

    id: str
    receipt: ReceiptBody
    unchanged: bool = Field(
        description="The same text was stored already: it was not encoded again, at most title "
        "and metadata were replaced."
    )


class IndexResponse(Answer):
    """The documents that were stored: durable, and found by the next match."""

    indexed: int = Field(description="Documents stored.")
    documents: list[IndexedBody]


class DocumentResponse(BaseModel):
    """A stored document."""

    id: str
    title: str
    metadata: dict[str, JsonValue]
    receipt: ReceiptBody
    indexed_at: str = Field(description="When its text was stored, ISO 8601 in UTC.")
    text: str | None = optional("Only with `?text=true`.")


def match_response(matches: Matches, checkpoint: str, calibration: str | None) -> MatchResponse:
    """Shape the answer to one query."""
    stage = matches.rerank
    if stage is not None and stage.reranked:
        calibration = stage.calibration
    return MatchResponse(
        matches=[MatchBody(**asdict(match)) for match in matches.matches],
        rerank=None if stage is None else _reranked(stage),
        receipt=_receipt(matches.receipt),
        calibration=calibration,
        timings=_milliseconds(matches.seconds),
        checkpoint=checkpoint,
        generation=matches.generation,
    )


def index_response(indexed: IndexedDocuments, checkpoint: str) -> IndexResponse:
    """Shape the answer to POST /index."""
    return IndexResponse(
        indexed=len(indexed.documents),
        documents=[
            IndexedBody(id=item.id, receipt=_receipt(item.receipt), unchanged=item.unchanged)
            for item in indexed.documents
        ],
        timings=_milliseconds(indexed.seconds),
        checkpoint=checkpoint,
        generation=indexed.generation,
    )


def document_response(stored: StoredDocument, *, with_text: bool) -> DocumentResponse:
    """Shape the answer to GET /documents/{id}."""
    document = stored.document
    return DocumentResponse(
        id=document.id,
        title=document.title,
        metadata=dict(document.metadata),
        receipt=_receipt(stored.receipt),
        indexed_at=stored.indexed_at,
        text=document.text if with_text else None,
    )


def _query(place: str, text: str | None, document_id: str | None) -> Query:
    if text is not None:
        return PointedText(f"{place}/text", text)
    return StoredQuery(f"{place}/id", str(document_id))


def _exactly_one(**given: object) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"give exactly one of {', '.join(given)}")


def _reranked(stage: RerankReceipt) -> RerankedBody:
    return RerankedBody(
        reranked=stage.reranked,
        candidates=stage.candidates,
        rescored=stage.rescored,
        reranker=stage.reranker,
    )


def _receipt(receipt: Receipt) -> ReceiptBody:
    return ReceiptBody(**asdict(receipt))


def _milliseconds(seconds: Mapping[Stage, float]) -> dict[str, float]:
    return {stage: round(duration * 1000, 3) for stage, duration in seconds.items()}
