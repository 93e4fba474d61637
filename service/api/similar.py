"""GET /documents/{id}/similar."""

from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.exceptions import RequestValidationError

from index.search.records import AlignmentOptions, Bounds, SearchOptions
from service.api.deps import Admitted, CollectionDep
from service.api.documents import PROBLEMS, DocumentId, UnescapedRoute
from service.api.match import ANSWER as MATCH_ANSWER
from service.api.openapi.responses import json_example
from service.api.openapi.router import Router
from service.api.schemas.matches import MatchResponse, matches_json
from service.matching.match import MatchOptions, match
from service.matching.queries import StoredQuery
from service.matching.retrieve import DEFAULT_TOP_K, MAX_TOP_K

router = Router(
    prefix="/documents", tags=["match"], dependencies=[Admitted], route_class=UnescapedRoute
)

ANSWER: dict[str, Any] = {
    **MATCH_ANSWER,
    "matches": [
        {
            "id": "articles/bees",
            "score": 0.67,
            "title": "Bees",
            "metadata": {"year": 2021},
            "semantic_score": 0.67,
            "vector_score": 0.83,
            "alignment_score": 0.31,
            "lexical_score": None,
            "terms": [],
            "probability": 0.97,
            "false_positive_rate": 0.0004,
            "explanation": None,
            "first_stage_score": None,
            "family": None,
            "collapsed": [],
            "like_scores": [],
            "unlike_scores": [],
        }
    ],
    "timings": {"search": 0.4, "align": 4.8, "fetch": 0.3},
}


@router.get(
    "/{id:path}/similar",
    summary="Find the documents that are nearest to a stored one",
    response_model=MatchResponse,
    responses={200: json_example(ANSWER, "The matches, best first"), **PROBLEMS},
)
async def get_similar(
    document_id: DocumentId,
    collection: CollectionDep,
    top_k: Annotated[
        int | None,
        Query(
            ge=1,
            description="How many; at most `max_top_k`, `default_top_k` when not given.",
            openapi_examples={"some": {"value": 5}},
        ),
    ] = None,
    min_score: Annotated[
        float,
        Query(
            ge=-1,
            le=1,
            allow_inf_nan=False,
            description="Give no document whose score is under this.",
            openapi_examples={"some": {"value": 0.5}},
        ),
    ] = -1.0,
) -> Response:
    """Return the documents nearest to a stored one; nothing is encoded.

    The same as POST /match with this id in semantic mode.
    """
    if top_k is not None and top_k > MAX_TOP_K:
        refused = {"loc": ("query", "top_k"), "msg": f"must be from 1 to {MAX_TOP_K}"}
        raise RequestValidationError([{**refused, "type": "le", "ctx": {"le": MAX_TOP_K}}])
    search = SearchOptions(
        top_k=top_k or DEFAULT_TOP_K,
        mode="semantic",
        bounds=Bounds(min_score=min_score),
        alignment=AlignmentOptions(
            budget_seconds=collection.engine.settings.alignment_budget_ms / 1000
        ),
    )
    query = StoredQuery(None, document_id)
    found = await match(collection, [query], MatchOptions(search=search))
    name, calibration = collection.checkpoint.name, collection.calibrator.version
    body = matches_json(found, name, calibration, several=False)
    return Response(body, media_type="application/json")
