"""Records of named fields, as JSON Lines and rows of tables have them, to documents."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from index.document import Document
from index.errors import CorpusError, DocumentError

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
    others = {key: record[key] for key in record if key != id_field and key not in _OWN_FIELDS}
    if "text" not in record:
        raise DocumentError("text", "is missing")
    title, metadata = record.get("title"), record.get("metadata")
    return Document(
        id=document_id(record, id_field),
        text=_typed("text", record["text"], str),
        title=_typed("title", "" if title is None else title, str),
        metadata=others | _typed("metadata", {} if metadata is None else metadata, dict),
    )


def document_id(record: Mapping[str, Any], field: str) -> str:
    """Return the id in a field of a record.

    Raises:
        DocumentError: there is none.
    """
    if field not in record:
        raise DocumentError(field.removeprefix("_"), "is missing")
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    raise DocumentError(field, f"is {JSON_TYPES[type(value)]}, not text or an integer")


def _typed(field: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise DocumentError(field, f"is {JSON_TYPES[type(value)]}, not {JSON_TYPES[kind]}")
    return value


ID_COLUMNS = ("id", "_id")
_MOST_DIGITS = 1_000  # of a decimal: an exponent can stand for an integer without end


def check_columns(names: Sequence[str], where: str) -> None:
    """Check that a table has the columns of documents.

    Raises:
        CorpusError: one is missing, or there are two of a name; it begins with where that is.
    """
    having = f"(it has {', '.join(names) or 'none'})"
    if not set(ID_COLUMNS) & set(names):
        raise CorpusError(f"{where}has no column id {having}")
    if "text" not in names:
        raise CorpusError(f"{where}has no column text {having}")
    for name in names:
        if names.count(name) > 1:
            raise CorpusError(f"{where}has two columns {name}")


def document_of_row(row: Mapping[str, Any] | CorpusError) -> Document:
    """Return the document of a row of a table; columns without a value (NULL) are left out.

    Dates and times become text of ISO 8601. `metadata` may be text of JSON.

    Raises:
        CorpusError: it stands in place of the row, where a table cannot be read further.
        DocumentError: names the column whose value JSON does not have, or is an exception.
    """
    if isinstance(row, CorpusError):
        raise row
    record = {name: _value(name, value) for name, value in row.items() if value is not None}
    if isinstance(metadata := record.get("metadata"), str):
        try:
            record["metadata"] = json.loads(metadata)
        except (ValueError, RecursionError) as error:
            raise DocumentError("metadata", f"is not JSON: {error}") from error
    return document_of(record)


def _value(column: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        return json.loads(_encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError(column, f"is not JSON: {error}") from error


def _plain(value: Any) -> Any:
    """Return as JSON has it what tables have beyond that; raises ValueError."""
    if isinstance(value, Exception):
        raise ValueError(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError("it is binary, or text that is not UTF-8")
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() <= _MOST_DIGITS:
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"it is {value!r:.40}")


_encode = json.JSONEncoder(default=_plain, allow_nan=False).encode
