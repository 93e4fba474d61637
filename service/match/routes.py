"""POST /match, GET /documents/{id}/similar, and GET /pairs."""

from typing import Annotated, Any, Literal

from fastapi import Body, Query, Response
from fastapi.openapi.models import Example
from fastapi.responses import StreamingResponse

from index.search.records import Bounds
from service.body import NDJSON
from service.deps import CollectionDep
from service.documents.routes import StoredId, UnescapedRoute
from service.encode import StoredQuery
from service.gate import declare
from service.match.logic import export_pairs, match
from service.match.retrieve import MAX_TOP_K
from service.match.schemas import MatchesResponse, MatchRequest, MatchResponse, matches_json
from service.openapi import ENCODE, READ, WRITE, Router

router = Router(tags=["match"])

REQUESTS = {
    "text": {
        "summary": "A text",
        "value": {"text": "Ant colonies find short paths without a leader. …", "top_k": 5},
    },
    "id": {"summary": "A stored document", "value": {"id": "articles/ants", "min_score": 0.5}},
    "queries": {
        "summary": "Several at once",
        "value": {"queries": [{"text": "Bees dance. …"}, {"id": "articles/ants"}], "top_k": 3},
    },
    "like": {
        "summary": "Like some examples, and unlike another",
        "value": {
            "like": [{"id": "articles/ants"}, {"text": "Bees dance. …"}],
            "unlike": [{"text": "Ant colony optimisation is a method of computing. …"}],
        },
    },
    "filter": {
        "summary": "Only some documents, and not two that are known",
        "value": {
            "text": "Ant colonies find short paths. …",
            "filter": {
                "and": [
                    {"field": "year", "range": {"gte": 2020}},
                    {"field": "/tags", "in": ["insects", "robots"]},
                    {"not": {"field": "retracted", "equal": True}},
                ]
            },
            "exclude": ["articles/ants", "articles/bees"],
        },
    },
    "rerank": {
        "summary": "The best first: read the first 50 candidates together with the document",
        "value": {
            "text": "Ant colonies find short paths. …",
            "rerank": {"candidates": 50, "budget_ms": 2000},
        },
    },
}


@router.post(
    "/match",
    summary="Find the documents that match a document",
    response_model=MatchResponse | MatchesResponse,
    responses=ENCODE(
        {200: "The matches, best first; for `queries`, a list of `results`"},
        "document-not-found",
    ),
)
@declare(scope="read")
async def post_match(
    request: Annotated[MatchRequest, Body(openapi_examples=REQUESTS)], collection: CollectionDep
) -> Response:
    """Match a text, a stored document, several of them, or documents like some examples.

    Semantic mode finds documents by the cosine of the document vectors, and ranks the best of them
    by how well their sentence blocks match too, block by block. The score of lexical mode is the
    cosine of the words, and that of hybrid mode a weighted mean of both, where every match names
    the terms that the documents share. With `rerank`, the first candidates are read together with
    the document; the score of each is then a mean of what it was found by and of how likely they
    match. With `explain` the first matches, in their last order, say why they match: nothing is
    encoded for it. The receipt says how much of the document was read by the encoder and what was
    left out; its words are all read.
    """
    found = await match(collection, request.to_queries(), request)
    several = request.queries is not None
    scoring = collection.scoring.present
    body = matches_json(found, collection.checkpoint.name, scoring, several=several)
    return Response(body, media_type="application/json")


similar_router = Router(prefix="/documents", tags=["match"], route_class=UnescapedRoute)


def _bound(least: float, example: float, description: str) -> Any:
    """Describe a parameter from `least` to 1."""
    some = {"some": Example(value=example)}
    return Query(
        ge=least, le=1, allow_inf_nan=False, description=description, openapi_examples=some
    )


@similar_router.get(
    "/{id:path}/similar",
    summary="Find the documents that are nearest to a stored one",
    response_model=MatchResponse,
    responses=WRITE({200: "The matches, best first"}, "document-not-found"),
)
async def get_similar(
    document_id: StoredId,
    collection: CollectionDep,
    top_k: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_TOP_K,
            description="How many; at most `max_top_k`, `default_top_k` when not given.",
            openapi_examples={"some": {"value": 5}},
        ),
    ] = None,
    min_score: Annotated[
        float, _bound(-1, 0.5, "Give no document whose score is under this.")
    ] = -1.0,
) -> Response:
    """Return the documents nearest to a stored one; nothing is encoded.

    The same as POST /match with this id.
    """
    request = MatchRequest.model_construct(top_k=top_k, min_score=min_score)
    found = await match(collection, [StoredQuery(None, document_id)], request)
    scoring = collection.scoring.present
    body = matches_json(found, collection.checkpoint.name, scoring, several=False)
    return Response(body, media_type="application/json")


pairs_router = Router(tags=["match"])


@pairs_router.get(
    "/pairs",
    summary="Find all pairs of similar documents",
    response_class=StreamingResponse,
    responses=READ(
        {
            200: {
                "description": "The pairs, one on each line",
                "content": {NDJSON: {"schema": {"type": "string"}}},
            }
        }
    ),
)
async def get_pairs(
    collection: CollectionDep,
    min_score: Annotated[
        float | None, _bound(-1, 0.5, "Give no pair whose score is under this.")
    ] = None,
    min_vector_score: Annotated[
        float | None,
        _bound(
            -1,
            0.5,
            "Give no pair whose document vectors have a cosine under this; by default "
            "what about 1 of 1,000 random pairs reach.",
        ),
    ] = None,
    min_probability: Annotated[
        float | None,
        _bound(0, 0.9, "Give no pair under this probability; refused where pairs have none."),
    ] = None,
    max_false_positive_rate: Annotated[
        float | None,
        _bound(
            0,
            0.001,
            "Give no pair whose score a larger share of random pairs of the corpus "
            "reaches; refused where that was not measured.",
        ),
    ] = None,
    collapse: Annotated[
        Literal["families"] | None,
        Query(
            description="Compare one document of each family: the one stored first.",
            openapi_examples={"one of each": {"value": "families"}},
        ),
    ] = None,
) -> StreamingResponse:
    """Return every pair of documents inside the bounds once, in the order they were stored.

    At least one bound must be given. Pairs are found by the cosine of their document vectors; their
    scores are those of POST /match. They are found while they are read.
    """
    bounds = Bounds(min_score, min_probability, max_false_positive_rate)
    lines = await export_pairs(collection, bounds, min_vector_score, collapse=collapse is not None)
    return StreamingResponse(lines, media_type=NDJSON)
