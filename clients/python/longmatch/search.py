"""The methods that search: match, compare, similar.

The clients pass the `Caller` of one call; these docstrings are those of their methods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longmatch.decoding import fetch, fetch_field
from longmatch.requests import (
    Align,
    Explain,
    Mode,
    Query,
    Rerank,
    body_of,
    document_path,
    query_body,
)
from longmatch.results import Comparison, Matches
from longmatch.retries import Caller
from longmatch.steps import Request, Steps

_HTML = "text/html"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """What to find for a query; None leaves the choice to the server.

    Attributes:
        top_k: how many matches.
        mode: by what documents are found and ranked.
        filter: a condition on the metadata, as JSON; see the documentation of filters.
        exclude: ids of documents not to return.
        min_score: of matches.
        min_probability: of matches; refused without a calibration.
        max_false_positive_rate: of matches; refused without a calibration of the corpus.
        align: whether, or how, the best candidates are aligned block by block.
        rerank: how many candidates to read together with the query.
        explain: whether, or how many of, the first matches say why they match.
        collapse: return one match of each family of copies and versions.
        strict: refuse a text that is too long to be read whole.
    """

    top_k: int | None = None
    mode: Mode | None = None
    filter: Mapping[str, Any] | None = None
    exclude: Sequence[str] | None = None
    min_score: float | None = None
    min_probability: float | None = None
    max_false_positive_rate: float | None = None
    align: bool | Align | None = None
    rerank: int | Rerank | None = None
    explain: bool | Explain | None = None
    collapse: bool | None = None
    strict: bool | None = None


def match(caller: Caller, query: Query, options: MatchOptions | None = None) -> Steps[Matches]:
    """Find the documents that match a text or a stored document, best first.

    Args:
        query: a text, a `Text` with its title, or `Stored(id)`, which is left out of its matches.
        options: what to find.
    """
    body = {**query_body(query), **_options(options)}
    return fetch(caller, Matches, Request(method="POST", path="/match", json=body))


def match_many(
    caller: Caller, queries: Sequence[Query], options: MatchOptions | None = None
) -> Steps[list[Matches]]:
    """Find the documents that match each of several queries, in their order.

    Args:
        queries: as those of `match`; the server limits their number.
        options: for each of them.
    """
    body = {"queries": [query_body(query) for query in queries], **_options(options)}
    request = Request(method="POST", path="/match", json=body)
    return fetch_field(caller, list[Matches], "results", request)


def match_examples(
    caller: Caller,
    like: Sequence[Query],
    unlike: Sequence[Query] = (),
    options: MatchOptions | None = None,
) -> Steps[Matches]:
    """Find the documents that match all of some examples, and none of others better.

    Args:
        like: as the queries of `match`; the server limits their number.
        unlike: examples of what is not looked for.
        options: what to find; without reranking and bounds that need a calibration.
    """
    examples = {"like": [query_body(query) for query in like]}
    if unlike:
        examples["unlike"] = [query_body(query) for query in unlike]
    request = Request(method="POST", path="/match", json={**examples, **_options(options)})
    return fetch(caller, Matches, request)


def similar(
    caller: Caller, document_id: str, *, top_k: int | None = None, min_score: float | None = None
) -> Steps[Matches]:
    """Find the documents that are nearest to a stored one.

    Args:
        document_id: of the stored document.
        top_k: how many.
        min_score: of matches.
    """
    path, params = document_path(document_id, "/similar"), {"top_k": top_k, "min_score": min_score}
    return fetch(caller, Matches, Request(method="GET", path=path, params=params))


def compare(
    caller: Caller,
    left: Query,
    right: Query,
    *,
    passages: int | None = None,
    differences: bool | None = None,
    strict: bool | None = None,
) -> Steps[Comparison]:
    """Say how two texts, or stored documents, match, and where.

    Args:
        left: a text, a `Text` with the title that the page calls it by, or `Stored(id)`.
        right: the other one.
        passages: how many to return at most.
        differences: return what each text has that the other lacks, too.
        strict: refuse a text that is too long to be read whole.
    """
    request = _comparison(
        left, right, {}, passages=passages, differences=differences, strict=strict
    )
    return fetch(caller, Comparison, request)


def compare_as_page(
    caller: Caller,
    left: Query,
    right: Query,
    *,
    passages: int | None = None,
    strict: bool | None = None,
) -> Steps[str]:
    """Return the comparison as a page for a person, HTML in one file; as `compare`."""
    request = _comparison(left, right, {"Accept": _HTML}, passages=passages, strict=strict)
    reply = yield from caller.ask(request)
    return reply.content.decode()


def _options(options: MatchOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    given = {name: getattr(options, name) for name in MatchOptions.__dataclass_fields__}
    if options.exclude is not None:
        given["exclude"] = list(options.exclude)
    return body_of(**given)


def _comparison(
    left: Query, right: Query, headers: Mapping[str, str], **options: int | bool | None
) -> Request:
    body = body_of(left=query_body(left), right=query_body(right), **options)
    return Request(method="POST", path="/compare", json=body, headers=headers)
