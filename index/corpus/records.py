"""Records of named fields, as JSON Lines and tables have them, to documents."""

from collections.abc import Mapping
from typing import Any

from index.document import Document
from index.errors import DocumentError

JSON_TYPES = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_OWN_FIELDS = frozenset({"title", "text", "metadata"})


def document_of(record: Mapping[str, Any]) -> Document:
    """Return the document of a record of JSON values.

    `id` (or `_id`) and `text` are required, an id may be an integer; `title` and `metadata` are
    optional and may be null. Any other field becomes metadata; fields of `metadata` itself take
    precedence.
    """
    id_field = "id" if "id" in record else "_id"
    metadata = _optional(record, "metadata", dict, {})
    others = {key: record[key] for key in record if key != id_field and key not in _OWN_FIELDS}
    return Document(
        id=_document_id(record, id_field),
        text=_text(record),
        title=_optional(record, "title", str, ""),
        metadata={**others, **metadata},
    )


def _document_id(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise DocumentError("id", "is missing")
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    raise DocumentError(field, f"is {JSON_TYPES[type(value)]}, not text or an integer")


def _text(record: Mapping[str, Any]) -> str:
    if "text" not in record:
        raise DocumentError("text", "is missing")
    value = record["text"]
    if not isinstance(value, str):
        raise DocumentError("text", f"is {JSON_TYPES[type(value)]}, not text")
    return value


def _optional(record: Mapping[str, Any], field: str, kind: type, default: Any) -> Any:
    value = record.get(field)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise DocumentError(field, f"is {JSON_TYPES[type(value)]}, not {JSON_TYPES[kind]}")
    return value
