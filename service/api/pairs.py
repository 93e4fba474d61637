"""GET /pairs: all pairs of similar documents, streamed."""

from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import StreamingResponse

from index.search.records import Bounds
from service.api.deps import Admitted, CollectionDep
from service.api.http.problems import ANSWERING
from service.api.http.request import NDJSON
from service.api.openapi import Router, problem_responses
from service.matching.pairs import export_pairs

router = Router(tags=["match"], dependencies=[Admitted])

LINE = (
    '{"left": "articles/bees", "right": "articles/wasps", "left_title": "Bees", '
    '"right_title": "Wasps", "score": 0.91, "probability": 0.97, "false_positive_rate": 0.0004}\n'
)


@router.get(
    "/pairs",
    summary="Find all pairs of similar documents",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The pairs, one on each line",
            "content": {
                NDJSON: {"schema": {"type": "string"}, "examples": {"lines": {"value": LINE}}}
            },
        },
        **problem_responses(*ANSWERING),
    },
)
async def get_pairs(
    collection: CollectionDep,
    min_score: Annotated[
        float | None,
        Query(
            ge=-1,
            le=1,
            allow_inf_nan=False,
            description="Give no pair whose score is under this.",
            openapi_examples={"some": {"value": 0.5}},
        ),
    ] = None,
    min_probability: Annotated[
        float | None,
        Query(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="Give no pair under this probability; refused where the checkpoint has no "
            "calibration.",
            openapi_examples={"some": {"value": 0.9}},
        ),
    ] = None,
    max_false_positive_rate: Annotated[
        float | None,
        Query(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="Give no pair whose score a larger share of random pairs of the corpus "
            "reaches; refused where the data directory has not been calibrated.",
            openapi_examples={"some": {"value": 0.001}},
        ),
    ] = None,
    mode: Annotated[
        Literal["semantic"],
        Query(
            description="Pairs are found by document vectors.",
            openapi_examples={"only": {"value": "semantic"}},
        ),
    ] = "semantic",
    collapse: Annotated[
        Literal["families"] | None,
        Query(
            description="Compare one document of each family: the one stored first.",
            openapi_examples={"one of each": {"value": "families"}},
        ),
    ] = None,
) -> StreamingResponse:
    """Return every pair of documents inside the bounds once, in the order they were stored.

    At least one bound must be given. Scores are those of POST /match in semantic mode without
    alignment. The pairs are found while they are read.
    """
    bounds = Bounds(min_score, min_probability, max_false_positive_rate)
    lines = await export_pairs(collection, bounds, collapse=collapse is not None)
    return StreamingResponse(lines, media_type=NDJSON)
