"""What Schemathesis cannot know of the API from its document: `SCHEMATHESIS_HOOKS` names this."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import schemathesis
from pydantic import TypeAdapter, ValidationError

from service.match.filter import FilterField
from service.schemas import next_cursor
from service.text.logic import FILE_TYPES

NDJSON = "application/x-ndjson"
FILTER: TypeAdapter[Any] = TypeAdapter(FilterField)
OF_THE_WHOLE = ("is nested more than", "has more than")  # how these refusals of a filter begin
_NO_SPACE = re.compile(r"\S|[\x1c-\x1f\x85]")  # as the schemas have it; Python calls these spaces


@schemathesis.serializer(*(kind for kind in FILE_TYPES if kind.startswith("application/")))
def write_file(context: Any, value: Any) -> bytes:
    """Send bytes as they are: no file of these kinds."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@schemathesis.serializer(NDJSON)
def write_lines(context: Any, value: Any) -> bytes:
    """Send a text as it is, or, every other one, as a document on each of two lines."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) % 2:
        text = "".join(f"{json.dumps({'id': name, 'text': text})}\n" for name in ("a", text[:9]))
    return text.encode(errors="replace")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Keep rules that no schema can say.

    No Idempotency-Key comes with two bodies, and no id twice in one body; a text has a character
    that the tokenizer does not drop; bounds on reranked scores need a calibrated reranker; filters
    are nested and long within limits.
    """
    for name in list(case.headers or {}):
        if name.lower() == "idempotency-key":
            case.headers[name] = uuid.uuid4().hex
    body = case.body
    if not isinstance(body, dict):
        return
    for part in objects(body):
        part |= {name: readable(part[name]) for name in ("text", "input") if name in part}
    body.pop("dimensions", None)  # those of the vectors, or refused
    if body.get("rerank") not in (None, False):
        body.pop("min_probability", None)
        body.pop("max_false_positive_rate", None)
    if body.get("explain") not in (None, False):  # of 32 queries, at most 100 matches are explained
        body["top_k"] = 3
    body |= few_examples(body)
    if "filter" in body and not is_small(body["filter"]):
        del body["filter"]
    if "{collection}" in case.operation.path:  # a new collection has not been calibrated
        body.pop("max_false_positive_rate", None)
    documents = body.get("documents")
    if isinstance(documents, list):
        name_apart(documents)


def few_examples(body: dict[str, Any]) -> dict[str, Any]:
    """Return at most 16 examples of each kind: there are at most 32 of both together."""
    kinds = ("like", "unlike")
    return {kind: body[kind][:16] for kind in kinds if isinstance(body.get(kind), list)}


def name_apart(documents: list[Any]) -> None:
    """Give each document an id of its own."""
    known: set[str] = set()
    for number, document in enumerate(documents):
        if isinstance(document, dict) and isinstance(document.get("id"), str):
            if document["id"] in known:
                document["id"] = f"{document['id'][:500]}{number}"
            known.add(document["id"])


def is_small(condition: Any) -> bool:
    """Return whether a filter is within the limits that hold for the whole of it."""
    try:
        FILTER.validate_python(condition)
    except ValidationError as error:
        return not any(row["msg"].startswith(OF_THE_WHOLE) for row in error.errors())
    return True


def readable(text: Any) -> Any:
    """Return a text, or texts, with a letter after what the tokenizer would drop."""
    if isinstance(text, list):
        return [readable(part) for part in text]
    if isinstance(text, str) and _NO_SPACE.search(text) and not re.search("[A-Za-z0-9]", text):
        return f"{text} a"
    return text


def objects(body: Any) -> Iterator[dict[str, Any]]:
    """Give every object within a body."""
    if isinstance(body, dict):
        yield body
    for value in body.values() if isinstance(body, dict) else body:
        if isinstance(value, dict | list):
            yield from objects(value)


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Ask with cursors that the service could have given: they are opaque, not any text."""
    if query and isinstance(query.get("cursor"), str):
        query["cursor"] = next_cursor([query["cursor"]], 1, str)
    return query
