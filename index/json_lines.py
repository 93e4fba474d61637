"""A line of a JSON Lines corpus: the document in it, or what is wrong with it."""

import json
from typing import Any, NoReturn

from index.document import Document
from index.errors import CorpusError, DocumentError

_OWN_FIELDS = frozenset({"title", "text", "metadata"})
_JSON_TYPES = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def parse_document(line: str) -> Document:
    """Read one document from a line of JSON.

    `id` (or else `_id`) and `text` are needed, an id may be an integer; `title` and `metadata` are
    optional and may be null. Any other field goes to the metadata, where a field of `metadata`
    itself has precedence.

    Raises:
        CorpusError: the line is not a JSON object.
        DocumentError: a field is missing, empty, of the wrong type or over its limit.
    """
    record = _parse_object(line)
    id_field = "id" if "id" in record else "_id"
    metadata = _optional(record, "metadata", dict, {})
    others = {key: record[key] for key in record if key != id_field and key not in _OWN_FIELDS}
    return Document(
        id=_document_id(record, id_field),
        text=_text(record),
        title=_optional(record, "title", str, ""),
        metadata={**others, **metadata},
    )


def _parse_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise CorpusError("is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise CorpusError(f"is not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:  # NaN and the like, or an integer of thousands of digits
        raise CorpusError(f"is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise CorpusError(f"is not a JSON object but {_JSON_TYPES[type(record)]}")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _document_id(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise DocumentError("id", "is missing")
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    raise DocumentError(field, f"is {_JSON_TYPES[type(value)]}, not text or an integer")


def _text(record: dict[str, Any]) -> str:
    if "text" not in record:
        raise DocumentError("text", "is missing")
    value = record["text"]
    if not isinstance(value, str):
        raise DocumentError("text", f"is {_JSON_TYPES[type(value)]}, not text")
    return value


def _optional(record: dict[str, Any], field: str, kind: type, default: Any) -> Any:
    value = record.get(field)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise DocumentError(field, f"is {_JSON_TYPES[type(value)]}, not {_JSON_TYPES[kind]}")
    return value
