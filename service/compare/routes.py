"""POST /compare."""

from typing import Annotated, Any

from fastapi import Body, Header
from fastapi.responses import HTMLResponse

from service.body import choose_media_type
from service.compare import schemas
from service.compare.logic import Explanation, compare
from service.deps import CollectionDep
from service.encode import EncodedText
from service.gate import declare
from service.openapi import ENCODE, Router
from service.schemas import milliseconds
from service.threads import run_in
from service.web.report import page_headers, render_report

router = Router(tags=["compare"])

JSON, HTML = "application/json", "text/html"
REQUESTS = {
    "texts": {
        "summary": "Two texts",
        "value": {"left": {"text": "Ants find short paths. …"}, "right": {"text": "Bees dance. …"}},
    },
    "stored": {
        "summary": "A text and a stored document",
        "value": {
            "left": {"text": "Ants find short paths. …", "title": "Ants, a draft"},
            "right": {"id": "articles/ants"},
        },
    },
}
GOOD = {
    "description": "The comparison; with `Accept: text/html` a page for a person",
    "content": {HTML: {"schema": {"type": "string"}}},
}


@router.post(
    "/compare",
    summary="Say how two documents match, and where",
    response_model=schemas.CompareResponse,
    responses=ENCODE({200: GOOD}, "document-not-found", "not-acceptable"),
)
@declare(scope="read")
async def post_compare(
    request: Annotated[schemas.CompareRequest, Body(openapi_examples=REQUESTS)],
    collection: CollectionDep,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> dict[str, Any] | HTMLResponse:
    """Compare two texts, or stored documents, which are not encoded again.

    The answer holds the scores that a search in hybrid mode gives the pair, the kind of relation
    with what speaks for it, the passages that match with their places in both texts, the share of
    each text that they cover, the pairs of sentence blocks that give most to the alignment score,
    the scores of the sections, and, with a model that has such an attention, the blocks that attend
    to each other most. With `differences`, it also holds what each text has that the other lacks.
    """
    kind = choose_media_type(accept, (JSON, HTML))
    explanation, seconds = await compare(
        collection,
        request.left.to_query("#/left"),
        request.right.to_query("#/right"),
        passages=request.passages,
        differences=request.differences or kind == HTML,
        strict=request.strict,
    )
    if kind == HTML:
        page = await run_in(collection.engine.readers, _page, explanation)
        return HTMLResponse(page, headers=page_headers())
    left_text, right_text = explanation.left.text, explanation.right.text
    found = explanation.comparison.differences
    return {
        **schemas.comparison_json(explanation),
        "differences": found and schemas.differences_json(found, left_text, right_text),
        "left": _read(explanation.left),
        "right": _read(explanation.right),
        "timings": milliseconds(seconds),
        "checkpoint": collection.checkpoint.name,
        "calibration": collection.scoring.present.version,
    }


def _read(text: EncodedText) -> dict[str, Any]:
    return {"id": text.document_id, "title": text.title, "receipt": text.receipt}


def _page(explanation: Explanation) -> str:
    left, right = explanation.left, explanation.right
    return render_report(explanation.comparison, _title(left), left.text, _title(right), right.text)


def _title(text: EncodedText) -> str:
    return text.title or text.document_id or ""
